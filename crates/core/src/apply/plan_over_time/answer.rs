//! Answers requests that waited for a plan.

use posthaste_plan::horizon::Schedule;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Outbox, Reason},
    decide,
    decide::plan_over_time::follow::{Way, give_quotas},
    state,
    state::State,
    state::completion::belief::Belief,
    state::plan_over_time::Asked,
};

/// Handles the answer to the plan asked for last; answers to others come too late.
pub(crate) fn take_plan(
    state: &mut State,
    number: u64,
    schedule: Option<&Schedule>,
    out: &mut Outbox,
) {
    if number == state.planning.number
        && let Some(asked) = state.planning.asked.take()
    {
        let schedule = schedule.filter(|schedule| schedule.check(&asked.problem).is_ok());
        end_asking(state, &asked, schedule, out);
    }
}

/// Gives up waiting for a plan that did not come.
pub(crate) fn give_up_plan(state: &mut State, out: &mut Outbox) {
    let wait = state.settings.plan_wait;
    let overdue = |asked: &mut Asked| asked.at + wait <= state.now;
    if let Some(asked) = state.planning.asked.take_if(overdue) {
        end_asking(state, &asked, None, out);
    }
}

/// Asks again for a plan after a restart of the driver, which lost it, if an answer waits.
pub(crate) fn ask_for_plan_again(state: &mut State, out: &mut Outbox) {
    state.planning.asked = None;
    answer_held(state, out);
}

fn end_asking(state: &mut State, asked: &Asked, schedule: Option<&Schedule>, out: &mut Outbox) {
    match (asked.newcomer, schedule) {
        (Some(id), schedule) => answer_newcomer(state, id, asked, schedule, out),
        (None, Some(schedule)) => apply::plan_over_time::replan(state, asked, schedule),
        (None, None) => apply::plan_over_time::ask::wait_longer(state),
    }
    answer_held(state, out);
}

/// Answers newcomers for which no plan is in progress any more. Each is weighed again, and
/// waits for a plan of its own if that refuses it.
fn answer_held(state: &mut State, out: &mut Outbox) {
    while state.planning.asked.is_none()
        && let Some((id, request)) = state.planning.held.pop_first()
    {
        apply::admission::answer(state, id, request, true, out);
    }
}

/// Answers the newcomer for which a plan was asked. It is accepted if the plan keeps its
/// deadline and all that are kept without, otherwise judged as if no plan had been asked for.
fn answer_newcomer(
    state: &mut State,
    id: RequestId,
    asked: &Asked,
    schedule: Option<&Schedule>,
    out: &mut Outbox,
) {
    let Some(mut request) = state.planning.held.remove(&id) else {
        return;
    };
    let place = asked.demands.iter().position(|drawn| drawn.request == id);
    let kept = place.zip(schedule).filter(|&(place, schedule)| {
        schedule.shortfalls[place].is_none() && request.spec.deadline > state.now
    });
    let Some((place, schedule)) = kept else {
        apply::admission::answer(state, id, request, false, out);
        return;
    };
    let (belief, was) = (Belief::Hopeful, Way::of(&request));
    let before = decide::plan_over_time::kept(state, belief, None, None);
    let fed_before = apply::plan_over_time::follow::follow(state, asked, schedule, Some(id));
    let pieces = asked.pieces(schedule, place, &request);
    give_quotas(&mut request, &pieces);
    let after = decide::plan_over_time::kept(state, belief, Some((id, &request)), None);
    let keeps_all = before.keys().all(|id| after.contains_key(id));
    let Some(&finish) = after.get(&id).filter(|_| keeps_all) else {
        apply::plan_over_time::follow::unfollow(state, fed_before);
        was.put_back(&mut request);
        apply::admission::answer(state, id, request, false, out);
        return;
    };
    let deadline = request.spec.deadline;
    let others = apply::plan_over_time::follow::tell_plan(
        state,
        &fed_before,
        &Reason::Rearranged { more: 1 },
    );
    let reason = Reason::Planned {
        finish,
        deadline,
        others,
    };
    let what = decide::plan_over_time::follow::shares_of(state, &request);
    state.planning.in_force.insert(id);
    apply::admission::take_planned(state, id, request, finish, reason, out);
    state::memory::remember(state, id, what, Reason::Rearranged { more: 1 });
}
