use alloc::{format, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, RequestId};

use crate::{
    Mind,
    books::{Release, Request},
    contract::{Command, Fault, FileAtFault, Happening, Omission, Outbox, Reason},
};

/// Most files of a request that may be left out. The mind knows each by name, and a source with
/// more at fault needs another list.
const OMISSIONS_MAX: usize = 10_000;

impl Omission {
    fn reason(&self) -> Reason {
        Reason::SourceFile {
            fault: self.fault,
            what: self.what.clone(),
        }
    }
}

impl Mind {
    /// Handles a file at fault at its source. Holdings of depots outweigh that: chunks that they
    /// can rebuild are left to them. With any other chunk, the file is left out and the rest goes
    /// on, unless nothing would be left.
    pub(crate) fn on_file_at_fault(&mut self, id: RequestId, found: FileAtFault, out: &mut Outbox) {
        let (file, chunks) = (found.omission, (found.first, found.last));
        // A name that is no file has no chunks, and nothing counts on it: whether all is safe
        // does not depend on it.
        if chunks.0 > chunks.1 {
            return self.leave_out(id, file, false, out);
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        // Once all is safe nothing more is read: a read still in progress began before.
        let reads = request.is_moving() && request.release != Release::Commanded;
        if request.safe_at.is_some() {
            if file.fault == Fault::SourceVanished {
                self.on_source_fault(id, file.fault, Some(file.what), out);
            } else if reads && !self.awaits_what_depots_hold(id) {
                self.on_source_purged(id, file.reason(), out);
            }
            return;
        }
        if found.is_restored {
            // The rest may be gone as well, and depots may hold more of it than they can be asked
            // for.
            return self.on_source_fault(id, file.fault, Some(file.what), out);
        }
        if !reads || self.awaits_what_depots_hold(id) {
            return;
        }
        let is_known = |known: &Omission| known.file == file.file;
        let known = self.requests.get(&id);
        if known.is_none_or(|request| request.uncommon.omissions.iter().any(is_known)) {
            return;
        }
        if !self.leave_to_depots(id, chunks, &file.reason()) {
            self.leave_out(id, file, true, out);
        }
    }

    /// Leaves a file out, or fails the request if nothing would be left.
    fn leave_out(&mut self, id: RequestId, file: Omission, is_file: bool, out: &mut Outbox) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Err(place) =
            (request.uncommon.omissions).binary_search_by_key(&file.file, |of| of.file)
        else {
            return;
        };
        if request.is_final() {
            return;
        }
        let known = &request.uncommon.omissions;
        let files = known.iter().filter(|known| known.bytes > Bytes::ZERO);
        let is_last = is_file && files.count() as u64 + 1 >= request.spec.files;
        let reason = file.reason();
        if is_last || known.len() >= OMISSIONS_MAX {
            return self.fail(id, reason, out);
        }
        let (number, bytes) = (file.file, file.bytes);
        request.uncommon.omissions.insert(place, file);
        out.commands.push(Command::LeaveOut {
            request: id,
            file: number,
            reason: reason.clone(),
        });
        self.tell(out, Some(id), None, Happening::LeftOut { bytes }, reason);
    }

    /// Leaves chunks to the depots as far as those can rebuild them. Returns whether they can
    /// rebuild all.
    fn leave_to_depots(
        &mut self,
        id: RequestId,
        (first, last): (ChunkIndex, ChunkIndex),
        reason: &Reason,
    ) -> bool {
        let Some(request) = self.requests.get(&id) else {
            return false;
        };
        let (givers, takers) = self.rebuilders(request);
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let end = request.replica.chunks().min(last.get().saturating_add(1));
        let (mut left, mut are_all) = (0u32, true);
        for chunk in (first.get()..end).map(ChunkIndex::new) {
            if request.replica.lacking(chunk) == 0 {
                continue;
            }
            if request.replica.is_rebuildable(chunk, givers, takers) {
                request.stripes.remove(&chunk);
                left += u32::from(request.replica.leave(chunk));
            } else {
                are_all = false;
            }
        }
        if left > 0 {
            let what = format!("chunks left to depots, which can rebuild them: {left}");
            self.remember(id, what, reason.clone());
            self.reset_push(id);
            self.look_now();
        }
        are_all
    }

    /// Returns the lanes from which depots may read to rebuild a chunk, and those that may rebuild
    /// one, as masks. They need not be up now. A request with a budget uses free depots only, and a
    /// store can't rebuild.
    fn rebuilders(&self, request: &Request) -> (u64, u64) {
        let has_budget = request.wishes.budget_micro_usd.is_some();
        let lanes = request.depot_lanes();
        lanes.fold((0, 0), |(givers, takers), lane| {
            let Some(depot) = self.depots.get(&request.lanes[lane].depot) else {
                return (givers, takers);
            };
            let gives = !has_budget || depot.gives_free();
            let is_wished = !request.is_barred(lane) && (!has_budget || depot.is_free());
            let takes = is_wished && !depot.stores;
            (
                givers | u64::from(gives) << lane,
                takers | u64::from(takes) << lane,
            )
        })
    }

    /// Returns whether depots have yet to report what they hold, which may be all of it. Meanwhile
    /// nothing is sent or decided.
    fn awaits_what_depots_hold(&mut self, id: RequestId) -> bool {
        let request = self.requests.get_mut(&id);
        let Some(request) = request.filter(|request| request.is_asking()) else {
            return false;
        };
        request.uncommon.awaits_inventories = true;
        true
    }

    /// Handles a chunk that changed since a file was left out. What depots hold of it no longer
    /// counts, unless they can rebuild its earlier content.
    pub(crate) fn on_chunk_renewed(&mut self, id: RequestId, chunk: ChunkIndex, out: &mut Outbox) {
        let now = self.now;
        if self.awaits_what_depots_hold(id) {
            return;
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let lacks = chunk.get() < request.replica.chunks() && request.replica.lacking(chunk) != 0;
        let reads = request.is_moving() && request.release != Release::Commanded;
        let Some(last) = request.uncommon.omissions.last().filter(|_| lacks && reads) else {
            return;
        };
        let reason = last.reason();
        if self.leave_to_depots(id, (chunk, chunk), &reason) {
            return;
        }
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let lanes = request.lanes.iter().map(|lane| lane.depot);
        let pushed = lanes.filter(|&depot| self.pushes.get(depot, id, chunk).is_some());
        let pushed: Vec<DepotId> = pushed.collect();
        // Depots send each other the earlier content; the digest identifies what goes there from
        // here.
        for depot in pushed {
            self.abandon_pushes(id, depot, &reason, out);
        }
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.uncommon.renewed.insert(chunk, now);
        request.replica.renew(chunk);
        if request.stripes.contains_key(&chunk) {
            request.replica.open(chunk);
        }
        self.refresh_stripe(id, chunk);
        self.reset_push(id);
        out.commands.push(Command::Renew {
            request: id,
            chunk,
            reason,
        });
        self.look_now();
    }

    /// Returns a depot's inventory without chunks that changed since it was asked for.
    pub(crate) fn without_renewed<T: Copy>(
        &self,
        id: RequestId,
        depot: DepotId,
        held: &[(ChunkIndex, T)],
    ) -> Vec<(ChunkIndex, T)> {
        let request = self.requests.get(&id);
        let asked = request.and_then(|request| {
            let lane = request.lane_of(depot)?;
            Some((&request.uncommon.renewed, request.lanes[lane].asked_at?))
        });
        let is_of_now = |chunk: &ChunkIndex| {
            asked.is_none_or(|(renewed, asked)| renewed.get(chunk).is_none_or(|at| *at < asked))
        };
        let held = held.iter().filter(|(chunk, _)| is_of_now(chunk));
        held.copied().collect()
    }
}
