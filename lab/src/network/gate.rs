//! A queue of bounded size that packets leave at a rate.

use std::{collections::VecDeque, time::Duration};

use super::PipeId;
use crate::{packet::Packet, topology::Rate};

/// Longest time for a packet to pass, if it can be cut: others wait behind it no longer than on a
/// real link, and the timing of its successors is no coarser.
const PASS_TIME_MAX: Duration = Duration::from_millis(1);

/// Queue of packets that pass at a rate. Whatever does not fit is dropped, segment by segment.
#[derive(Debug)]
pub struct Gate {
    rate: Rate,
    queue_bytes_max: u64,
    framing_bytes: u64,
    queue: VecDeque<(PipeId, Packet)>,
    queued_bytes: u64,
    /// Time at which the first of the queue has passed.
    first_passed: Duration,
}

impl Gate {
    /// Returns an empty gate.
    pub fn new(rate: Rate, queue_bytes_max: u64, framing_bytes: u64) -> Self {
        Self {
            rate,
            queue_bytes_max,
            framing_bytes,
            queue: VecDeque::new(),
            queued_bytes: 0,
            first_passed: Duration::ZERO,
        }
    }

    /// Returns whether packets pass at once.
    pub fn is_open(&self) -> bool {
        self.rate == Rate::UNLIMITED && self.queue.is_empty()
    }

    /// Returns the queued bytes, on the wire.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Returns the time at which the next packet has passed.
    pub fn next(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(self.first_passed)
    }

    /// Accepts as much of a packet as fits. Returns the number of dropped segments.
    pub fn offer(&mut self, now: Duration, pipe: PipeId, packet: Packet) -> u32 {
        let whole = packet.segments();
        let at_once = packet
            .segments_within(self.rate.bytes_in(PASS_TIME_MAX), self.framing_bytes)
            .max(1);
        if whole <= at_once || self.rate == Rate::UNLIMITED {
            return self.offer_piece(now, pipe, packet);
        }
        let mut dropped = 0;
        let mut start = 0;
        while start < whole {
            let end = whole.min(start + at_once);
            dropped += match packet.cut(start..end) {
                Some(piece) => self.offer_piece(now, pipe, piece),
                None => end - start,
            };
            start = end;
        }
        dropped
    }

    fn offer_piece(&mut self, now: Duration, pipe: PipeId, packet: Packet) -> u32 {
        let segments = packet.segments();
        let free = self.queue_bytes_max.saturating_sub(self.queued_bytes);
        let fitting = packet.segments_within(free, self.framing_bytes);
        let admitted = if fitting == segments {
            Some(packet)
        } else {
            packet.cut(0..fitting)
        };
        let Some(admitted) = admitted else {
            return segments;
        };
        let bytes = admitted.wire_bytes(self.framing_bytes);
        if self.queue.is_empty() {
            self.first_passed = now + self.rate.time_of(bytes);
        }
        self.queued_bytes += bytes;
        self.queue.push_back((pipe, admitted));
        segments - fitting
    }

    /// Passes the first packet; to be called at the time [`Gate::next`] returned.
    pub fn pass(&mut self) -> Option<(PipeId, Packet)> {
        let (pipe, packet) = self.queue.pop_front()?;
        self.queued_bytes -= packet.wire_bytes(self.framing_bytes);
        if let Some((_, next)) = self.queue.front() {
            self.first_passed += self.rate.time_of(next.wire_bytes(self.framing_bytes));
        }
        Some((pipe, packet))
    }

    /// Sets a new rate and size. The rest of the first packet passes at the new rate.
    pub fn set(&mut self, now: Duration, rate: Rate, queue_bytes_max: u64) {
        let left = self.rate.bytes_in(self.first_passed.saturating_sub(now));
        if rate != self.rate {
            self.first_passed = now + rate.time_of(left);
        }
        self.rate = rate;
        self.queue_bytes_max = queue_bytes_max;
    }

    /// Drops all queued packets and returns them.
    pub fn clear(&mut self) -> Vec<(PipeId, Packet)> {
        self.queued_bytes = 0;
        self.queue.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::tcp;

    const PIPE: PipeId = PipeId(0);

    fn rate(text: &str) -> Rate {
        Rate::try_from(text.to_owned()).unwrap()
    }

    /// Returns all packets that pass, with their times.
    fn passed(gate: &mut Gate) -> Vec<(Duration, u32)> {
        let mut all = Vec::new();
        while let Some(at) = gate.next() {
            all.push((at, gate.pass().unwrap().1.segments()));
        }
        all
    }

    #[test]
    fn packets_pass_at_the_rate_one_after_the_other() {
        let mut gate = Gate::new(rate("1Gbit/s"), 1 << 20, 38);
        let start = Duration::from_secs(1);
        for _ in 0..3 {
            assert_eq!(gate.offer(start, PIPE, tcp(4, 1448)), 0);
        }
        assert_eq!(gate.queued_bytes(), 3 * 1538);
        let step = Duration::from_nanos(12_304);
        assert_eq!(
            passed(&mut gate),
            [
                (start + step, 1),
                (start + 2 * step, 1),
                (start + 3 * step, 1)
            ]
        );
        assert_eq!((gate.queued_bytes(), gate.next()), (0, None));
    }

    #[test]
    fn what_does_not_fit_is_dropped_by_the_segment() {
        let mut gate = Gate::new(rate("1Gbit/s"), 10 * 1538, 38);
        assert_eq!(gate.offer(Duration::ZERO, PIPE, tcp(4, 8 * 1448)), 0);
        assert_eq!(gate.offer(Duration::ZERO, PIPE, tcp(4, 8 * 1448)), 6);
        assert_eq!(gate.offer(Duration::ZERO, PIPE, tcp(4, 1448)), 1);
        let segments: u32 = passed(&mut gate).iter().map(|(_, segments)| segments).sum();
        assert_eq!(segments, 10);
    }

    #[test]
    fn slow_gates_cut_large_packets() {
        // 1 ms of 25 Mbit/s is 3125 bytes: two segments of 1500.
        let mut gate = Gate::new(rate("25Mbit/s"), 1 << 20, 0);
        gate.offer(Duration::ZERO, PIPE, tcp(4, 5 * 1448));
        let segments: Vec<u32> = passed(&mut gate)
            .iter()
            .map(|(_, segments)| *segments)
            .collect();
        assert_eq!(segments, [2, 2, 1]);
        let mut slower = Gate::new(rate("1Mbit/s"), 1 << 20, 0);
        slower.offer(Duration::ZERO, PIPE, tcp(4, 2 * 1448));
        assert_eq!(passed(&mut slower).len(), 2);
    }

    #[test]
    fn a_new_rate_meets_the_packet_that_is_passing() {
        let mut gate = Gate::new(rate("12Mbit/s"), 1 << 20, 0);
        gate.offer(Duration::ZERO, PIPE, tcp(4, 1448));
        assert_eq!(gate.next(), Some(Duration::from_millis(1)));
        gate.set(Duration::from_micros(500), rate("6Mbit/s"), 1 << 20);
        assert_eq!(gate.next(), Some(Duration::from_micros(1500)));
        gate.set(Duration::from_micros(1000), Rate::UNLIMITED, 1 << 20);
        assert_eq!(gate.next(), Some(Duration::from_micros(1000)));
        assert!(!gate.is_open());
        assert_eq!(gate.clear().len(), 1);
        assert!(gate.is_open() && gate.queued_bytes() == 0);
    }
}
