//! Loss of segments: each by itself, and in bursts.
//!
//! Bursts are the model of Gilbert ("Capacity of a burst-noise channel", 1960) as Elliott widened
//! it ("Estimates of error rates for codes on burst-noise channels", 1963): a chain of two states,
//! one of which loses much. It moves with each segment, so that loss does not depend on the rate.

use super::noise::Noise;
use crate::topology::{Conditions, Share};

/// Loss of one direction of a link.
#[derive(Debug)]
pub struct Loss {
    noise: Noise,
    loss: u128,
    burst_loss: u128,
    /// Chance of a change from good to bad, and from bad to good.
    begins: u128,
    ends: u128,
    in_burst: bool,
}

impl Loss {
    /// Returns the loss under these conditions, from this noise.
    pub fn new(noise: Noise, conditions: &Conditions) -> Self {
        let mut loss = Self {
            noise,
            loss: 0,
            burst_loss: 0,
            begins: 0,
            ends: 0,
            in_burst: false,
        };
        loss.set(conditions);
        loss
    }

    /// Sets new conditions; the stream of chance goes on.
    pub fn set(&mut self, conditions: &Conditions) {
        self.loss = conditions.loss.threshold();
        self.burst_loss = conditions.burst_loss.threshold();
        self.begins = Share::one_of(conditions.burst_every).threshold();
        self.ends = Share::one_of(conditions.burst_length).threshold();
        self.in_burst &= self.begins > 0;
    }

    /// Returns which of the next segments are lost, in order.
    pub fn lost(&mut self, segments: u32) -> Vec<u32> {
        if self.loss == 0 && self.begins == 0 {
            return Vec::new();
        }
        (0..segments).filter(|_| self.is_next_lost()).collect()
    }

    fn is_next_lost(&mut self) -> bool {
        if self.begins > 0 {
            let changes = if self.in_burst {
                self.ends
            } else {
                self.begins
            };
            self.in_burst ^= self.noise.happens(changes);
        }
        (self.loss > 0 && self.noise.happens(self.loss))
            || (self.in_burst && self.noise.happens(self.burst_loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENTS: u32 = 1_000_000;

    fn lost(conditions: &Conditions) -> Vec<u32> {
        Loss::new(Noise::new(1, 1), conditions).lost(SEGMENTS)
    }

    fn share(text: &str) -> Share {
        Share::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn random_loss_is_as_set_within_three_deviations() {
        let conditions = Conditions {
            loss: share("1%"),
            ..Conditions::default()
        };
        let count = lost(&conditions).len();
        // 10,000 expected, with a deviation of sqrt(10^6 * 0.01 * 0.99) = 99.5.
        assert!((9_701..=10_299).contains(&count), "{count}");
        assert_eq!(lost(&conditions), lost(&conditions));
        assert_eq!(lost(&Conditions::default()), [0; 0]);
        let all = Conditions {
            loss: Share::ALL,
            ..Conditions::default()
        };
        assert_eq!(lost(&all).len(), SEGMENTS as usize);
    }

    #[test]
    fn bursts_are_as_long_and_as_far_apart_as_set() {
        let conditions = Conditions {
            burst_every: 1000,
            burst_length: 10,
            ..Conditions::default()
        };
        let lost = lost(&conditions);
        let starts = 1 + lost
            .windows(2)
            .filter(|pair| pair[1] != pair[0] + 1)
            .count();
        // 10^6 / 1010 bursts expected, each 10 long; a geometric law strays by its mean.
        assert!((890..=1090).contains(&starts), "{starts}");
        let tenths = lost.len() * 10 / starts;
        assert!(
            (90..=110).contains(&tenths),
            "{tenths} tenths of a segment in a burst"
        );
    }

    #[test]
    fn bursts_may_lose_less_than_everything() {
        let whole = Conditions {
            burst_every: 100,
            burst_length: 100,
            ..Conditions::default()
        };
        let half = Conditions {
            burst_loss: share("50%"),
            ..whole
        };
        let (whole, half) = (lost(&whole).len(), lost(&half).len());
        assert!((450_000..550_000).contains(&whole), "{whole}");
        assert!((225_000..275_000).contains(&half), "{half}");
    }
}
