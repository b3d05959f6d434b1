use posthaste_core::contract::{RequestState, RequestView};
use posthaste_types::Timestamp;

use super::{Found, ensure};

pub(super) const NAME: &str = "progress in bounded steps";

/// Steps in a row allowed at one moment without new input to the mind.
const IDLE_STEPS_MAX: u32 = 3;
/// Steps allowed for each input, and for each virtual second: one tick and its alarms.
const STEPS_PER_INPUT: u64 = 2;
const STEPS_PER_SECOND: u64 = 20;

/// Checker that the mind neither spins nor stalls, and that it finishes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    steps: u64,
    inputs: u64,
    last: Option<Timestamp>,
    idle_steps: u32,
}

impl Progress {
    pub(crate) fn on_step(
        &mut self,
        now: Timestamp,
        inputs: usize,
        wakeup: Option<Timestamp>,
        is_busy: bool,
    ) -> Result<(), Found> {
        self.steps += 1;
        self.inputs += inputs as u64;
        let is_idle = inputs == 0 && self.last == Some(now);
        self.idle_steps = if is_idle { self.idle_steps + 1 } else { 0 };
        self.last = Some(now);
        ensure(NAME, self.idle_steps <= IDLE_STEPS_MAX, || {
            format!("{} steps at {now} with nothing new", self.idle_steps)
        })?;
        ensure(NAME, !is_busy || wakeup.is_some(), || {
            String::from("requests move and the mind never wants to be woken")
        })
    }

    pub(crate) fn at_end(&self, from: Timestamp, to: Timestamp) -> Result<(), Found> {
        let seconds = to.since(from).as_secs() + 1;
        let most = self.inputs * STEPS_PER_INPUT + seconds * STEPS_PER_SECOND;
        ensure(NAME, self.steps <= most, || {
            format!(
                "{} steps for {} inputs in {seconds} s",
                self.steps, self.inputs
            )
        })
    }

    /// Checks that a request ended if the remaining depots permit it.
    pub(crate) fn ended(view: &RequestView, is_possible: bool) -> Result<(), Found> {
        let is_ended = match view.state {
            RequestState::Moving => view.paused.is_some(),
            RequestState::Safe
            | RequestState::Refused
            | RequestState::Released
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => true,
        };
        ensure(NAME, is_ended || !is_possible, || {
            let all = view.spec.chunks();
            format!(
                "{} still moves, {} of {all} chunks safe",
                view.request, view.chunks_safe
            )
        })
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mind_that_spins_or_falls_asleep_is_caught() {
        let now = Timestamp::from_secs(1);
        let mut progress = Progress::default();
        for _ in 0..4 {
            assert!(progress.on_step(now, 0, Some(now), true).is_ok());
        }
        assert!(progress.on_step(now, 0, Some(now), true).is_err());
        assert!(Progress::default().on_step(now, 1, None, true).is_err());
        assert!(Progress::default().on_step(now, 1, None, false).is_ok());
        let busy = Progress {
            steps: 1000,
            ..Progress::default()
        };
        assert!(busy.at_end(now, now).is_err());
    }
}
