//! Packets in flight between two hosts.

use std::{collections::VecDeque, time::Duration};

use super::noise::Noise;
use crate::{
    packet::Packet,
    topology::{Conditions, WIRE_BYTES_MAX},
};

/// Packets in flight, in order of arrival.
#[derive(Debug)]
pub struct Wire {
    noise: Noise,
    packets: VecDeque<(Duration, Packet)>,
    bytes: u64,
}

impl Wire {
    /// Returns an empty wire; its jitter follows from the noise.
    pub fn new(noise: Noise) -> Self {
        Self {
            noise,
            packets: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the arrival of the next packet.
    pub fn next(&self) -> Option<Duration> {
        self.packets.front().map(|(at, _)| *at)
    }

    /// Sends a packet at this time. Returns the number of dropped segments: all of them if too much
    /// is in flight already.
    pub fn send(&mut self, now: Duration, packet: Packet, conditions: &Conditions) -> u32 {
        let bytes = packet.bytes().len() as u64;
        if self.bytes + bytes > WIRE_BYTES_MAX {
            return packet.segments();
        }
        self.bytes += bytes;
        let arrival = now + self.delay(conditions);
        let last = self.packets.back().map_or(arrival, |(at, _)| *at);
        if arrival >= last {
            self.packets.push_back((arrival, packet));
        } else if conditions.reorder {
            let place = self.packets.partition_point(|(at, _)| *at <= arrival);
            self.packets.insert(place, (arrival, packet));
        } else {
            self.packets.push_back((last, packet));
        }
        0
    }

    fn delay(&mut self, conditions: &Conditions) -> Duration {
        let (delay, jitter) = (conditions.delay.duration(), conditions.jitter.duration());
        if jitter.is_zero() {
            return delay;
        }
        delay.saturating_sub(jitter) + self.noise.up_to(jitter * 2)
    }

    /// Returns the next packet; to be called at the time [`Wire::next`] returned.
    pub fn arrive(&mut self) -> Option<Packet> {
        let (_, packet) = self.packets.pop_front()?;
        self.bytes -= packet.bytes().len() as u64;
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{packet::tests::tcp, topology::Span};

    fn span(text: &str) -> Span {
        Span::try_from(text.to_owned()).unwrap()
    }

    /// Returns arrivals in milliseconds, and the payload that tells the packets apart.
    fn sent(reorder: bool) -> Vec<(Duration, usize)> {
        let conditions = Conditions {
            delay: span("10ms"),
            jitter: span("5ms"),
            reorder,
            ..Conditions::default()
        };
        let mut wire = Wire::new(Noise::new(1, 1));
        for number in 1..=200_u32 {
            let now = Duration::from_millis(number.into());
            assert_eq!(wire.send(now, tcp(4, number as usize), &conditions), 0);
        }
        let mut all = Vec::new();
        while let Some(at) = wire.next() {
            all.push((at, wire.arrive().unwrap().bytes().len()));
        }
        assert_eq!(wire.bytes(), 0);
        all
    }

    #[test]
    fn jitter_keeps_the_order_unless_it_may_not() {
        let kept = sent(false);
        assert!(kept.is_sorted() && kept.iter().is_sorted_by_key(|(_, bytes)| bytes));
        let mixed = sent(true);
        assert!(mixed.iter().is_sorted_by_key(|(at, _)| at));
        assert!(!mixed.iter().is_sorted_by_key(|(_, bytes)| bytes));
        for (place, (at, _)) in kept.iter().enumerate() {
            let sent = Duration::from_millis(place as u64 + 1);
            let taken = *at - sent;
            assert!(taken >= Duration::from_millis(5) && taken <= Duration::from_millis(15));
        }
    }

    #[test]
    fn a_shorter_delay_does_not_let_packets_overtake() {
        let mut wire = Wire::new(Noise::new(1, 1));
        let long = Conditions {
            delay: span("50ms"),
            ..Conditions::default()
        };
        wire.send(Duration::ZERO, tcp(4, 1), &long);
        wire.send(Duration::from_millis(1), tcp(4, 2), &Conditions::default());
        assert_eq!(wire.arrive().unwrap(), tcp(4, 1));
        assert_eq!(wire.next(), Some(Duration::from_millis(50)));
    }
}
