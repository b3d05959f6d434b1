//! A wall clock that is robust against a wrong setting for a while.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// Largest correction of the wall clock that is followed. A larger one is a mistake: followed, it
/// would put deadlines into the past and end the time for which data is kept, for good.
const STEP_MAX: Duration = Duration::from_secs(10);

/// A clock that starts at the wall clock and goes on as fast as time passes. It follows small
/// corrections, ignores large steps and never runs backwards.
#[derive(Debug)]
pub struct SteadyClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Wall clock and time since the machine started, at their last agreement.
    agreed: Option<(Duration, Duration)>,
    latest: Duration,
    /// Set once an ignored step was reported.
    is_told: bool,
}

/// An ignored step of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// True for ahead, false for back.
    pub ahead: bool,
    /// Size of the jump.
    pub by: Duration,
}

impl State {
    const NEW: Self = Self {
        agreed: None,
        latest: Duration::ZERO,
        is_told: false,
    };

    /// Returns the time, given the wall clock `wall` since the epoch and the machine's uptime `up`,
    /// and a step that was not reported yet.
    fn read(&mut self, wall: Duration, up: Duration) -> (Duration, Option<Step>) {
        let (was, since) = *self.agreed.get_or_insert((wall, up));
        let expected = was + up.saturating_sub(since);
        let by = wall.abs_diff(expected);
        let step = (by > STEP_MAX).then(|| Step {
            ahead: wall > expected,
            by,
        });
        let now = match &step {
            None => {
                self.agreed = Some((wall, up));
                self.is_told = false;
                wall
            }
            Some(_) => expected,
        };
        self.latest = now.max(self.latest);
        let news = step.filter(|_| !std::mem::replace(&mut self.is_told, true));
        (self.latest, news)
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl SteadyClock {
    /// Returns a clock that has not been read.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State::NEW),
        }
    }

    /// Returns the time since the Unix epoch, never before a time returned earlier, and each
    /// ignored step once.
    pub fn read(&self) -> (Duration, Option<Step>) {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        // `Boottime` goes on while the machine sleeps.
        let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or(Duration::ZERO);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.read(wall, up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_large_step_is_told_and_not_taken() {
        let mut state = State::NEW;
        assert_eq!(state.read(s(1000), s(50)), (s(1000), None));
        // A year ahead for four seconds.
        let year = 31_536_000;
        let ahead = Some(Step {
            ahead: true,
            by: s(year),
        });
        assert_eq!(state.read(s(1001 + year), s(51)), (s(1001), ahead));
        assert_eq!(state.read(s(1004 + year), s(54)), (s(1004), None));
        assert_eq!(state.read(s(1005), s(55)), (s(1005), None));
        let back = Some(Step {
            ahead: false,
            by: s(900),
        });
        assert_eq!(state.read(s(106), s(56)), (s(1006), back));
    }

    #[test]
    fn small_corrections_are_followed_and_never_backwards() {
        let mut state = State::NEW;
        state.read(s(1000), s(50));
        assert_eq!(state.read(s(1009), s(51)).0, s(1009));
        assert_eq!(state.read(s(1003), s(52)).0, s(1009));
        assert_eq!(state.read(s(1018), s(62)).0, s(1018));
        // The machine slept.
        assert_eq!(state.read(s(9018), s(8062)).0, s(9018));
    }
}
