//! Circuits of a drawn scenario, with their faults.

use std::fmt::Write as _;

use crate::random::Dice;

/// Writes a circuit or two to some of the depots: busy, expensive, slow to set up, refusing,
/// interrupted or lost.
pub(super) fn circuits(depots: u64, dice: &mut Dice, text: &mut String) {
    for number in 1..=dice.between(1, 2) {
        let (first, rate) = (dice.between(1, depots), dice.between(5, 80));
        let last = dice.between(first, depots);
        let names: Vec<String> = (first..=last)
            .map(|depot| format!("\"depot-{depot}\""))
            .collect();
        let (names, lead) = (names.join(", "), dice.between(1, 120));
        let _ = writeln!(
            text,
            "\n[[circuit]]\nname = \"circuit-{number}\"\ndepots = [{names}]\nrate_mib_per_s = {rate}\nlead_s = {lead}"
        );
        if dice.chance(300) {
            let _ = writeln!(text, "least_s = {}", dice.between(10, 600));
        }
        if dice.chance(300) {
            let _ = writeln!(text, "usd_per_hour = {}", dice.between(1, 20));
        }
        if dice.chance(400) {
            let _ = writeln!(text, "refused_permille = {}", dice.between(50, 700));
        }
        for (key, most) in [("refuses_s", 400), ("down_s", 120)] {
            if dice.chance(300) {
                let from = dice.between(0, 600);
                let until = from + dice.between(1, most);
                let _ = writeln!(text, "{key} = [[{from}, {until}]]");
            }
        }
        if dice.chance(400) {
            let (from, taken) = (dice.between(0, 400), dice.between(1, rate));
            let until = from + dice.between(10, 900);
            let _ = writeln!(text, "taken = [[{from}, {until}, {taken}]]");
        }
        if dice.chance(300) {
            let _ = writeln!(text, "fails_s = [{}]", dice.between(1, 900));
        }
        if dice.chance(300) {
            let _ = writeln!(text, "up_late_s = {}", dice.between(1, 200));
        }
        if dice.chance(300) {
            let _ = writeln!(text, "answer_s = {}", dice.between(1, 200));
        }
    }
}
