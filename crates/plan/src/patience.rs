//! Retries, and the judgement of lanes.
//!
//! A lasting failure is never retried. Everything else is retried a bounded number of times. Pauses
//! double and are drawn at random, so that many clients don't come back together ("full jitter"
//! over the upper half). The kind of failure decides the number and the pauses.

use core::time::Duration;

use posthaste_types::ByteRate;

/// Kind of failure, as far as retries depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A failure that the same request will meet again.
    Lasting,
    /// No connection, or a broken one.
    Unreachable,
    /// Nothing moved, or far too little: another connection may do better at once.
    Stalled,
    /// The other side asked for a later retry.
    Busy,
    /// The bytes that arrived differ from those sent: sending them once more settles it.
    Corrupt,
}

/// Number of tries, and their pauses.
struct Tries {
    most: u32,
    first: Duration,
    longest: Duration,
}

/// Longest pause that is waited for at the other side's request. A store that wants more counts as
/// busy.
const ASKED_MAX: Duration = Duration::from_secs(120);

impl Trouble {
    const fn tries(self) -> Tries {
        let (most, first_ms, longest_ms) = match self {
            Self::Lasting => (1, 0, 0),
            // Enough for a service that restarts: 0.2 + 0.4 + ... about 20 s in all.
            Self::Unreachable => (8, 200, 5_000),
            // The stall itself was the wait.
            Self::Stalled => (5, 50, 1_000),
            // Stores that throttle need patience: about two minutes in all.
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

/// Returns the pause before the next try after `failures` in a row, or `None` if there is none.
///
/// `asked` is the pause the other side asked for; `lot` is a random number, of which the
/// thousandths count.
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

/// Time without a byte after which a lane is stalled, whatever its rate was.
pub const SILENT_MAX: Duration = Duration::from_secs(10);
/// Time a lane must move before it may count as slow: the first seconds are slow start.
const SLOW_AFTER: Duration = Duration::from_secs(10);
/// Share of the expected rate below which a lane is slow.
const SLOW_PERMILLE: u64 = 200;

/// State of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Bytes arrive as expected.
    Moving,
    /// Nothing arrived for [`SILENT_MAX`].
    Silent,
    /// The rate is a fraction of the expected one.
    Slow,
}

/// Judges a lane by the time since its last byte, its time at the chunk, its mean rate there, and
/// the expected rate. The latter is the median of similar lanes; none if there are no others.
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
