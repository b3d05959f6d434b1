//! The one place of the service that reads the clock.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tracing::error;

use crate::render;

/// Most that the wall clock is set right at once. More is a mistake of somebody or something: taken, it would put deadlines into the
/// past, for good.
const STEP_MAX: Duration = Duration::from_secs(10);

/// The wall clock as it was at the start, which goes on as fast as time passes. It follows small corrections, takes no large step and
/// never runs backwards.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Wall clock and time since the machine started, when they agreed last.
    agreed: Option<(Duration, Duration)>,
    latest: Duration,
    /// A step that is not taken was told.
    is_told: bool,
}

/// A step of the wall clock that is not taken.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    ahead: bool,
    by: Duration,
}

impl State {
    /// The time, where the wall clock says `wall` since the epoch and the machine has run for `up`; and a step that was not told yet.
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

impl Clock {
    /// The time now, not before any time given earlier.
    pub(crate) fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        // It goes on while the machine sleeps.
        let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or(Duration::ZERO);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, step) = state.read(wall, up);
        drop(state);
        if let Some(Step { ahead, by }) = step {
            let way = if ahead { "ahead" } else { "back" };
            let seconds = by.as_secs();
            error!(
                "the clock of this machine stepped {seconds} s {way}, which is not taken: set it right, or restart posthaste to go by it"
            );
        }
        Timestamp::from_micros(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Most that a journal may be ahead of this machine's clock: hosts that share one differ by less.
const AHEAD_MAX: Duration = Duration::from_secs(600);

/// Fails where the journal goes on until later than now: all that is submitted would count as late until then.
pub(crate) fn check_journal(known: Timestamp, now: Timestamp) -> Result<()> {
    if known <= now + AHEAD_MAX {
        return Ok(());
    }
    let (known, now) = (render::moment(known), render::moment(now));
    Err(Error::new(ErrorKind::Invalid, "start", "the service")
        .cause(format!("its journal goes on until {known}, and the clock of this machine says {now}"))
        .hint("set the clock right; if it is, restore the last backup from before it was wrong (docs/operating/backup.md)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_large_step_is_told_and_not_taken() {
        let mut state = State::default();
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
        let mut state = State::default();
        state.read(s(1000), s(50));
        assert_eq!(state.read(s(1009), s(51)).0, s(1009));
        assert_eq!(state.read(s(1003), s(52)).0, s(1009));
        assert_eq!(state.read(s(1018), s(62)).0, s(1018));
        // The machine slept.
        assert_eq!(state.read(s(9018), s(8062)).0, s(9018));
    }
}
