//! Source files that change while they are read. Chunks sent earlier then contain an outdated
//! version of the file.

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::contract::{Fault, FileAtFault, Input, Omission};
use posthaste_types::{Bytes, ChunkIndex, FragmentIndex, RequestId};

use super::{
    Pending, Run,
    sends::{Send, answered},
};
use crate::world::{Arrival, Node};

/// Number of leading chunks that contain bytes of the file.
const CHUNKS: u32 = 3;

/// State of the changed file.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    pub(super) has_changed: bool,
    left_out: BTreeSet<RequestId>,
    renewed: BTreeSet<(RequestId, ChunkIndex)>,
}

fn taken_back((depot, request, chunk, fragment): Send) -> Input {
    Input::Recalled {
        request,
        depot,
        chunk,
        fragment,
    }
}

impl Run<'_> {
    /// Reports a chunk read at the centre that contains bytes of the changed file, or that no
    /// longer equals its fragments elsewhere. Returns whether it did.
    pub(super) fn meets_file(
        &mut self,
        request: RequestId,
        chunk: ChunkIndex,
        span: Duration,
    ) -> bool {
        let of = &self.omissions;
        if !of.has_changed || chunk.get() >= CHUNKS || of.renewed.contains(&(request, chunk)) {
            return false;
        }
        if !of.left_out.contains(&request) {
            let omission = Omission {
                file: 0,
                bytes: Bytes::new(1),
                fault: Fault::SourceChanged,
                what: String::from("file 0"),
            };
            let chunks = self
                .world
                .specs
                .get(&request)
                .map_or(0, |spec| spec.chunks());
            let file = FileAtFault {
                omission,
                first: ChunkIndex::new(0),
                last: ChunkIndex::new(CHUNKS.min(chunks).saturating_sub(1)),
                is_restored: false,
            };
            self.tell_after(span, Input::FileAtFault { request, file });
            return true;
        }
        let mut sites = self.world.sites.iter();
        let is_elsewhere = sites.any(|site| site.has_any(request, chunk));
        if is_elsewhere {
            self.tell_after(span, Input::ChunkRenewed { request, chunk });
        }
        is_elsewhere
    }

    /// Reports a send of such a chunk that arrived, and takes it back.
    pub(super) fn on_file(&mut self, arrival: &Arrival) -> bool {
        let Arrival { from, to, sending } = arrival;
        let site = to.place().map(|place| &self.world.sites[place]);
        let Some(site) = site.filter(|_| *from == Node::CENTRE) else {
            return false;
        };
        let (depot, span) = (site.id, Duration::from_micros(site.latency_micros));
        let meets = self.meets_file(sending.request, sending.chunk, span);
        if meets {
            let send = (depot, sending.request, sending.chunk, sending.fragment);
            self.tell_after(span, taken_back(send));
        }
        meets
    }

    pub(super) fn leave_out(&mut self, request: RequestId) {
        let is_new = self.omissions.left_out.insert(request);
        let found = self.checkers.releases.on_left_out(request, is_new);
        self.checkers.note(self.now, found);
    }

    /// Discards what depots hold of a chunk.
    pub(super) fn renew(&mut self, request: RequestId, chunk: ChunkIndex) {
        self.omissions.renewed.insert((request, chunk));
        let piece = self.bytes_of(request, chunk, FragmentIndex::new(0));
        let whole = self.bytes_of(request, chunk, FragmentIndex::WHOLE);
        let spec = self.world.specs.get(&request);
        let destinations = spec.map_or_else(Vec::new, |spec| spec.destinations.clone());
        for site in &mut self.world.sites {
            let is_destination = destinations.contains(&site.id);
            let each = if is_destination { whole } else { piece };
            site.take_back(request, chunk, each);
        }
        // Answers in flight are about the old version of the chunk. The service recognizes that by
        // their digests.
        for pending in self.queue.values_mut() {
            if let Pending::Tell { input, .. } = pending
                && let Some((send, true)) = answered(input)
                && (send.1, send.2) == (request, chunk)
            {
                *input = taken_back(send);
            }
        }
    }
}
