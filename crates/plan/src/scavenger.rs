//! Pace of a connection that uses only the rate that others leave.
//!
//! A flow that fills a path makes packets wait in its queue, and they wait for all that share the
//! path. A connection of this kind watches how much the round trip exceeds the shortest it saw, and
//! paces itself so that its own packets hardly wait. Where others fill the path the wait grows, and
//! the connection gives way (LEDBAT: RFC 6817; the doubling at the start and after quiet times as
//! in LEDBAT++). Its pace changes by shares of itself, so that it adapts to any path in about as
//! many looks.

use core::time::Duration;
use posthaste_types::ByteRate;

use crate::fleet::Health;

/// Shortest time between two looks: several round trips of a near path; far paths get a look each
/// round trip.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(100);

/// Longest wait of its packets, in microseconds: interactive programs do not notice it.
const WAIT_US: u32 = 10_000;

/// Divisor: the wait may be this fraction of the shortest round trip if that is longer, because
/// delays vary by as much there.
const WAIT_SHARE: u32 = 8;

/// Lowest pace, so that it notices when the others end, and does not look dead.
const LEAST: u64 = 16 << 10;

/// First pace.
const FIRST: u64 = 256 << 10;

/// Highest pace: no faster path is shared.
const MOST: u64 = 100_000_000_000;

/// Growth per look while nothing waits, in thousandths.
const GROWTH_PERMILLE: u64 = 50;

/// Rest of its pace after a packet loss, in thousandths.
const AFTER_LOSS_PERMILLE: u64 = 700;

/// Time without waiting packets after which it doubles again.
const QUIET: Duration = Duration::from_secs(2);

/// Pace of a connection that uses only the rate that others leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scavenger {
    pace: u64,
    /// The pace doubles with each look, as at the start.
    doubles: bool,
    /// Moment since which next to nothing waited.
    quiet_since: Duration,
    resent: u32,
    looked_at: Duration,
}

impl Default for Scavenger {
    fn default() -> Self {
        Self {
            pace: FIRST,
            doubles: true,
            quiet_since: Duration::ZERO,
            resent: 0,
            looked_at: Duration::ZERO,
        }
    }
}

impl Scavenger {
    /// Returns the current pace.
    #[must_use]
    pub const fn pace(&self) -> ByteRate {
        ByteRate::new(self.pace)
    }

    /// Returns whether another look is due, `now` after the start.
    #[must_use]
    pub fn is_due(&self, now: Duration, health: Health) -> bool {
        let round_trip = Duration::from_micros(health.rtt_us.into());
        now.saturating_sub(self.looked_at) >= LOOK_EVERY_MIN.max(round_trip)
    }

    /// Looks at the connection, `now` after the start, with `sent` bytes since the last look;
    /// returns the pace from now on.
    pub fn look(&mut self, now: Duration, health: Health, sent: u64) -> ByteRate {
        let span = now.saturating_sub(self.looked_at).max(LOOK_EVERY_MIN);
        self.looked_at = now;
        let lost = health.resent > self.resent;
        self.resent = health.resent;
        let waits = health.rtt_us.saturating_sub(health.rtt_least_us);
        let most = WAIT_US.max(health.rtt_least_us / WAIT_SHARE);
        if lost || waits > most / 4 {
            self.quiet_since = now;
        }
        let is_quiet = now.saturating_sub(self.quiet_since) >= QUIET;
        self.doubles = !lost && waits <= most / 2 && (self.doubles || is_quiet);
        // A pace that the connection had no bytes for says nothing about the path: it stays.
        let used = u128::from(sent) * 1_000_000 / span.as_micros().max(1);
        let is_used = used * 10 >= u128::from(self.pace) * 7;
        let permille = if lost {
            AFTER_LOSS_PERMILLE
        } else if waits > most {
            let over = (waits - most).min(most);
            1000 - 500 * u64::from(over) / u64::from(most)
        } else if !is_used {
            1000
        } else if self.doubles {
            2000
        } else {
            1000 + GROWTH_PERMILLE * u64::from(most - waits) / u64::from(most)
        };
        self.pace = (self.pace.saturating_mul(permille) / 1000).clamp(LEAST, MOST);
        self.pace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a queue, in steps of a millisecond; `other` returns the others' bytes for the
    /// bytes that wait.
    struct Path {
        rate: u64,
        round_trip_ms: u64,
        queue_most: u64,
        queue: u64,
        resent: u32,
    }

    impl Path {
        fn new(rate: u64) -> Self {
            Self {
                rate,
                round_trip_ms: 60,
                queue_most: rate / 1000 * 60,
                queue: 0,
                resent: 0,
            }
        }

        fn health(&self) -> Health {
            let waits = self.queue * 1_000_000 / self.rate;
            let least = self.round_trip_ms * 1000;
            Health {
                resent: self.resent,
                rtt_us: u32::try_from(least + waits).unwrap(),
                rtt_least_us: u32::try_from(least).unwrap(),
                window: 10,
            }
        }

        /// Plays from one moment to another; returns the scavenger's share of the path in percent.
        fn play(
            &mut self,
            scavenger: &mut Scavenger,
            ms: core::ops::Range<u64>,
            mut other: impl FnMut(u64) -> u64,
        ) -> u64 {
            let (mut sent, mut all) = (0, 0);
            let length = ms.end - ms.start;
            for now in ms {
                let ours = scavenger.pace().get() / 1000;
                sent += ours;
                all += ours;
                self.queue += ours + other(self.queue);
                self.queue = self.queue.saturating_sub(self.rate / 1000);
                if self.queue > self.queue_most {
                    self.queue = self.queue_most;
                    self.resent += 1;
                }
                let (now, health) = (Duration::from_millis(now), self.health());
                if scavenger.is_due(now, health) {
                    scavenger.look(now, health, sent);
                    sent = 0;
                }
            }
            all * 100 / (self.rate / 1000 * length)
        }
    }

    #[test]
    fn alone_it_fills_the_path_and_lets_nobody_wait() {
        for rate in [1_000_000, 12_500_000, 125_000_000, 1_250_000_000] {
            let (mut path, mut scavenger) = (Path::new(rate), Scavenger::default());
            path.play(&mut scavenger, 0..5_000, |_| 0);
            let share = path.play(&mut scavenger, 5_000..30_000, |_| 0);
            assert!((85..=105).contains(&share), "{rate}: {share} %");
            let waits = path.health().rtt_us - path.health().rtt_least_us;
            assert!(waits < 20_000, "{rate}: {waits} us");
        }
    }

    #[test]
    fn it_makes_way_for_who_fills_the_path_and_comes_back_after_it() {
        let (mut path, mut scavenger) = (Path::new(125_000_000), Scavenger::default());
        path.play(&mut scavenger, 0..5_000, |_| 0);
        // Another flow that fills the queue by two thirds, whatever else is there.
        let fills = |queue: u64| if queue < 5_000_000 { 130_000 } else { 125_000 };
        path.play(&mut scavenger, 5_000..8_000, fills);
        let share = path.play(&mut scavenger, 8_000..20_000, fills);
        assert!(share <= 2, "{share} %");
        path.play(&mut scavenger, 20_000..26_000, |_| 0);
        let share = path.play(&mut scavenger, 26_000..40_000, |_| 0);
        assert!(share >= 85, "{share} %");
    }

    #[test]
    fn what_has_nothing_to_send_keeps_its_pace() {
        let mut scavenger = Scavenger::default();
        let health = Path::new(1_000_000).health();
        let before = scavenger.pace();
        for look in 1..100 {
            scavenger.look(Duration::from_millis(100 * look), health, 10);
        }
        assert_eq!(scavenger.pace(), before);
    }

    #[test]
    fn losses_slow_it_down_and_never_to_nothing() {
        let mut scavenger = Scavenger::default();
        let mut health = Path::new(1_000_000).health();
        for look in 1..100 {
            health.resent += 1;
            scavenger.look(Duration::from_millis(100 * look), health, 1 << 20);
        }
        assert_eq!(scavenger.pace(), ByteRate::new(LEAST));
    }
}
