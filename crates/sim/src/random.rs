//! Randomness that a seed reproduces. Each thing in the world has its own stream, so a change to
//! one does not affect another.

/// Random generator: PCG-XSH-RR 64/32 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient
/// Statistically Good Algorithms for Random Number Generation", HMC-CS-2014-0905).
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    state: u64,
    stream: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Dice {
    /// Returns the dice of the stream called `name` in the run with this seed.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a separates the streams of different names.
        let stream = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut dice = Self {
            state: 0,
            stream: stream << 1 | 1,
        };
        dice.next();
        dice.state = dice.state.wrapping_add(seed);
        dice.next();
        dice
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the generator's output is the low word"
    )]
    fn next(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.stream);
        let shifted = ((old >> 18 ^ old) >> 27) as u32;
        shifted.rotate_right((old >> 59) as u32)
    }

    fn wide(&mut self) -> u64 {
        let high = u64::from(self.next());
        high << 32 | u64::from(self.next())
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let wide = self.wide();
        match (high.max(low) - low).checked_add(1) {
            Some(range) => low + wide % range,
            None => wide,
        }
    }

    /// Returns an exponentially distributed time with this mean, by inversion. Integer arithmetic
    /// gives the same result on every machine.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        /// Natural logarithm of 2, in units of 2^-32.
        const LN_2: u128 = 2_977_044_472;
        let drawn = self.wide() | 1;
        let zeros = drawn.leading_zeros();
        // The binary logarithm, a bit for each squaring of the mantissa (Knuth, The Art of Computer
        // Programming 1, section 1.2.2).
        let mut mantissa = u128::from(drawn << zeros);
        let mut fraction = 0u128;
        for _ in 0..32 {
            mantissa = (mantissa * mantissa) >> 63;
            let is_over = mantissa >> 64;
            mantissa >>= is_over;
            fraction = (fraction << 1) | is_over;
        }
        let below_one = ((u128::from(zeros) + 1) << 32) - fraction;
        let drawn = (u128::from(mean) * ((below_one * LN_2) >> 32)) >> 32;
        u64::try_from(drawn).unwrap_or(u64::MAX)
    }

    /// Returns a place among `count`.
    pub(crate) fn place(&mut self, count: usize) -> usize {
        let last = (count as u64).saturating_sub(1);
        usize::try_from(self.between(0, last)).unwrap_or(0)
    }

    /// Returns true with probability `permille` / 1000.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.between(0, 999) < permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers_and_others_do_not() {
        let draw = |seed, name| {
            let mut dice = Dice::new(seed, name);
            (0..8)
                .map(|_| dice.between(0, 1_000_000))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
    }

    #[test]
    fn exponential_times_have_their_mean_and_their_tail() {
        let mut dice = Dice::new(3, "times");
        let drawn: Vec<u64> = (0..20_000).map(|_| dice.exponential(1_000_000)).collect();
        let mean = drawn.iter().sum::<u64>() / 20_000;
        assert!((980_000..1_020_000).contains(&mean), "{mean}");
        // Shares of e^-1 and e^-3 are longer than one and three means.
        let longer = |than| drawn.iter().filter(|time| **time > than).count();
        assert!((7_150..7_560).contains(&longer(1_000_000)));
        assert!((910..1_090).contains(&longer(3_000_000)));
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut dice = Dice::new(7, "range");
        let drawn: Vec<u64> = (0..1000).map(|_| dice.between(3, 6)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&3), Some(&6))
        );
    }
}
