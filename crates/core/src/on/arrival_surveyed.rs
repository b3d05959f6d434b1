use posthaste_types::{ChunkIndex, RequestId};

use crate::Mind;

impl Mind {
    /// Records which chunks of a stage-in are durably here.
    pub(crate) fn on_arrival_surveyed(&mut self, id: RequestId, chunks: &[ChunkIndex]) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        if arrival.asked_at.take().is_none() || !arrival.state.is_live() {
            return;
        }
        arrival.found(chunks.iter().map(|chunk| chunk.get()));
        self.look_at_arrivals_now();
    }
}
