//! Asks the solver for a plan, and holds newcomers until it answers.

use posthaste_types::RequestId;

use crate::{
    contract::{Command, Outbox, Reason},
    decide,
    state::plan_over_time::Asked,
    state::{Request, State},
};

/// Asks for a plan, with a newcomer or without. Returns whether there was anything to ask.
pub(crate) fn ask_for_plan(
    state: &mut State,
    newcomer: Option<(RequestId, &Request)>,
    reason: Reason,
    out: &mut Outbox,
) -> bool {
    let Some(asked) = decide::plan_over_time::draw::draw(state, newcomer) else {
        wait_longer(state);
        return false;
    };
    state.planning.number += 1;
    out.commands.push(Command::Solve {
        number: state.planning.number,
        problem: asked.problem.clone(),
        effort: state.settings.plan_effort,
        reason,
    });
    state.planning.asked = Some(asked);
    true
}

/// Doubles the pause, as the last plan gained nothing.
pub(crate) fn wait_longer(state: &mut State) {
    let (least, most) = (state.settings.plan_every, state.settings.plan_every_max);
    let pause = state.planning.pause;
    state.planning.pause = (pause * 2).clamp(least, most);
    state.planning.next_at = state.now + state.planning.pause;
}

/// Holds the answer to a newcomer that turns would refuse, if a plan could accept it. Others
/// must be in its way, and without them it would be on time. Returns it if not.
pub(crate) fn hold(
    state: &mut State,
    id: RequestId,
    request: Request,
    reason: &Reason,
    out: &mut Outbox,
) -> Option<Request> {
    // If space is missing, plans were found to promise more than they kept.
    let is_crowded_out = matches!(reason, Reason::Infeasible { .. });
    let has_time = request.spec.deadline.since(state.now) > state.settings.plan_wait * 2;
    let has_room = state.planning.held.len() < state.settings.plan_held_max as usize;
    let may_wait =
        is_crowded_out && has_time && has_room && decide::plan_over_time::is_plan_allowed(state, 1);
    if !may_wait || !decide::plan_over_time::hold::fits_alone(state, &request) {
        return Some(request);
    }
    let waits_for_another = |asked: &Asked| asked.newcomer.is_some();
    if !state.planning.asked.as_ref().is_some_and(waits_for_another)
        && !ask_for_plan(state, Some((id, &request)), reason.clone(), out)
    {
        return Some(request);
    }
    state.planning.held.insert(id, request);
    None
}
