//! Common traits and terms of depots: failure domains, traffic of others, hours and load.

use std::fmt::Write;

use super::{index, tenths};
use crate::random::Dice;

/// Minutes from a run's start, at 08:00, within which hours begin. A run lasts a hundred minutes at
/// most.
const HOURS_BEGIN_MAX: u64 = 100;

/// Faults of a whole domain.
const FAULTS: [&str; 6] = ["dies", "vanishes", "hangs", "wiped", "slows", "offline"];

/// Traits drawn for a world, from dice of their own, so that the rest stays unchanged.
pub(super) struct Sites {
    depots: u64,
    /// Number of domains.
    domains: u64,
    /// Number of provider domains, which overlap the others.
    providers: u64,
    keeps_hours: bool,
    is_loaded: bool,
    has_landmarks: bool,
    dice: Dice,
    /// Dice for provider domains.
    more: Dice,
}

impl Sites {
    pub(super) fn draw(depots: u64, seed: u64) -> Self {
        let mut dice = Dice::new(seed, "swarm of sites");
        let domains = if dice.chance(350) {
            dice.between(1, 3)
        } else {
            0
        };
        let mut more = Dice::new(seed, "swarm of providers");
        let providers = match domains > 0 && more.chance(500) {
            true => more.between(1, 3),
            false => 0,
        };
        Self {
            depots,
            domains,
            providers,
            keeps_hours: dice.chance(250),
            is_loaded: dice.chance(200),
            has_landmarks: dice.chance(200),
            dice,
            more,
        }
    }

    /// Writes the domains, hours and load of the last depot.
    pub(super) fn place(&mut self, text: &mut String) {
        let dice = &mut self.dice;
        let mut domains: Vec<String> = Vec::new();
        if self.domains > 0 && dice.chance(800) {
            domains.push(format!("site-{}", dice.between(1, self.domains)));
        }
        if self.providers > 0 && self.more.chance(700) {
            domains.push(format!("provider-{}", self.more.between(1, self.providers)));
        }
        if !domains.is_empty() {
            let _ = writeln!(text, "domain = \"{}\"", domains.join(","));
        }
        if self.has_landmarks && dice.chance(400) {
            text.push_str("landmark = true\n");
        }
        // A depot with absences has no hours.
        let last = text.rfind("[[depot]]").unwrap_or(0);
        if self.keeps_hours && dice.chance(500) && !text[last..].contains("offline_s") {
            let _ = writeln!(text, "hours = \"{}\"", hours(dice));
        }
        if self.is_loaded && dice.chance(600) {
            let mut at = 0;
            let mut told: Vec<String> = (0..dice.between(1, 4))
                .map(|_| {
                    at += dice.between(1, 900);
                    format!("[{at}, {}]", tenths(dice.between(0, 12)))
                })
                .collect();
            // The load ends at zero, because a request that waits for ever can't be judged.
            told.push(format!("[{}, 0]", at + 1));
            let _ = writeln!(text, "load = [{}]", told.join(", "));
            if dice.chance(400) {
                let _ = writeln!(text, "load_max = {}", tenths(dice.between(1, 10)));
            }
        }
    }

    /// Lends a depot for the last request alone, now and then.
    pub(super) fn lend(&mut self, text: &mut String) {
        let dice = &mut self.dice;
        if !(self.keeps_hours || self.is_loaded) || !dice.chance(300) {
            return;
        }
        let depot = format!("\"depot-{}\"", dice.between(1, self.depots));
        // A depot lent for a request is never its destination.
        let last = text.rfind("[[request]]").unwrap_or(0);
        let mut lines = text[last..].lines();
        if lines.any(|line| line.starts_with("destination") && line.contains(&depot)) {
            return;
        }
        let mut lent = format!("depot = {depot}");
        if self.keeps_hours {
            let _ = write!(lent, ", hours = \"{}\"", hours(dice));
        }
        if self.is_loaded {
            let _ = write!(lent, ", load_below = {}", tenths(dice.between(1, 10)));
        }
        let _ = writeln!(text, "lent = [{{ {lent} }}]");
    }

    /// Writes the domains with their faults, and the traffic of others.
    pub(super) fn write(&mut self, text: &mut String) {
        let dice = &mut self.dice;
        for number in 1..=self.domains {
            let _ = writeln!(text, "\n[[domain]]\nname = \"site-{number}\"");
            if dice.chance(300) {
                let (mean, repair) = (dice.between(200, 3000), dice.between(2, 90));
                let wiped = dice.between(0, 500);
                let _ = writeln!(
                    text,
                    "mtbf_s = {mean}\nmttr_s = {repair}\nwiped_permille = {wiped}"
                );
            }
        }
        for _ in 0..self.domains {
            if dice.chance(500) {
                let domain = dice.between(1, self.domains);
                fault(&format!("site-{domain}"), dice, text);
            }
        }
        for number in 1..=self.providers {
            let _ = writeln!(text, "\n[[domain]]\nname = \"provider-{number}\"");
            if self.more.chance(500) {
                fault(&format!("provider-{number}"), &mut self.more, text);
            }
        }
        let mut on: Vec<String> = Vec::new();
        if dice.chance(250) {
            let first = dice.between(1, self.depots);
            let last = dice.between(first, self.depots);
            let names: Vec<String> = (first..=last)
                .map(|depot| format!("\"depot-{depot}\""))
                .collect();
            let (names, rate) = (names.join(", "), tenths(dice.between(20, 600)));
            let _ = writeln!(
                text,
                "\n[[link]]\nname = \"campus\"\ndepots = [{names}]\nrate_mib_per_s = {rate}"
            );
            if dice.chance(300) {
                let _ = writeln!(text, "jitter_permille = {}", dice.between(20, 400));
            }
            on.push("campus".into());
        }
        if dice.chance(300) {
            on.push(format!("depot-{}", dice.between(1, self.depots)));
        }
        for on in on {
            let (rate, sends_s) = (tenths(dice.between(5, 200)), dice.between(5, 200));
            let rests_s = dice.between(5, 200);
            let _ = writeln!(
                text,
                "\n[[background]]\non = \"{on}\"\nrate_mib_per_s = {rate}\non_mean_s = {sends_s}\noff_mean_s = {rests_s}"
            );
        }
    }
}

/// Draws hours that begin, end or both during a run.
fn hours(dice: &mut Dice) -> String {
    let begin = 8 * 60 + dice.between(0, HOURS_BEGIN_MAX);
    let end = begin + dice.between(5, 90);
    let clock = |minutes: u64| format!("{:02}:{:02}", minutes / 60, minutes % 60);
    // Sometimes the hours are inverted: away meanwhile.
    match dice.chance(400) {
        true => format!("{}-{}", clock(end), clock(begin)),
        false => format!("{}-{}", clock(begin), clock(end)),
    }
}

fn fault(domain: &str, dice: &mut Dice, text: &mut String) {
    let kind = FAULTS[index(dice.between(0, FAULTS.len() as u64 - 1))];
    let at = tenths(dice.between(0, 3000));
    let _ = writeln!(
        text,
        "\n[[fault]]\nat_s = {at}\ndomain = \"{domain}\"\nkind = \"{kind}\""
    );
    if kind == "slows" {
        let _ = writeln!(text, "rate_mib_per_s = {}", tenths(dice.between(0, 50)));
    }
    if dice.chance(800) {
        let _ = writeln!(text, "for_s = {}", tenths(dice.between(1, 1500)));
    }
}
