use alloc::string::String;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, SourceId};

use crate::{contract::Reason, state, state::State};

/// Handles a measurement of what a source gave.
pub(crate) fn on_inbound(
    state: &mut State,
    id: SourceId,
    bytes: Bytes,
    window: Duration,
    saturated: bool,
) {
    let (now, settings) = (state.now, &state.settings);
    let Some(source) = state.arrivals.sources.get_mut(&id) else {
        return;
    };
    if window.is_zero() {
        return;
    }
    if bytes > Bytes::ZERO {
        source.link.progress_at = now;
    }
    let rate = ByteRate::over(bytes, window);
    let saturated = saturated && source.link.shows_rate(bytes);
    let moved = source.link.observe(now, rate, saturated, settings);
    if let Some((from, to)) = moved {
        let name = source.name.clone();
        for request in state.arrivals.users(id) {
            let reason = Reason::RateMoved { from, to };
            let what = String::from("forecast moved");
            state::memory::remember_of(state, request, name.clone(), 0, what, reason);
        }
    }
}
