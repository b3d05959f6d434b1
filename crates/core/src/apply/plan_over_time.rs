//! Reviews the plan over time, and asks for another.

pub(crate) mod answer;
pub(crate) mod ask;
pub(crate) mod follow;
pub(crate) mod hold;

use core::time::Duration;
use posthaste_plan::horizon::Schedule;

use crate::{
    apply,
    contract::{Outbox, Reason},
    decide,
    decide::review::reason_late,
    state::completion::belief::Belief,
    state::plan_over_time::Asked,
    state::{Depot, State},
};

/// Reviews the plan after a look at everything. It takes back quotas that are no longer needed,
/// or all if the plan is contradicted. It asks for a plan if some request would be late even at
/// p50 and no depot was lost recently. At p10 many a danger passes by itself. If depots fail,
/// the widest spread is best: a plan then costs more deadlines than it keeps.
pub(crate) fn review_plan(state: &mut State, out: &mut Outbox) {
    apply::plan_over_time::follow::lift_quotas(state);
    apply::plan_over_time::follow::doubt_plan(state);
    let planning = &state.planning;
    if planning.asked.is_some()
        || state.now < planning.next_at
        || !decide::plan_over_time::is_plan_allowed(state, 2)
    {
        return;
    }
    let is_shaky = |depot: &Depot| depot.is_common() && depot.is_shaky(state.now);
    if state.depots.values().any(is_shaky) {
        return;
    }
    let late_ticks = state.settings.behind_ticks;
    let mut all = state
        .index
        .after(None)
        .filter(|urgency| !urgency.is_leftover);
    let late = all.find_map(|urgency| {
        let request = state.requests.get(&urgency.request)?;
        let finish = request.finish.map(|finish| finish.p50);
        let is_late = finish.is_none_or(|finish| finish > request.spec.deadline);
        let is_late = is_late && !request.is_paused();
        (is_late && request.late_ticks >= late_ticks).then(|| reason_late(request, state.now))
    });
    drop(all);
    match late {
        Some(reason) => {
            apply::plan_over_time::ask::ask_for_plan(state, None, reason, out);
        }
        None => state.planning.pause = Duration::ZERO,
    }
}

/// Adopts a plan for accepted requests, if it keeps all deadlines that turns keep, and more.
pub(crate) fn replan(state: &mut State, asked: &Asked, schedule: &Schedule) {
    let before = decide::plan_over_time::kept(state, Belief::P50, None, None);
    let kept_before = apply::plan_over_time::follow::follow(state, asked, schedule, None);
    let after = decide::plan_over_time::kept(state, Belief::P50, None, None);
    let keeps_all = before.keys().all(|id| after.contains_key(id));
    if !keeps_all || after.len() <= before.len() {
        apply::plan_over_time::follow::unfollow(state, kept_before);
        apply::plan_over_time::ask::wait_longer(state);
        return;
    }
    let more = u32::try_from(after.len() - before.len()).unwrap_or(u32::MAX);
    apply::plan_over_time::follow::tell_plan(state, &kept_before, &Reason::Rearranged { more });
    state.planning.pause = state.settings.plan_every;
    state.planning.next_at = state.now + state.planning.pause;
}
