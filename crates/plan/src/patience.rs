//! When to try again, and when to stop waiting.
//!
//! What failed for good is never tried again. Everything else is tried a bounded number of times,
//! with pauses that double and are drawn at random, so that many clients don't come back together
//! ("full jitter" over the upper half). How often and how long follows from what went wrong.

use core::time::Duration;

use posthaste_types::ByteRate;

/// What went wrong, as far as trying again depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The same request will fail again.
    Lasting,
    /// No connection, or it broke.
    Unreachable,
    /// Nothing moved, or far too little: another connection may do better at once.
    Stalled,
    /// The other side asks us to come back later.
    Busy,
    /// Other bytes arrived than were sent: sending them once more settles it.
    Corrupt,
}

/// How often, and with which pauses.
struct Tries {
    most: u32,
    first: Duration,
    longest: Duration,
}

/// The longest pause asked for by the other side that is waited for. A store that wants more is
/// told to be busy.
const ASKED_MAX: Duration = Duration::from_secs(120);

impl Trouble {
    const fn tries(self) -> Tries {
        let (most, first_ms, longest_ms) = match self {
            Self::Lasting => (1, 0, 0),
            // Long enough for a service that is restarted: 0.2 + 0.4 + ... about 20 s in all.
            Self::Unreachable => (8, 200, 5_000),
            // The wait was the stall itself.
            Self::Stalled => (5, 50, 1_000),
            // Stores that throttle want patience: about two minutes in all.
            Self::Busy => (10, 500, 20_000),
            Self::Corrupt => (3, 0, 0),
        };
        Tries {
            most,
            first: Duration::from_millis(first_ms),
            longest: Duration::from_millis(longest_ms),
        }
    }
}

/// The pause before trying again after `failures` in a row, or `None` when it is enough. `asked` is
/// the pause the other side asked for; `lot` a random number, of which the thousandths count.
#[must_use]
pub fn next_try(
    trouble: Trouble,
    failures: u32,
    asked: Option<Duration>,
    lot: u64,
) -> Option<Duration> {
    let tries = trouble.tries();
    if failures >= tries.most || asked.is_some_and(|asked| asked > ASKED_MAX) {
        return None;
    }
    let doubled = tries.first * (1 << failures.saturating_sub(1).min(16));
    let longest = doubled.min(tries.longest);
    let lot = u32::try_from(lot % 1000).unwrap_or(0);
    let drawn = longest / 2 + longest / 2 * lot / 1000;
    Some(asked.unwrap_or_default().max(drawn))
}

/// A lane without a byte for so long is stalled, whatever its rate was.
pub const SILENT_MAX: Duration = Duration::from_secs(10);
/// A lane is not called slow before it moved for so long: the first seconds are slow start.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// A lane is slow below this share of what is expected of it.
const SLOW_PERMILLE: u64 = 200;

/// How a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It moves.
    Moving,
    /// Nothing came for [`SILENT_MAX`].
    Silent,
    /// It moves at a fraction of what is expected.
    Slow,
}

/// Judges a lane: how long since its last byte, how long it has been at its chunk and at which mean
/// rate, and what is expected of it (the median of its like). None is expected where it is alone.
#[must_use]
pub fn judge(
    silent: Duration,
    busy: Duration,
    rate: ByteRate,
    expected: Option<ByteRate>,
) -> Verdict {
    if silent >= SILENT_MAX {
        return Verdict::Silent;
    }
    let is_slow = |expected: ByteRate| rate < expected.scaled(SLOW_PERMILLE, 1000);
    if busy >= SLOW_AFTER && expected.is_some_and(is_slow) {
        return Verdict::Slow;
    }
    Verdict::Moving
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Trouble; 5] = [
        Trouble::Lasting,
        Trouble::Unreachable,
        Trouble::Stalled,
        Trouble::Busy,
        Trouble::Corrupt,
    ];

    #[test]
    fn nothing_is_tried_for_ever() {
        for trouble in ALL {
            assert!(next_try(trouble, 10, None, 0).is_none(), "{trouble:?}");
        }
        assert!(next_try(Trouble::Lasting, 1, None, 0).is_none());
    }

    #[test]
    fn pauses_grow_and_stay_within_their_bounds() {
        for trouble in ALL {
            let mut before = Duration::ZERO;
            let mut total = Duration::ZERO;
            for failures in 1.. {
                let Some(least) = next_try(trouble, failures, None, 0) else {
                    break;
                };
                let most = next_try(trouble, failures, None, 999).unwrap();
                assert!(least >= before && most >= least, "{trouble:?} {failures}");
                assert!(most <= trouble.tries().longest);
                before = least;
                total += most;
            }
            assert!(total < Duration::from_secs(180), "{trouble:?}: {total:?}");
        }
    }

    #[test]
    fn who_asks_for_a_pause_gets_it_or_is_left() {
        let asked = Some(Duration::from_secs(7));
        assert!(next_try(Trouble::Busy, 1, asked, 0).unwrap() >= Duration::from_secs(7));
        let hours = Some(Duration::from_secs(7200));
        assert_eq!(next_try(Trouble::Busy, 1, hours, 0), None);
    }

    #[test]
    fn lanes_are_judged_by_silence_and_by_their_like() {
        let (second, long) = (Duration::from_secs(1), Duration::from_secs(20));
        let (fast, slow) = (ByteRate::new(1000), ByteRate::new(100));
        assert_eq!(judge(long, long, fast, None), Verdict::Silent);
        assert_eq!(judge(second, long, slow, Some(fast)), Verdict::Slow);
        assert_eq!(judge(second, second, slow, Some(fast)), Verdict::Moving);
        assert_eq!(judge(second, long, slow, None), Verdict::Moving);
    }
}
