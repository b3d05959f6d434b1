//! TCP connections that share a long path: how many the path is worth, and which congestion control
//! they use.
//!
//! The kernel's own congestion control (CUBIC by default) fills a path that has a queue and loses
//! few other packets. Many connections together do so even where single packets are lost, because
//! each needs a small window only.
//!
//! BBR keeps its rate whatever is lost, but several of them keep a queue overflowing: each sends up
//! to twice what the path holds (Hock, Bless and Zitterbart 2017, "Experimental evaluation of BBR
//! congestion control"). So the kernel's own is used until packets are lost, repeatedly, while no
//! queue stands. Such losses say nothing about the path's capacity, and BBR is right.
//!
//! Two kinds of connections get BBR all the same, because it finds its rate within few round trips
//! where CUBIC takes seconds. One kind is left over when most have ended and there is capacity for
//! more. The other lost packets at the start and sends a small part of what the others send.

use core::time::Duration;

/// Fewest connections kept ready: two for data in each direction, and two for requests.
pub const CONNECTIONS_MIN: usize = 4;

/// Most connections to one peer, even at the largest distance.
pub const CONNECTIONS_MAX: usize = 64;

/// Round trip for which there is one connection: 64 connections at 60 ms. A new TCP connection
/// starts with some 14 KiB in flight and doubles once each round trip, so many fill a long path
/// sooner than few.
const RTT_PER_CONNECTION: Duration = Duration::from_micros(940);

/// Divisor: a queue stands where the round trip exceeds the shortest by this fraction of it.
const QUEUE_SHARE: u32 = 4;

/// Least excess of a standing queue, in microseconds: less is the noise of hosts.
const QUEUE_US_MIN: u32 = 2_000;

/// Segments lost without a queue before the path counts as lossy.
const LOST_MIN: u64 = 8;

/// Ratio of losses without a queue to all others from which a path is lossy. A loss in a queue
/// clears it for a moment, and the next loss in that moment looks like one without a queue.
const LOST_RATIO: u64 = 2;

/// Losses remembered; older ones count half, a quarter and so on.
const LOST_REMEMBERED: u64 = 96;

/// Factor by which the window of a starved connection is smaller than usual.
const STARVED: u32 = 4;

/// Windows seen before the usual one is known.
const WINDOWS_MIN: u32 = 64;

/// Returns the number of connections that a path of this round trip is worth.
#[must_use]
pub fn connections(rtt: Duration) -> usize {
    let worth = rtt.as_micros() / RTT_PER_CONNECTION.as_micros();
    usize::try_from(worth)
        .unwrap_or(CONNECTIONS_MAX)
        .clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// Kernel's report on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Segments retransmitted since it was opened.
    pub resent: u32,
    /// Smoothed round trip, in microseconds; 0 when unknown.
    pub rtt_us: u32,
    /// Shortest round trip it saw, in microseconds; 0 when unknown.
    pub rtt_least_us: u32,
    /// Congestion window, in segments.
    pub window: u32,
}

/// Connections that share a path.
#[derive(Debug, Default)]
pub struct Fleet {
    /// Connections that are sending.
    sending: usize,
    /// Most connections that were sending since the last report that they became fewer.
    most: usize,
    /// Number of times that most of the sending connections had ended.
    thinned: u64,
    /// Shortest round trip of all connections, in microseconds; 0 before the first.
    rtt_least_us: u32,
    /// Segments lost while a queue stood.
    lost_in_queue: u64,
    /// Segments lost while no queue stood.
    lost_at_random: u64,
    is_lossy: bool,
    /// Windows seen, at most [`WINDOWS_MIN`].
    windows: u32,
    /// Usual window, in 64ths of a segment.
    window_usual: u32,
}

impl Fleet {
    /// Records that a connection begins to send.
    pub fn begin(&mut self) {
        self.sending += 1;
        self.most = self.most.max(self.sending);
    }

    /// Records that a connection has sent all it has, or is closed.
    pub fn end(&mut self) {
        self.sending = self.sending.saturating_sub(1);
        if self.sending <= self.most / 2 {
            self.most = self.sending;
            self.thinned += 1;
        }
    }

    /// Returns the number of times that most of the sending connections had ended.
    #[must_use]
    pub fn thinned(&self) -> u64 {
        self.thinned
    }

    /// Returns whether the path loses packets without a queue. Once it does, it stays so.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.is_lossy
    }

    /// Returns whether a connection sends a small part of what the others do.
    #[must_use]
    pub fn is_starved(&self, now: Health) -> bool {
        self.windows >= WINDOWS_MIN
            && now.window.saturating_mul(WINDOWS_MIN * STARVED) < self.window_usual
    }

    /// Records the state of a connection `now` and `before`.
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
        // The queue overflows, empties and fills again.
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
