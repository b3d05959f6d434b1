use posthaste_plan::horizon::Schedule;

use crate::{Mind, contract::Outbox};

impl Mind {
    /// A plan over time was found, or there is none. One that was not asked for last is ignored: the books
    /// have changed since.
    pub(crate) fn on_plan_solved(
        &mut self,
        number: u64,
        schedule: Option<&Schedule>,
        out: &mut Outbox,
    ) {
        self.take_plan(number, schedule, out);
    }
}
