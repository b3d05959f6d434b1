//! Passage of time for stage-ins: danger, misses, and sources for which no stage-in waits any
//! longer.

use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, RequestId, SourceId, Timestamp};

use crate::{
    apply,
    contract::{ArrivalState, Cause, Command, Fault, Happening, Outbox, Reason},
    decide, state,
    state::{Arrival, State},
};

/// Longest time until a waiting stage-in is reviewed again: forecasts age, and latest starts with
/// them.
const AGED_AFTER: Duration = Duration::from_secs(60);

/// Most consecutive refusals of the destination that endanger no deadline.
const REFUSALS_MAX: u32 = 2;

pub(crate) fn review_arrivals(state: &mut State, out: &mut Outbox) {
    for id in state.arrivals.in_turn() {
        ask_again_what_is_here(state, id, out);
        say_missed(state, id, out);
        review_arrival_risk(state, id, out);
        apply::stage_in::near::leave_hopeless_near(state, id);
        give_up_if_no_source(state, id, out);
    }
}

/// Asks again for a list of chunks here that was not answered.
fn ask_again_what_is_here(state: &mut State, id: RequestId, out: &mut Outbox) {
    let (now, wait) = (state.now, state.settings.inventory_wait);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    if let Some(asked_at) = &mut arrival.asked_at
        && *asked_at + wait <= now
    {
        *asked_at = now;
        out.commands.push(Command::Survey {
            request: id,
            reason: Reason::Restarted,
        });
    }
}

fn say_missed(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let spent = decide::stage_in::budget::budget_spent(state, id);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    let deadline = arrival.spec.deadline;
    if !arrival.state.is_live() || arrival.missed || deadline > now {
        return;
    }
    arrival.missed = true;
    arrival.is_leftover = true;
    let reason = spent.unwrap_or_else(|| reason_late(arrival, now));
    apply::tell::tell(state, out, Some(id), None, Happening::Missed, reason);
    state::wake::look_at_arrivals_now(state);
}

fn review_arrival_risk(state: &mut State, id: RequestId, out: &mut Outbox) {
    let (now, settings) = (state.now, &state.settings);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    if arrival.missed || !arrival.state.is_live() {
        return;
    }
    let deadline = arrival.spec.deadline;
    let finish = arrival.finish.map(|finish| finish.p90);
    // One refusal may pass; if all is refused again and again, no forecast counts.
    let is_refused = arrival.local_failures >= REFUSALS_MAX;
    let is_late = is_refused || finish.is_none_or(|finish| finish > deadline);
    let is_clear =
        !is_refused && finish.is_some_and(|finish| finish + deadline.since(now) / 20 <= deadline);
    arrival.late_ticks = if is_late { arrival.late_ticks + 1 } else { 0 };
    arrival.on_time_ticks = if is_clear {
        arrival.on_time_ticks + 1
    } else {
        0
    };
    // Just before the deadline there may be no time for a second look.
    let is_last_call = deadline - settings.tick <= now;
    let is_sure = arrival.late_ticks >= settings.behind_ticks || is_last_call;
    if !arrival.at_risk && ((is_late && is_sure) || is_last_call) {
        say_arrival_at_risk(state, id, out);
    } else if arrival.at_risk && !is_last_call && arrival.on_time_ticks >= settings.recovered_ticks
    {
        arrival.at_risk = false;
        let finish = finish.unwrap_or(deadline);
        let reason = Reason::InboundSuffices { finish, deadline };
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::OnTime { finish },
            reason,
        );
    }
}

pub(crate) fn say_arrival_at_risk(state: &mut State, id: RequestId, out: &mut Outbox) {
    let now = state.now;
    let spent = decide::stage_in::budget::budget_spent(state, id);
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    arrival.at_risk = true;
    arrival.on_time_ticks = 0;
    let reason = spent.unwrap_or_else(|| reason_late(arrival, now));
    let finish = arrival
        .finish
        .map_or(Happening::NO_FINISH, |finish| finish.p90.max(now));
    apply::tell::tell(
        state,
        out,
        Some(id),
        None,
        Happening::AtRisk { finish },
        reason,
    );
}

/// Moves the deadline: everything about it is judged anew.
pub(crate) fn move_deadline_of_arrival(
    state: &mut State,
    id: RequestId,
    deadline: Timestamp,
    out: &mut Outbox,
) {
    let now = state.now;
    let live = state.arrivals.requests.get_mut(&id);
    let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    let from = core::mem::replace(&mut arrival.spec.deadline, deadline);
    if deadline > now {
        arrival.missed = false;
        arrival.is_leftover = false;
    }
    let reason = Reason::NewDeadline { from, to: deadline };
    state::memory::remember(state, id, "deadline moved".into(), reason);
    apply::stage_in::outlook::look_at_arrivals(state);
    let arrival = state.arrivals.requests.get(&id);
    let is_late = arrival.is_some_and(|arrival| {
        let finish = arrival.finish;
        !arrival.at_risk && finish.is_some_and(|finish| finish.p90 > deadline)
    });
    if is_late {
        say_arrival_at_risk(state, id, out);
    }
    state::wake::look_at_arrivals_now(state);
}

/// Sets the user's limit on the rate of reads for a stage-in.
pub(crate) fn limit_arrival(state: &mut State, id: RequestId, to: Option<ByteRate>) {
    let now = state.now;
    let live = state.arrivals.requests.get_mut(&id);
    let Some(arrival) = live.filter(|arrival| arrival.state.is_live()) else {
        return;
    };
    let from = core::mem::replace(&mut arrival.spec.rate_max, to);
    arrival.paced_until = now;
    arrival.account.blame(Cause::Course, None);
    state::memory::remember(
        state,
        id,
        "limit changed".into(),
        Reason::NewLimit { from, to },
    );
    state::wake::look_at_arrivals_now(state);
}

/// Handles a (re)start of the driver: chunks on their way were lost, and it asks which are
/// here.
pub(crate) fn ask_what_is_here(state: &mut State, out: &mut Outbox) {
    let now = state.now;
    let sources: alloc::vec::Vec<_> = state.arrivals.sources.keys().copied().collect();
    for source in sources {
        apply::stage_in::fetches::end_fetches(state, source, None);
        if let Some(source) = state.arrivals.sources.get_mut(&source) {
            source.forgive();
        }
    }
    for id in state.arrivals.in_turn() {
        let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
            continue;
        };
        if arrival.state == ArrivalState::Landing {
            arrival.state = ArrivalState::Moving;
        }
        arrival.asked_at = Some(now);
        (arrival.held_until, arrival.paced_until) = (now, now);
        out.commands.push(Command::Survey {
            request: id,
            reason: Reason::Restarted,
        });
    }
    state::wake::look_at_arrivals_now(state);
}

/// Ends a stage-in that no source can ever serve.
fn give_up_if_no_source(state: &mut State, id: RequestId, out: &mut Outbox) {
    let Some(arrival) = state.arrivals.requests.get(&id) else {
        return;
    };
    let gives = |id: &SourceId| {
        let source = state.arrivals.sources.get(id);
        source.is_some_and(|source| !source.is_hopeless(&state.settings))
    };
    let mut held = arrival.held.iter().enumerate();
    let lost = held
        .find(|(place, held)| arrival.far(*place) > Bytes::ZERO && !held.sources.iter().any(gives));
    let lost = lost.map(|(_, held)| held);
    let Some(lost) = lost.filter(|_| arrival.state.is_live()) else {
        return;
    };
    let fault = arrival.last_fault.unwrap_or(Fault::Unreachable);
    let mut others = arrival.lanes.iter().filter(|lane| !lane.is_gone);
    let reason = if others.any(|lane| gives(&lane.source)) {
        let bytes = lost.missing;
        Reason::HeldNowhere { bytes, fault }
    } else {
        Reason::NoSourceLeft { fault }
    };
    apply::stage_in::ending::end_arrival(state, id, ArrivalState::Failed, reason, out);
}

/// Schedules the next look: every tick while something moves; for waiting stage-ins, when
/// needed.
pub(crate) fn set_next_look(state: &mut State) {
    let (now, tick) = (state.now, state.settings.tick);
    let next = |(_, arrival): (&RequestId, &Arrival)| {
        let is_quiet = !arrival.is_due
            && arrival.fetches.is_empty()
            && !arrival.may_read()
            && arrival.prestages.is_empty()
            && arrival.asked_at.is_none()
            && arrival.finish.is_some()
            && !arrival.at_risk
            && arrival.late_ticks == 0;
        if !is_quiet {
            return now + tick;
        }
        let spec = &arrival.spec;
        let call = spec.deadline - tick;
        let times = [
            arrival.begin_by,
            spec.not_before,
            Some(call),
            Some(spec.deadline),
        ];
        let next = times.into_iter().flatten().filter(|at| *at > now).min();
        next.unwrap_or(now + tick).min(now + AGED_AFTER)
    };
    let next = state.arrivals.live().map(next).min();
    let last_call = state.arrivals.live().flat_map(|(_, arrival)| {
        let deadline = arrival.spec.deadline;
        [deadline - tick, deadline]
    });
    let last_call = last_call.filter(|at| *at > now).min();
    let planned = state.arrivals.look_at.filter(|at| *at > now);
    state.arrivals.look_at = next.map(|next| {
        let next = last_call.map_or(next, |call| call.min(next));
        planned.map_or(next, |planned| planned.min(next))
    });
}

/// Returns why a stage-in is late.
fn reason_late(arrival: &Arrival, now: Timestamp) -> Reason {
    let deadline = arrival.spec.deadline;
    let finish = arrival.finish.map(|finish| finish.p90.max(now));
    if let Some(pause) = arrival.pause() {
        return pause.late(finish, deadline);
    }
    if arrival.local_failures > 0
        && let Some(refusal) = arrival.refusal()
    {
        return refusal;
    }
    if let Some(binding) = &arrival.binding
        && finish.is_none_or(|finish| finish > deadline)
    {
        return Reason::OnlyThere {
            binding: binding.clone(),
            finish,
            deadline,
            would_buy: alloc::vec::Vec::new(),
        };
    }
    match arrival.finish {
        Some(finish) if finish.p90 <= deadline && now < deadline => Reason::InboundThin {
            finish: finish.p90,
            deadline,
        },
        Some(finish) => Reason::InboundLate {
            finish: finish.p90.max(now),
            deadline,
        },
        None => Reason::Infeasible {
            earliest: None,
            deadline,
            would_buy: alloc::vec::Vec::new(),
        },
    }
}
