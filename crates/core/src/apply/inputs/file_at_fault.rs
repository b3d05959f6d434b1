use alloc::{format, vec::Vec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, RequestId};

use crate::{
    apply,
    contract::{Command, Fault, FileAtFault, Happening, Omission, Outbox, Reason},
    decide, state,
    state::{Release, State},
};

/// Most files of a request that may be left out. The mind knows each by name, and a source with
/// more at fault needs another list.
const OMISSIONS_MAX: usize = 10_000;

impl Omission {
    pub(crate) fn reason(&self) -> Reason {
        Reason::SourceFile {
            fault: self.fault,
            what: self.what.clone(),
        }
    }
}

/// Handles a file at fault at its source. Holdings of depots outweigh that: chunks that they
/// can rebuild are left to them. With any other chunk, the file is left out and the rest goes
/// on, unless nothing would be left.
pub(crate) fn on_file_at_fault(
    state: &mut State,
    id: RequestId,
    found: FileAtFault,
    out: &mut Outbox,
) {
    let (file, chunks) = (found.omission, (found.first, found.last));
    // A name that is no file has no chunks, and nothing counts on it: whether all is safe does
    // not depend on it.
    if chunks.0 > chunks.1 {
        return leave_out(state, id, file, false, out);
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    // Once all is safe nothing more is read: a read still in progress began before.
    let reads = request.is_moving() && request.release != Release::Commanded;
    if request.safe_at.is_some() {
        let is_vanished = file.fault == Fault::SourceVanished;
        // A release removed it, and left others.
        let is_left = matches!(request.release, Release::Pending | Release::Kept);
        if is_vanished && is_left && request.uncommon.release_failures > 0 {
            lose_at_source(state, id, chunks, file.reason());
        } else if is_vanished {
            apply::source_fault::on_source_fault(state, id, file.fault, Some(file.what), out);
        } else if reads && !awaits_what_depots_hold(state, id) {
            apply::source_fault::on_source_purged(state, id, file.reason(), out);
        }
        return;
    }
    if found.is_restored {
        // The rest may be gone as well, and depots may hold more of it than they can be asked
        // for.
        return apply::source_fault::on_source_fault(state, id, file.fault, Some(file.what), out);
    }
    if !reads || awaits_what_depots_hold(state, id) {
        return;
    }
    let is_known = |known: &Omission| known.file == file.file;
    let known = state.requests.get(&id);
    if known.is_none_or(|request| request.uncommon.omissions.iter().any(is_known)) {
        return;
    }
    if !leave_to_depots(state, id, chunks, &file.reason()) {
        leave_out(state, id, file, true, out);
    }
}

/// Leaves a file out, or fails the request if nothing would be left.
fn leave_out(state: &mut State, id: RequestId, file: Omission, is_file: bool, out: &mut Outbox) {
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let Err(place) = (request.uncommon.omissions).binary_search_by_key(&file.file, |of| of.file)
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
        return apply::ending::fail(state, id, reason, out);
    }
    let (number, bytes) = (file.file, file.bytes);
    request.uncommon.omissions.insert(place, file);
    out.commands.push(Command::LeaveOut {
        request: id,
        file: number,
        reason: reason.clone(),
    });
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::LeftOut { bytes },
        reason,
    );
}

/// Leaves chunks to the depots for good: their source has lost some of each, and keeps the others.
fn lose_at_source(
    state: &mut State,
    id: RequestId,
    (first, last): (ChunkIndex, ChunkIndex),
    reason: Reason,
) {
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let end = request.replica.chunks().min(last.get().saturating_add(1));
    let mut lost = 0u32;
    for chunk in (first.get()..end).map(ChunkIndex::new) {
        request.stripes.remove(&chunk);
        lost += u32::from(request.replica.lose_at_source(chunk));
    }
    if lost > 0 {
        let what = format!("chunks that only depots can give: {lost}");
        state::memory::remember(state, id, what, reason);
        apply::push::offers::reset_push(state, id);
        state::wake::look_now(state);
    }
}

/// Leaves chunks to the depots as far as those can rebuild them. Returns whether they can
/// rebuild all.
fn leave_to_depots(
    state: &mut State,
    id: RequestId,
    (first, last): (ChunkIndex, ChunkIndex),
    reason: &Reason,
) -> bool {
    let Some(request) = state.requests.get(&id) else {
        return false;
    };
    let (givers, takers) = decide::faults::rebuilders(state, request);
    let Some(request) = state.requests.get_mut(&id) else {
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
        state::memory::remember(state, id, what, reason.clone());
        apply::push::offers::reset_push(state, id);
        state::wake::look_now(state);
    }
    are_all
}

/// Returns whether depots have yet to report what they hold, which may be all of it. Meanwhile
/// nothing is sent or decided.
fn awaits_what_depots_hold(state: &mut State, id: RequestId) -> bool {
    let request = state.requests.get_mut(&id);
    let Some(request) = request.filter(|request| request.is_asking()) else {
        return false;
    };
    request.uncommon.awaits_inventories = true;
    true
}

/// Handles a chunk that changed since a file was left out. What depots hold of it no longer
/// counts, unless they can rebuild its earlier content.
pub(crate) fn on_chunk_renewed(
    state: &mut State,
    id: RequestId,
    chunk: ChunkIndex,
    out: &mut Outbox,
) {
    let now = state.now;
    if awaits_what_depots_hold(state, id) {
        return;
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let lacks = chunk.get() < request.replica.chunks() && request.replica.lacking(chunk) != 0;
    let reads = request.is_moving() && request.release != Release::Commanded;
    let Some(last) = request.uncommon.omissions.last().filter(|_| lacks && reads) else {
        return;
    };
    let reason = last.reason();
    if leave_to_depots(state, id, (chunk, chunk), &reason) {
        return;
    }
    let Some(request) = state.requests.get(&id) else {
        return;
    };
    let lanes = request.lanes.iter().map(|lane| lane.depot);
    let pushed = lanes.filter(|&depot| state.pushes.get(depot, id, chunk).is_some());
    let pushed: Vec<DepotId> = pushed.collect();
    // Depots send each other the earlier content; the digest identifies what goes there from
    // here.
    for depot in pushed {
        apply::push::failures::abandon_pushes(state, id, depot, &reason, out);
    }
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    request.uncommon.renewed.insert(chunk, now);
    request.replica.renew(chunk);
    if request.stripes.contains_key(&chunk) {
        request.replica.open(chunk);
    }
    apply::stripes::refresh_stripe(state, id, chunk);
    apply::push::offers::reset_push(state, id);
    out.commands.push(Command::Renew {
        request: id,
        chunk,
        reason,
    });
    state::wake::look_now(state);
}
