use posthaste_types::{ChunkIndex, RequestId, SourceId};

use crate::{
    Mind,
    books::Fetch,
    contract::{Happening, Outbox, Reason},
};

impl Mind {
    /// Handles a chunk that was read from a source, written to its file, and its digest noted. One
    /// that is no longer awaited changes nothing: what is here is asked before anything counts on
    /// it.
    pub(crate) fn on_chunk_arrived(
        &mut self,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
        out: &mut Outbox,
    ) {
        if !self.end_fetch(request, Fetch { chunk, source }) {
            return;
        }
        let now = self.now;
        let is_back = self
            .arrivals
            .sources
            .get_mut(&source)
            .is_some_and(|source| source.succeed(now));
        if let Some(arrival) = self.arrivals.requests.get_mut(&request)
            && arrival.state.is_live()
        {
            arrival.local_failures = 0;
            arrival.wrong.remove(&Fetch { chunk, source });
            if arrival.take(chunk.get()) {
                let bytes = arrival.chunk_bytes(chunk.get());
                if let Some(lane) = arrival.lane_mut(source) {
                    lane.arrived += 1;
                    lane.bytes += bytes;
                }
                self.shares
                    .charge(arrival.claim(), bytes, now, &self.settings);
            }
        }
        if is_back {
            self.say_source_is_back(source, out);
        }
    }

    pub(crate) fn say_source_is_back(&mut self, source: SourceId, out: &mut Outbox) {
        for id in self.arrivals.users(source) {
            let name = self.name_of_source(source);
            let happening = Happening::SourceBack { name };
            self.tell(out, Some(id), None, happening, Reason::GaveAgain);
            self.blame_source(id, source);
        }
        self.look_at_arrivals_now();
    }
}
