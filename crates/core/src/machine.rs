//! The mind: applies inputs, looks at what time changed, decides, and emits commands.

use alloc::vec::Vec;
use posthaste_types::{Malformed, Record, RequestId, Timestamp};

use crate::{
    Settings, apply,
    contract::{Decision, Input, Outbox},
    state,
    state::State,
};

/// Version of the snapshot layout, at the start of every snapshot.
const SNAPSHOT_VERSION: u32 = 63;

/// Decision maker of one centre.
///
/// Deterministic: the same inputs at the same moments give the same bytes out. A restored mind
/// decides as the one that wrote the snapshot would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mind {
    pub(crate) state: State,
}

impl Mind {
    /// Returns a mind that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let state = State::new(settings);
        Self { state }
    }

    /// Processes inputs until `now` and appends to `out` the resulting commands and events.
    ///
    /// A stored fragment visits each depot of its request; inputs about a whole depot visit each
    /// request and each chunk it holds. Each tick begins a look at everything, which many requests
    /// spread over many steps. A `now` before an earlier one counts as that one.
    pub fn step(&mut self, now: Timestamp, inputs: Vec<Input>, out: &mut Outbox) {
        self.state.now = self.state.now.max(now);
        for input in inputs {
            apply::inputs::take(&mut self.state, input, out);
        }
        apply::reindex::bring_up_to_date(&mut self.state);
        if apply::reindex::find_alarm(&mut self.state).is_some_and(|alarm| alarm <= self.state.now)
        {
            apply::review::on_time(&mut self.state, out);
            apply::reindex::bring_up_to_date(&mut self.state);
        }
        apply::circuits::return_unneeded(&mut self.state, out);
        apply::spaces::give_back_space(&mut self.state, out);
        apply::forget::tell_to_forget(&mut self.state, out);
        apply::dispatch::dispatch(&mut self.state, out);
        apply::push::push_on(&mut self.state, out);
        apply::stage_in::bring_in(&mut self.state, out);
        apply::reindex::forget_oldest(&mut self.state);
        apply::stage_in::forget_oldest_arrivals(&mut self.state);
        state::wake::set_tick(&mut self.state);
        self.state.alarm = apply::reindex::find_alarm(&mut self.state);
    }

    /// Returns when the mind needs its next step, if nothing happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.state.alarm
    }

    /// Returns the whole state of the mind, as bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        SNAPSHOT_VERSION.write(&mut out);
        self.state.write(&mut out);
        out
    }

    /// Restores the mind that wrote the snapshot.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the bytes are no snapshot of this version.
    pub fn restore(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed {
            expected: "snapshot",
        };
        let mut rest = bytes;
        if u32::read(&mut rest)? != SNAPSHOT_VERSION {
            return Err(malformed);
        }
        let mut state = State::from_bytes(rest)?;
        state::memory::share_alike(&mut state);
        if state.is_sound() {
            Ok(Self { state })
        } else {
            Err(malformed)
        }
    }

    /// Returns whether this snapshot has an older, unreadable layout: replaying all inputs rebuilds
    /// it.
    #[must_use]
    pub fn is_outdated(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        u32::read(&mut rest).is_ok_and(|version| version < SNAPSHOT_VERSION)
    }

    /// Returns the request's decisions with reasons, oldest first; none if it is unknown.
    #[must_use]
    pub fn explain(&self, request: RequestId) -> Option<Vec<Decision>> {
        let arrival = self.state.arrivals.requests.get(&request);
        let arrival = arrival.map(|arrival| arrival.decisions.to_vec());
        let request = self.state.requests.get(&request);
        request
            .map(|request| request.decisions.to_vec())
            .or(arrival)
    }
}
