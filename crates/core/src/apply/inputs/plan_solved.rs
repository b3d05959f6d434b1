use posthaste_plan::horizon::Schedule;

use crate::{apply, contract::Outbox, state::State};

/// Handles a plan over time, or that there is none. Only the last one asked for counts: the
/// books have changed since others.
pub(crate) fn on_plan_solved(
    state: &mut State,
    number: u64,
    schedule: Option<&Schedule>,
    out: &mut Outbox,
) {
    apply::plan_over_time::answer::take_plan(state, number, schedule, out);
}
