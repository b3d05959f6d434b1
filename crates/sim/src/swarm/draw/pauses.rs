use std::fmt::Write;

use super::tenths;
use crate::random::Dice;

/// Writes a pause by the user, now and then, and usually its end.
pub(super) fn pause(dice: &mut Dice, text: &mut String) {
    if !dice.chance(150) {
        return;
    }
    let _ = writeln!(text, "pause_after_s = {}", tenths(dice.between(0, 1200)));
    if dice.chance(850) {
        let _ = writeln!(text, "pause_for_s = {}", tenths(dice.between(1, 4000)));
    }
}
