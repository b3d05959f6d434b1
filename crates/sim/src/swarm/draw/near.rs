//! Depots near the centre, at which stage-ins may wait.

use std::fmt::Write;

use super::{dear::Dear, owners::Owners, stage_ins, tenths};
use crate::random::Dice;

/// Writes stage-ins, in half of all worlds.
pub(super) fn bring_in(
    depots: u64,
    seed: u64,
    owners: Owners,
    pauses: &mut Dice,
    text: &mut String,
) {
    let dice = &mut Dice::new(seed, "swarm of stage-ins");
    if dice.chance(500) {
        let apart = &mut Dice::new(seed, "swarm of holdings");
        let near = Near::draw(depots, seed);
        near.write(text);
        let outward = Dice::new(seed, "swarm of stage-outs");
        let dear = Dear::draw(seed);
        let more = (near, outward, dear, owners);
        stage_ins(dice, apart, more, pauses, text);
    }
}

/// Depots that are also sources.
pub(super) struct Near {
    depots: Vec<u64>,
    dice: Dice,
}

impl Near {
    /// Draws none in half of all worlds. Uses dice of its own, so that the rest stays unchanged.
    pub(super) fn draw(depots: u64, seed: u64) -> Self {
        let mut dice = Dice::new(seed, "swarm of depots near");
        let is_any = dice.chance(500);
        let depots = (1..=depots).filter(|_| is_any && dice.chance(500));
        Self {
            depots: depots.collect(),
            dice,
        }
    }

    /// Writes the path back from each depot.
    pub(super) fn write(&self, text: &mut String) {
        let mut dice = self.dice.clone();
        for depot in &self.depots {
            let (rate, latency) = (tenths(dice.between(5, 900)), dice.between(1, 50));
            let _ = writeln!(
                text,
                "\n[[source]]\nname = \"near-{depot}\"\nnear = \"depot-{depot}\"\nrate_mib_per_s = {rate}\nlatency_ms = {latency}"
            );
        }
    }

    /// Lets the last stage-in wait at some of them, usually.
    pub(super) fn wait(&mut self, text: &mut String) {
        let dice = &mut self.dice;
        let via = self.depots.iter().filter(|_| dice.chance(700));
        let via: Vec<String> = via.map(|depot| format!("\"depot-{depot}\"")).collect();
        if !via.is_empty() {
            let _ = writeln!(text, "via = [{}]", via.join(", "));
        }
    }
}
