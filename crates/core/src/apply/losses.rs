//! Depots that are lost, and what was on them.

use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{
    apply,
    contract::{Cause, Command, DepotState, Fault, Happening, Outbox, Reason, RequestState},
    decide::dispatch::patience::{backoff, is_lasting},
    state,
    state::State,
};

/// Lets the depot rest, or declares it lost when it keeps failing. `since` is when the failed
/// operation began.
pub(crate) fn blame(
    state: &mut State,
    id: RequestId,
    at: DepotId,
    since: Timestamp,
    fault: Fault,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(depot) = state.depots.get_mut(&at).filter(|depot| depot.is_up()) else {
        return;
    };
    if fault == Fault::Unreachable && depot.fork.broke_before(since, now) {
        return;
    }
    depot.failures += 1;
    depot.resume_at = now + backoff(&state.settings, depot.failures);
    if fault == Fault::Full {
        depot.free = Bytes::ZERO;
    }
    let most = match fault {
        Fault::Unreachable => state.settings.unreachable_max,
        // The depot itself reports when there is space again.
        Fault::Full => u32::MAX,
        // No depot is to blame, and all are as good as before.
        Fault::SourceStalled => u32::MAX,
        _ if is_lasting(fault) => 1,
        Fault::Unauthenticated
        | Fault::Corrupt
        | Fault::Busy
        | Fault::SourceChanged
        | Fault::SourceVanished
        | Fault::SourceUnreadable
        | Fault::Unremovable
        | Fault::SourceBusy
        | Fault::SourcesDiffer
        | Fault::Unwritable
        | Fault::NamesMeet
        | Fault::Other => state.settings.failures_max,
    };
    let (attempts, name) = (depot.failures, depot.name.clone());
    if attempts >= most {
        lose_to_failures(state, at, Reason::GaveUp { fault, attempts }, fault, out);
    } else {
        let reason = Reason::Retry {
            fault,
            attempt: attempts + 1,
        };
        state::memory::remember_of(state, id, name, 1, "a send is tried again".into(), reason);
    }
}

/// Time after its rest after which a depot counts as good as new.
pub(crate) const STEADY: Duration = Duration::from_secs(60);

/// Lets a depot go as its hours say: nothing is lost with it.
pub(crate) fn let_go(state: &mut State, id: DepotId, out: &mut Outbox) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    (depot.state, depot.is_away) = (DepotState::Down, true);
    (depot.answered, depot.failures) = (None, 0);
    apply::tell::tell(
        state,
        out,
        None,
        Some(id),
        Happening::DepotDown,
        Reason::OutsideHours,
    );
    apply::plan_over_time::follow::unplan(state);
    apply::reindex::bring_up_to_date(state);
    for request in state.index.users(id) {
        state::memory::blame_for(state, request, Cause::Hours, Some(id));
        if apply::flights::end_flights(state, id, Some(request)) > 0 {
            let reason = Reason::OutsideHours;
            out.commands.push(Command::Abandon {
                request,
                depot: id,
                reason,
            });
        }
        apply::fan_out::fill_fan_out(state, request, out);
    }
    apply::push::failures::abandon_pushes_from(state, id, &Reason::OutsideHours, out);
    state::wake::look_now(state);
}

/// Declares a depot lost to which sends keep failing though it answers.
pub(crate) fn lose_to_failures(
    state: &mut State,
    id: DepotId,
    reason: Reason,
    fault: Fault,
    out: &mut Outbox,
) {
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    depot.fruitless += 1;
    let hold = if is_lasting(fault) { 4 } else { 1 };
    lose(state, id, reason, hold, out);
}

/// Declares the depot lost: flights to it are sent elsewhere, and what it holds no longer
/// counts.
pub(crate) fn lose(
    state: &mut State,
    id: DepotId,
    reason: Reason,
    hold_factor: u32,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let is_steady = depot.hold_until + STEADY <= now;
    depot.losses = if is_steady { 1 } else { depot.losses + 1 };
    let hold = state.settings.hold * hold_factor * (1 << depot.losses.saturating_sub(1).min(8));
    depot.hold_until = now + hold.min(state.settings.hold_max);
    if !depot.is_down() {
        depot.down_since = now;
    }
    (depot.state, depot.is_away) = (DepotState::Down, false);
    depot.history.on_lost(now);
    depot.answered = None;
    depot.failures = 0;
    apply::spares::judge_rest(state);
    apply::tell::tell(
        state,
        out,
        None,
        Some(id),
        Happening::DepotDown,
        reason.clone(),
    );
    drop_depot(state, id, &reason, out);
}

/// Forgets flights to the depot and stops counting what it holds.
pub(crate) fn drop_depot(state: &mut State, id: DepotId, reason: &Reason, out: &mut Outbox) {
    apply::plan_over_time::follow::unplan(state);
    apply::reindex::bring_up_to_date(state);
    for request in state.index.users(id) {
        let ended = apply::flights::end_flights(state, id, Some(request));
        if ended > 0 {
            let reason = reason.clone();
            out.commands.push(Command::Abandon {
                request,
                depot: id,
                reason,
            });
        }
        let (down, ended) = (
            Happening::DepotDown,
            u32::try_from(ended).unwrap_or(u32::MAX),
        );
        state::memory::remember_depot(state, request, id, down, reason.clone(), ended);
        state::memory::blame_for(state, request, Cause::Loss, Some(id));
        lose_for(state, request, id, out);
    }
    apply::push::failures::abandon_pushes_from(state, id, reason, out);
    state::wake::look_now(state);
}

fn lose_for(state: &mut State, id: RequestId, depot: DepotId, out: &mut Outbox) {
    let Some(request) = state.requests.get_mut(&id) else {
        return;
    };
    let Some(lane) = request.lane_of(depot) else {
        return;
    };
    request.lanes[lane].asked_at = None;
    let lost = request.replica.set_live(lane, false);
    if request.lanes[lane].is_used {
        request.uncommon.last_lost = Some(depot);
    }
    apply::stripes::refresh_stripes(state, id);
    apply::push::offers::reset_push(state, id);
    say_lost(state, id, lost, Reason::Repair { lost: depot }, out);
    say_thin(state, id, depot, out);
    apply::fan_out::fill_fan_out(state, id, out);
    apply::settle::settle(state, id, out);
}

/// Reports that data lost with a depot is not rebuilt yet.
fn say_thin(state: &mut State, id: RequestId, depot: DepotId, out: &mut Outbox) {
    let request = state.requests.get(&id);
    let Some(request) = request.filter(|request| request.replica.is_thinned()) else {
        return;
    };
    let had_some = request
        .lane_of(depot)
        .is_some_and(|lane| request.replica.stored(lane).0 > 0);
    let chunks = request.replica.thin();
    if had_some && chunks > 0 {
        let losses = request.replica.survives().unwrap_or(0);
        let reason = Reason::RepairWaits {
            lost: depot,
            losses,
        };
        apply::tell::tell(
            state,
            out,
            Some(id),
            None,
            Happening::Thinned { chunks },
            reason,
        );
    }
}

/// Reports chunks that are no longer safe, and starts again if that can still help.
pub(crate) fn say_lost(
    state: &mut State,
    id: RequestId,
    lost: u32,
    reason: Reason,
    out: &mut Outbox,
) {
    let Some(request) = state.requests.get_mut(&id).filter(|_| lost > 0) else {
        return;
    };
    match request.state {
        RequestState::Moving => {
            apply::tell::tell(
                state,
                out,
                Some(id),
                None,
                Happening::Repairing { chunks: lost },
                reason,
            );
        }
        RequestState::Safe => {
            request.state = RequestState::Moving;
            request.uncommon.duplicates = 0;
            apply::tell::tell(
                state,
                out,
                Some(id),
                None,
                Happening::Unsafe { chunks: lost },
                reason.clone(),
            );
            apply::tell::tell(
                state,
                out,
                Some(id),
                None,
                Happening::Repairing { chunks: lost },
                reason,
            );
        }
        RequestState::Released => {
            request.is_thin = true;
            // What nobody has any more can't be made again.
            let mended = lost.saturating_sub(request.chunks_out_of_reach());
            let unsafe_again = Happening::Unsafe { chunks: lost };
            apply::tell::tell(state, out, Some(id), None, unsafe_again, reason.clone());
            if mended > 0 {
                let repairing = Happening::Repairing { chunks: mended };
                apply::tell::tell(state, out, Some(id), None, repairing, reason);
            }
        }
        RequestState::Refused
        | RequestState::Delivered
        | RequestState::Cancelled
        | RequestState::Failed => {}
    }
}
