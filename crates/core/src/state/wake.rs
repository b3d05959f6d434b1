//! Timers: the next look at everything.

use crate::state::State;

/// Schedules a look at everything every tick while anything is in progress.
pub(crate) fn set_tick(state: &mut State) {
    let is_busy =
        !state.index.is_idle() || !state.transfers.is_empty() || !state.index.asking().is_empty();
    let is_busy = is_busy || !state.pushes.is_quiet() || state.index.is_watching();
    state.tick_at = if is_busy {
        state.tick_at.or(Some(state.now + state.settings.tick))
    } else {
        None
    };
}

/// Schedules a look at everything within this step, not at the next tick.
pub(crate) fn look_now(state: &mut State) {
    state.tick_at = Some(state.now);
    if let Some(promised) = &mut state.promised {
        promised.is_stale = true;
    }
}

/// Schedules a look at stage-ins within this step.
pub(crate) fn look_at_arrivals_now(state: &mut State) {
    state.arrivals.look_at = Some(state.now);
}
