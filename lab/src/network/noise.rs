//! The generator of all chance: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
//! number generators", 2014).

use std::time::Duration;

/// A stream of uniform 64-bit numbers, determined by its seed.
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// Returns one of many streams of a seed, by its number.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed);
        let mixed = first.next() ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self(Self(mixed).next())
    }

    /// Draws the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws whether an event of this [threshold](crate::topology::Share::threshold) happens.
    pub fn happens(&mut self, threshold: u128) -> bool {
        u128::from(self.next()) < threshold
    }

    /// Draws a time from zero to `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = (u128::from(self.next()) * (most.as_nanos() + 1)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_seed_come_back_and_differ() {
        let take = |seed, stream| {
            let mut noise = Noise::new(seed, stream);
            [noise.next(), noise.next()]
        };
        assert_eq!(take(7, 1), take(7, 1));
        assert_ne!(take(7, 1), take(7, 2));
        assert_ne!(take(7, 1), take(8, 1));
    }

    #[test]
    fn times_fill_their_range() {
        let mut noise = Noise::new(1, 1);
        let most = Duration::from_millis(10);
        let times: Vec<Duration> = (0..1000).map(|_| noise.up_to(most)).collect();
        assert!(times.iter().all(|time| *time <= most));
        let mean = times.iter().sum::<Duration>() / 1000;
        assert!(
            mean.abs_diff(most / 2) < Duration::from_micros(300),
            "{mean:?}"
        );
    }
}
