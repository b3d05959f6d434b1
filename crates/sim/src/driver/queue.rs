//! Queue of what happens later in the model world.

use std::time::Duration;

use posthaste_core::contract::Input;
use posthaste_types::RequestId;

use super::{Pending, Run, is_routine};

impl Run<'_> {
    pub(super) fn after(&mut self, span: Duration, pending: Pending) {
        self.upcoming += usize::from(!is_routine(&pending));
        self.sequence += 1;
        self.queue.insert((self.now + span, self.sequence), pending);
    }

    pub(super) fn tell_after(&mut self, span: Duration, input: Input) {
        let epoch = self.epoch;
        self.after(span, Pending::Tell { epoch, input });
    }

    /// Queues a user's pause of a request, and its resumption.
    pub(super) fn queue_pause(
        &mut self,
        request: RequestId,
        paused_at: Option<Duration>,
        resumed_at: Option<Duration>,
    ) {
        let by = || String::from("ada");
        if let Some(at) = paused_at {
            let input = Input::Paused { request, by: by() };
            self.after(at, Pending::Ask { input });
        }
        if let Some(at) = resumed_at {
            let input = Input::Resumed { request, by: by() };
            self.after(at, Pending::Ask { input });
        }
    }
}
