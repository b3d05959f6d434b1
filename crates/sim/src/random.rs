//! Randomness that a seed reproduces: one stream for each thing in the world, so that a change to
//! one does not move the dice of another.

/// PCG-XSH-RR 64/32 (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good
/// Algorithms for Random Number Generation", HMC-CS-2014-0905).
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    state: u64,
    stream: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Dice {
    /// The dice of the thing called `name` in the run with this seed.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a keeps streams of different names apart.
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

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let wide = u64::from(self.next()) << 32 | u64::from(self.next());
        match (high.max(low) - low).checked_add(1) {
            Some(range) => low + wide % range,
            None => wide,
        }
    }

    /// True `permille` times in a thousand.
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
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut dice = Dice::new(7, "range");
        let drawn: Vec<u64> = (0..1000).map(|_| dice.between(3, 6)).collect();
        assert_eq!(
            (drawn.iter().min(), drawn.iter().max()),
            (Some(&3), Some(&6))
        );
    }
}
