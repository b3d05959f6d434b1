use posthaste_types::{ByteRate, Bytes, DepotId};

use crate::{
    apply,
    contract::{Command, DepotState, Happening, Outbox, Reason},
    state,
    state::{Answer, State},
};

/// Handles a depot that answered. One that was lost is asked what it still holds before it is
/// fed.
pub(crate) fn on_depot_up(
    state: &mut State,
    id: DepotId,
    free: Bytes,
    rate_max: Option<ByteRate>,
    out: &mut Outbox,
) {
    let now = state.now;
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let before = depot.state;
    if before == DepotState::Down {
        if now < depot.hold_until {
            depot.answered = Some(Answer { free, rate_max });
            return;
        }
        apply::spaces::doubt_space(state, id);
    }
    // The depot does not report space that it keeps for us as free.
    let free = free + state::space_left::spare_at(state, id);
    let settings = &state.settings;
    let Some(depot) = state.depots.get_mut(&id) else {
        return;
    };
    let had_space = depot.free;
    depot.state = DepotState::Up;
    depot.is_away = false;
    depot.answered = None;
    depot.free = free;
    depot.link.set_advert(now, rate_max, settings);
    if before == DepotState::Up {
        apply::spaces::reconsider_space(state, id);
        if free > had_space {
            apply::depots::unpark_all(state, id);
        }
        return;
    }
    if before == DepotState::Down {
        apply::tell::tell(
            state,
            out,
            None,
            Some(id),
            Happening::DepotUp,
            Reason::DepotBack,
        );
    }
    apply::reindex::bring_up_to_date(state);
    for request in state.index.users(id) {
        if before == DepotState::Down {
            apply::depots::remember_back(state, request, id);
        }
        apply::depots::ask_if_used(state, request, id, Reason::DepotBack, out);
        apply::fan_out::fill_fan_out(state, request, out);
    }
    apply::stage_in::near::ask_near(state, id, out);
    if !out.commands.iter().any(|command| is_asked(command, id)) {
        // It held nothing to lose.
        apply::redundancy::judge_loss(state, id, true);
    }
    apply::depots::unpark_all(state, id);
    state::wake::look_now(state);
}

/// Accepts a depot again that answered while at rest, once that time is over.
pub(crate) fn take_back_depot(state: &mut State, id: DepotId, out: &mut Outbox) {
    let depot = state.depots.get(&id);
    let is_due = depot.filter(|depot| depot.hold_until <= state.now);
    if let Some(answer) = is_due.and_then(|depot| depot.answered.clone()) {
        on_depot_up(state, id, answer.free, answer.rate_max, out);
    }
}

fn is_asked(command: &Command, of: DepotId) -> bool {
    matches!(command, Command::Inventory { depot, .. } if *depot == of)
}
