use posthaste_plan::horizon::Schedule;

use crate::{Mind, contract::Outbox};

impl Mind {
    /// Handles a plan over time, or that there is none. Only the last one asked for counts: the
    /// books have changed since others.
    pub(crate) fn on_plan_solved(
        &mut self,
        number: u64,
        schedule: Option<&Schedule>,
        out: &mut Outbox,
    ) {
        self.take_plan(number, schedule, out);
    }
}
