//! TCP connections that share a long path: how many it is worth, and who sets their pace.
//!
//! The kernel's own congestion control (CUBIC, unless somebody chose) fills a path that has a queue
//! and loses little beside that; many connections together do so even where single packets are
//! lost, because each needs a small window only. BBR keeps its rate whatever is lost, but several
//! of them keep a queue overflowing: each sends up to twice what the path holds (Hock, Bless and
//! Zitterbart 2017, "Experimental evaluation of BBR congestion control", found so). So the kernel's
//! own has the pace until packets are lost while no queue stands, and again and again: then the
//! loss says nothing about the path's room, and BBR is right.
//!
//! Two kinds of connections get BBR all the same, because it finds its rate within few round trips
//! where CUBIC takes seconds: those left over when most have ended, for which there is room now, and
//! those that losses at the start left with a small part of what the others send.

use core::time::Duration;

/// Fewest connections kept ready: two for data in each direction, and as many for questions.
pub const CONNECTIONS_MIN: usize = 4;

/// Most connections to one peer, also where the other end is on the far side of the world.
pub const CONNECTIONS_MAX: usize = 64;

/// One connection for each of so much time there and back: 64 at 60 ms. A new TCP connection
/// starts with some 14 KiB in flight and doubles once in each such time, so many fill a long path
/// sooner than few.
const RTT_PER_CONNECTION: Duration = Duration::from_micros(940);

/// A queue stands where the round trip takes longer than the shortest by this share of it, one in so many.
const QUEUE_SHARE: u32 = 4;

/// And by this much at least, in microseconds: less is the noise of hosts.
const QUEUE_US_MIN: u32 = 2_000;

/// Segments lost without a queue before it counts as how the path is.
const LOST_MIN: u64 = 8;

/// So many of the losses must be of that kind: one that a queue has, clears it for a moment, and
/// the next in this moment looks as if there were none.
const LOST_RATIO: u64 = 2;

/// Losses remembered; older ones count half, a quarter and so on.
const LOST_REMEMBERED: u64 = 96;

/// A connection whose window is by this factor smaller than usual is starved.
const STARVED: u32 = 4;

/// Windows seen before it is known what is usual.
const WINDOWS_MIN: u32 = 64;

/// How many connections a path of this round trip is worth.
#[must_use]
pub fn connections(rtt: Duration) -> usize {
    let worth = rtt.as_micros() / RTT_PER_CONNECTION.as_micros();
    usize::try_from(worth)
        .unwrap_or(CONNECTIONS_MAX)
        .clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// What the kernel says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Segments sent again since it was opened.
    pub resent: u32,
    /// Smoothed round trip, in microseconds; 0 when unknown.
    pub rtt_us: u32,
    /// The shortest round trip it saw, in microseconds; 0 when unknown.
    pub rtt_least_us: u32,
    /// Segments that may be under way.
    pub window: u32,
}

/// Connections that share a path.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Connections that are sending.
    sending: usize,
    /// The most of them since it was told last that they have become fewer.
    most: usize,
    /// How often most of those that were sending had ended.
    thinned: u64,
    /// The shortest round trip any of them saw, in microseconds; 0 before the first.
    rtt_least_us: u32,
    /// Segments lost while a queue stood.
    lost_in_queue: u64,
    /// Segments lost while none did.
    lost_at_random: u64,
    is_lossy: bool,
    /// Windows seen, at most [`WINDOWS_MIN`].
    windows: u32,
    /// A window as usual, in 64ths of a segment.
    window_usual: u32,
}

impl Fleet {
    /// A connection begins to send.
    pub fn begin(&mut self) {
        self.sending += 1;
        self.most = self.most.max(self.sending);
    }

    /// A connection has sent all it has, or is gone.
    pub fn end(&mut self) {
        self.sending = self.sending.saturating_sub(1);
        if self.sending <= self.most / 2 {
            self.most = self.sending;
            self.thinned += 1;
        }
    }

    /// How often most of those that were sending had ended.
    #[must_use]
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// Whether the path loses packets that no queue is to blame for. Once it does, it stays so.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// Whether a connection sends a small part of what the others do.
    #[must_use]
    pub fn is_starved(&self, now: Health) -> bool {
        self.windows >= WINDOWS_MIN
            && now.window.saturating_mul(WINDOWS_MIN * STARVED) < self.window_usual
    }

    /// Takes in how a connection is `now`, and how it was `before`.
    pub fn observe(&mut self, before: Health, now: Health) {
        self.windows = WINDOWS_MIN.min(self.windows + 1);
        self.window_usual -= self.window_usual / self.windows;
        self.window_usual = self
            .window_usual
            .saturating_add(now.window.saturating_mul(WINDOWS_MIN) / self.windows);
        for seen_us in [now.rtt_least_us, now.rtt_us] {
            if seen_us > 0 && (self.rtt_least_us == 0 || seen_us < self.rtt_least_us) {
                self.rtt_least_us = seen_us;
            }
        }
        let lost = u64::from(now.resent.saturating_sub(before.resent));
        if lost == 0 {
            return;
        }
        let slack_us = (self.rtt_least_us / QUEUE_SHARE).max(QUEUE_US_MIN);
        let has_queue = |health: Health| health.rtt_us > self.rtt_least_us.saturating_add(slack_us);
        if has_queue(before) || has_queue(now) {
            self.lost_in_queue += lost;
        } else {
            self.lost_at_random += lost;
        }
        self.is_lossy |= self.lost_at_random >= LOST_MIN
            && self.lost_at_random >= LOST_RATIO * self.lost_in_queue;
        if self.lost_in_queue + self.lost_at_random > LOST_REMEMBERED {
            self.lost_in_queue /= 2;
            self.lost_at_random /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_worth_more_connections() {
        let at = |ms| connections(Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(30), at(60), at(300)], [4, 4, 31, 63, 64]);
        assert_eq!(connections(Duration::MAX), 64);
    }

    #[test]
    fn a_fleet_tells_whenever_half_have_ended() {
        let mut fleet = Fleet::default();
        let mut told = std::vec::Vec::new();
        let steps = "++++++++-----+----";
        for step in steps.chars() {
            if step == '+' {
                fleet.begin();
            } else {
                fleet.end();
            }
            told.push(fleet.thinned());
        }
        assert_eq!(told, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4]);
    }

    fn health(resent: u32, rtt_ms: u32) -> Health {
        Health {
            resent,
            rtt_us: rtt_ms * 1000,
            rtt_least_us: 60_000,
            window: 100,
        }
    }

    #[test]
    fn a_small_window_among_large_ones_is_starved() {
        let mut fleet = Fleet::default();
        let small = Health {
            window: 12,
            ..health(0, 60)
        };
        for _ in 0..63 {
            fleet.observe(health(0, 60), health(0, 60));
            assert!(!fleet.is_starved(small), "nobody knows yet what is usual");
        }
        fleet.observe(health(0, 60), health(0, 60));
        assert!(fleet.is_starved(small));
        assert!(!fleet.is_starved(Health {
            window: 30,
            ..small
        }));
        for _ in 0..200 {
            fleet.observe(small, small);
        }
        assert!(!fleet.is_starved(small), "all are so");
    }

    #[test]
    fn losses_without_a_queue_make_a_path_lossy() {
        let mut fleet = Fleet::default();
        for lost in 0..7 {
            fleet.observe(health(lost, 60), health(lost + 1, 62));
            assert!(!fleet.is_lossy(), "{lost} may be chance");
        }
        fleet.observe(health(7, 62), health(8, 61));
        assert!(fleet.is_lossy());
    }

    #[test]
    fn a_full_queue_is_no_lossy_path() {
        let mut fleet = Fleet::default();
        // It overflows, empties, and fills again.
        for round in 0..1000 {
            let (resent, rtt_ms) = (round * 10, [118, 61, 80, 110][round as usize % 4]);
            fleet.observe(health(resent, rtt_ms), health(resent + 10, rtt_ms));
        }
        assert!(!fleet.is_lossy());
    }

    #[test]
    fn who_came_late_knows_the_shortest_way_from_the_others() {
        let mut fleet = Fleet::default();
        fleet.observe(Health::default(), health(0, 60));
        let late = Health {
            resent: 0,
            rtt_us: 118_000,
            rtt_least_us: 117_000,
            window: 100,
        };
        fleet.observe(late, Health { resent: 90, ..late });
        assert!(!fleet.is_lossy(), "its own shortest stood in the queue");
    }

    #[test]
    fn an_unknown_round_trip_is_no_short_one() {
        let mut fleet = Fleet::default();
        fleet.observe(Health::default(), Health::default());
        fleet.observe(health(0, 60), health(100, 120));
        assert!(!fleet.is_lossy());
    }
}
