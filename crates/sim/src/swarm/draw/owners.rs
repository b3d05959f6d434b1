//! Depots that belong to an owner.

use std::fmt::Write;

use super::index;
use crate::random::Dice;

/// Owners that are drawn.
const OWNERS: [&str; 2] = ["alice", "bob"];

/// Draws owners, in some worlds, from dice of their own.
pub(super) struct Owners {
    is_any: bool,
    dice: Dice,
}

impl Owners {
    pub(super) fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "swarm of owners");
        Self {
            is_any: dice.chance(200),
            dice,
        }
    }

    /// Writes the owner of the last depot, now and then.
    pub(super) fn place(&mut self, text: &mut String) {
        self.write(text, 300);
    }

    /// Writes the owner of the last request or stage-in, usually.
    pub(super) fn ask(&mut self, text: &mut String) {
        self.write(text, 800);
    }

    fn write(&mut self, text: &mut String, permille: u64) {
        if self.is_any && self.dice.chance(permille) {
            let owner = OWNERS[index(self.dice.between(0, OWNERS.len() as u64 - 1))];
            let _ = writeln!(text, "owner = \"{owner}\"");
        }
    }
}
