//! Other parties that take space on depots, and operators that drain depots.

use std::fmt::Write;

use super::tenths;
use crate::random::Dice;

/// Writes other parties that take space.
pub(super) fn neighbours(depots: u64, dice: &mut Dice, text: &mut String) {
    for _ in 0..dice.between(0, 3) {
        let (at, depot) = (tenths(dice.between(0, 3000)), dice.between(1, depots));
        let (takes, lasts) = (dice.between(10, 2000), tenths(dice.between(10, 4000)));
        let _ = writeln!(
            text,
            "\n[[fault]]\nat_s = {at}\ndepot = \"depot-{depot}\"\nkind = \"neighbour\"\ntakes_mib = {takes}\nfor_s = {lasts}"
        );
    }
}

/// Writes drained depots, now and then.
pub(super) fn drains(depots: u64, dice: &mut Dice, text: &mut String) {
    for kind in ["drains", "empties"] {
        if !dice.chance(150) {
            continue;
        }
        let (at, depot) = (tenths(dice.between(0, 3000)), dice.between(1, depots));
        let _ = writeln!(
            text,
            "\n[[fault]]\nat_s = {at}\ndepot = \"depot-{depot}\"\nkind = \"{kind}\""
        );
        if dice.chance(500) {
            let _ = writeln!(text, "for_s = {}", tenths(dice.between(10, 4000)));
        }
    }
}
