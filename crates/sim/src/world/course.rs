//! Course of a path's or link's capacity over time: the declared rate, and all its changes.

/// Place of a course.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CourseId(pub(super) usize);

/// Segment size of TCP over Ethernet, in bytes.
const SEGMENT_BYTES: u128 = 1460;

/// Capacity of one resource, as a product of factors in thousandths.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Declared rate, in bytes a second.
    declared: u64,
    /// Current rate of a trace.
    pub(super) traced: Option<u64>,
    /// Rate under a fault.
    cut: Option<u64>,
    pub(super) jitter_permille: u64,
    pub(super) state_permille: u64,
    pub(super) day_permille: u64,
    loss: Loss,
    /// Lowest rate so far, without faults.
    lowest: u64,
    /// Highest rate since the last query.
    highest: u64,
}

/// Packet loss, and its effect on the rate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loss {
    permille: u64,
    /// Highest rate that the connections reach together, in bytes a second.
    rate_max: Option<u64>,
}

impl Loss {
    /// Returns the effect of losing `permille` of packets on a path with this round trip and
    /// `streams` connections.
    ///
    /// Retransmissions replace new data, which leaves 1 - p. In addition, a connection whose window
    /// halves with each loss carries at most sqrt(3/2) segments a round trip over sqrt(p) (Mathis,
    /// Semke, Mahdavi, Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, CCR
    /// 27(3), 1997, equation 3).
    pub(crate) fn new(permille: u64, round_trip_micros: u64, streams: u64) -> Self {
        let root = (u128::from(permille) * 1_000_000_000).isqrt();
        // The constant sqrt(3/2) is 1.2247; the root of p is in millionths.
        let top = u128::from(streams) * SEGMENT_BYTES * 12_247 * 100_000_000;
        let rate = top.checked_div(root * u128::from(round_trip_micros));
        Self {
            permille: permille.min(1000),
            rate_max: rate.map(|rate| u64::try_from(rate).unwrap_or(u64::MAX)),
        }
    }
}

impl Course {
    pub(crate) fn new(declared: u64, loss: Loss) -> Self {
        Self {
            declared,
            traced: None,
            cut: None,
            jitter_permille: 1000,
            state_permille: 1000,
            day_permille: 1000,
            loss,
            lowest: u64::MAX,
            highest: declared,
        }
    }

    /// Sets the rate under a fault, or restores the normal one, and resets the jitter.
    pub(super) fn set_cut(&mut self, cut: Option<u64>) {
        self.cut = cut;
        self.jitter_permille = 1000;
    }

    /// Returns the highest rate since the last query.
    pub(super) fn take_highest(&mut self) -> u64 {
        let now = self.capacity();
        std::mem::replace(&mut self.highest, now).max(now)
    }

    /// Updates the lowest and highest rates.
    pub(super) fn watch(&mut self) {
        self.highest = self.highest.max(self.capacity());
        if self.cut.is_none() {
            self.lowest = self.lowest.min(self.capacity());
        }
    }

    /// Returns the lowest rate, or the current rate under a fault; none if the fault leaves
    /// nothing.
    pub(super) fn slowest(&self) -> Option<u64> {
        match self.cut {
            Some(_) => Some(self.capacity()).filter(|rate| *rate > 0),
            None => Some(self.lowest.min(self.capacity())),
        }
    }

    /// Returns the current rate, in bytes a second.
    pub(crate) fn capacity(&self) -> u64 {
        let base = self.cut.or(self.traced).unwrap_or(self.declared);
        let factors = [
            self.jitter_permille,
            self.state_permille,
            self.day_permille,
            1000 - self.loss.permille,
        ];
        let bent = factors.iter().fold(u128::from(base), |rate, factor| {
            rate * u128::from(*factor) / 1000
        });
        let rate = u64::try_from(bent).unwrap_or(u64::MAX);
        rate.min(self.loss.rate_max.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bends_a_rate_multiplies_and_a_fault_takes_its_place() {
        let mut course = Course::new(1000, Loss::default());
        assert_eq!(course.capacity(), 1000);
        course.traced = Some(4000);
        course.day_permille = 500;
        course.state_permille = 250;
        course.jitter_permille = 1100;
        assert_eq!(course.capacity(), 550);
        course.set_cut(Some(800));
        assert_eq!(course.capacity(), 100);
        course.set_cut(None);
        assert_eq!(course.capacity(), 500);
    }

    #[test]
    fn loss_costs_what_is_sent_again_and_far_away_much_more() {
        let rate = |permille, round_trip_micros, streams| {
            let loss = Loss::new(permille, round_trip_micros, streams);
            Course::new(100_000_000, loss).capacity()
        };
        assert_eq!(rate(0, 60_000, 1), 100_000_000);
        assert_eq!(rate(10, 100, 64), 99_000_000);
        // 1.2247 * 1460 / (0.06 * 0.1) = 298 kB/s for each of eight.
        assert_eq!(rate(10, 60_000, 8), 2_384_082);
        assert_eq!(rate(1000, 60_000, 8), 0);
    }
}
