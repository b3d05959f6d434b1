use std::fmt::Write;

use super::tenths;
use crate::random::Dice;

/// Its user lets it wait, now and then, and mostly go on again.
pub(super) fn pause(dice: &mut Dice, text: &mut String) {
    if !dice.chance(150) {
        return;
    }
    let _ = writeln!(text, "pause_after_s = {}", tenths(dice.between(0, 1200)));
    if dice.chance(850) {
        let _ = writeln!(text, "pause_for_s = {}", tenths(dice.between(1, 4000)));
    }
}
