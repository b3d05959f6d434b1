//! Prices of sources, and budgets of stage-ins.

use std::fmt::Write;

use crate::random::Dice;

/// Prices of reading, in some worlds.
pub(super) struct Dear {
    is_any: bool,
    dice: Dice,
}

impl Dear {
    /// Draws from dice of its own, so that the rest stays unchanged.
    pub(super) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "swarm of prices of sources");
        let is_any = dice.chance(400);
        Self { is_any, dice }
    }

    /// Writes the price of the last source.
    pub(super) fn price(&mut self, text: &mut String) {
        if self.is_any && self.dice.chance(600) {
            let cents = self.dice.between(0, 200);
            let _ = writeln!(text, "usd_per_gb_out = {}.{:02}", cents / 100, cents % 100);
            if self.dice.chance(300) {
                let cents = self.dice.between(1, 99);
                let _ = writeln!(text, "usd_per_1000_gets = 0.{cents:02}");
            }
        }
    }

    /// Writes the budget of the last stage-in. For up to a gigabyte or two it is mostly too little
    /// or too much.
    pub(super) fn budget(&mut self, text: &mut String) {
        if self.is_any && self.dice.chance(600) {
            let cents = self.dice.between(0, 150);
            let _ = writeln!(text, "budget_usd = {}.{:02}", cents / 100, cents % 100);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_worlds_have_prices_of_sources_and_budgets_of_stage_ins() {
        let mut all = (String::new(), String::new());
        let mut free = 0;
        for seed in 0..50 {
            let mut dear = Dear::draw(seed);
            free += u32::from(!dear.is_any);
            for _ in 0..3 {
                dear.price(&mut all.0);
                dear.budget(&mut all.1);
            }
        }
        assert!((10..45).contains(&free), "{free}");
        assert!(all.0.contains("usd_per_gb_out") && all.0.contains("usd_per_1000_gets"));
        assert!(all.1.contains("budget_usd"));
    }
}
