//! Draws a scenario: a random world with all kinds of faults.

mod circuits;
mod dear;
mod near;
mod owners;
mod pauses;
mod sites;
mod space;

use std::fmt::Write;

use posthaste_core::contract::Method;

use crate::random::Dice;
use circuits::circuits;
use owners::Owners;
use pauses::pause;
use sites::Sites;
use space::{drains, neighbours};

/// Codes that are drawn, with their numbers of fragments.
const CODES: [(&str, u64); 10] = [
    ("1+0", 1),
    ("2+0", 2),
    ("1+1", 2),
    ("2+1", 3),
    ("1+2", 3),
    ("3+1", 4),
    ("2+2", 4),
    ("4+1", 5),
    ("3+2", 5),
    ("4+2", 6),
];

/// Faults with their frequencies. A source that changes ends every request, so other faults are
/// drawn more often.
const FAULTS: [(&str, u64); 9] = [
    ("dies", 20),
    ("vanishes", 15),
    ("hangs", 15),
    ("wiped", 15),
    ("slows", 20),
    ("full", 10),
    ("driver-crash", 15),
    ("source-changes", 2),
    ("file-changes", 8),
];

/// Most chunks of a request: enough for every rule to apply, few enough to play in milliseconds.
const CHUNKS_MAX: u64 = 120;

/// Draws the scenario of a seed, as TOML. Equal seeds give equal scenarios. Everything in it is a
/// plain number, so removing something leaves the rest unchanged.
#[must_use]
pub fn draw(seed: u64) -> String {
    let mut dice = Dice::new(seed, "swarm");
    let dice = &mut dice;
    let mut text = head(seed, dice);
    let depots = dice.between(1, 7);
    // With levels, some depots are nearer to destinations than others.
    let levels = if dice.chance(400) {
        dice.between(2, 3)
    } else {
        1
    };
    // Options and costs have dice of their own, so that the other values of a seed stay unchanged.
    let wishes = &mut Dice::new(seed, "wishes");
    let costs = wishes.chance(300);
    // Reservations also have dice of their own.
    let reserved = &mut Dice::new(seed, "circuits");
    let reserves = reserved.chance(350);
    // So do the places of coding.
    let coders = &mut Dice::new(seed, "coders");
    // So do pauses.
    let pauses = &mut Dice::new(seed, "pauses");
    let codes = coding(coders, &mut text);
    // So do the depots that can forward fragments in flight.
    let followers = &mut Dice::new(seed, "followers");
    // So do the depots that can reserve space, and other parties that use it.
    let keepers = &mut Dice::new(seed, "spaces");
    let keeps = keepers.chance(500);
    let mut sites = Sites::draw(depots, seed);
    let mut owners = Owners::draw(seed);
    for number in 1..=depots {
        depot(number, dice, &mut text);
        if keeps && keepers.chance(700) {
            text.push_str("reserves = true\n");
        }
        if followers.chance(600) {
            text.push_str("follows = true\n");
        }
        if codes && coders.chance(200) {
            text.push_str("codes = false\n");
        }
        if costs {
            price(wishes, &mut text);
        }
        if levels > 1 {
            let _ = writeln!(text, "level = {}", dice.between(1, levels));
        }
        sites.place(&mut text);
        owners.place(&mut text);
    }
    for _ in 0..dice.between(1, 6) {
        request(depots, dice, &mut text);
        wish(costs, wishes, &mut text);
        pause(pauses, &mut text);
        if reserves && reserved.chance(300) {
            text.push_str("reserve = \"always\"\n");
        }
        sites.lend(&mut text);
        owners.ask(&mut text);
    }
    if reserves {
        circuits(depots, reserved, &mut text);
    }
    for _ in 0..dice.between(0, 8) {
        fault(depots, dice, &mut text);
    }
    if keeps {
        neighbours(depots, keepers, &mut text);
    }
    // Dice of their own leave the rest unchanged.
    drains(depots, &mut Dice::new(seed, "drains"), &mut text);
    sites.write(&mut text);
    near::bring_in(depots, seed, owners, pauses, &mut text);
    text
}

/// Writes the place of coding, in some worlds. Returns whether it did.
fn coding(coders: &mut Dice, text: &mut String) -> bool {
    let codes = coders.chance(400);
    if codes {
        let place = if coders.chance(600) { "relays" } else { "auto" };
        let at = text.find("snapshot_every").unwrap_or(0);
        text.insert_str(at, &format!("encode = \"{place}\"\n"));
    }
    codes
}

/// Returns the settings of the whole world.
fn head(seed: u64, dice: &mut Dice) -> String {
    let mut text = format!(
        "name = \"swarm-{seed}\"\nsummary = \"Drawn by the swarm with seed {seed}.\"\n\
         horizon_s = 6000\nsnapshot_every = {}\n",
        dice.between(5, 120)
    );
    if dice.chance(300) {
        let (rate, known) = (dice.between(2, 60), dice.chance(500));
        let _ = writeln!(text, "egress_mib_per_s = {rate}\negress_known = {known}");
    }
    for key in ["corrupt_permille", "answer_lost_permille"] {
        if dice.chance(300) {
            let _ = writeln!(text, "{key} = {}", dice.between(1, 20));
        }
    }
    text
}

/// Writes sources, stage-ins and the sources' faults.
fn stage_ins(
    dice: &mut Dice,
    apart: &mut Dice,
    (mut near, mut outward, mut dear, mut owners): (near::Near, Dice, dear::Dear, Owners),
    pauses: &mut Dice,
    text: &mut String,
) {
    let sources = dice.between(1, 4);
    for number in 1..=sources {
        let (rate, latency) = (tenths(dice.between(5, 300)), dice.between(1, 150));
        let _ = writeln!(
            text,
            "\n[[source]]\nname = \"source-{number}\"\nrate_mib_per_s = {rate}\nlatency_ms = {latency}"
        );
        dear.price(text);
        if dice.chance(500) {
            text.push_str("advertises = true\n");
        }
        if dice.chance(600) {
            let _ = writeln!(text, "jitter_permille = {}", dice.between(20, 400));
        }
        if dice.chance(150) {
            let low = dice.between(0, 600);
            let (high_s, low_s) = (dice.between(5, 200), dice.between(1, 60));
            let _ = writeln!(
                text,
                "varies = {{ two_state = {{ low_permille = {low}, high_mean_s = {high_s}, low_mean_s = {low_s} }} }}"
            );
        }
    }
    for _ in 0..dice.between(1, 4) {
        let named = stage_in(sources, dice, text);
        holdings(&named, apart, text);
        near.wait(text);
        owners.ask(text);
        dear.budget(text);
        pause(pauses, text);
        if outward.chance(250) {
            text.push_str("release = true\n");
        }
    }
    for _ in 0..dice.between(0, 5) {
        let kinds = ["dies", "vanishes", "slows", "source-changes"];
        // A source that changes ends all its stage-ins, so other faults are drawn more often.
        let last = if dice.chance(100) { 3 } else { 2 };
        let kind = kinds[index(dice.between(0, last))];
        let (at, source) = (tenths(dice.between(0, 3000)), dice.between(1, sources));
        let _ = writeln!(
            text,
            "\n[[fault]]\nat_s = {at}\nsource = \"source-{source}\"\nkind = \"{kind}\""
        );
        if kind == "slows" {
            let _ = writeln!(text, "rate_mib_per_s = {}", tenths(dice.between(0, 50)));
        }
        if dice.chance(700) {
            let _ = writeln!(text, "for_s = {}", tenths(dice.between(1, 1500)));
        }
    }
    if dice.chance(300) {
        let (at, lasts) = (tenths(dice.between(0, 3000)), tenths(dice.between(1, 300)));
        let _ = writeln!(
            text,
            "\n[[fault]]\nat_s = {at}\nkind = \"driver-crash\"\nfor_s = {lasts}"
        );
    }
}

/// Writes a stage-in. Returns its sources.
fn stage_in(sources: u64, dice: &mut Dice, text: &mut String) -> Vec<String> {
    let (chunks, quarters) = (dice.between(0, CHUNKS_MAX), dice.between(1, 24));
    let deadline = dice.between(10, 900);
    let _ = writeln!(
        text,
        "\n[[stage-in]]\nat_s = {}\nsize_mib = {}\nchunk_mib = {}\ndeadline_s = {deadline}",
        tenths(dice.between(0, 2000)),
        quarter(chunks * quarters),
        quarter(quarters),
    );
    if dice.chance(500) {
        let _ = writeln!(text, "not_before_s = {}", dice.between(1, deadline));
    }
    let all = (1..=sources).map(|source| format!("\"source-{source}\""));
    let mut all: Vec<String> = all.collect();
    if dice.chance(300) {
        let named: Vec<String> = all.iter().filter(|_| dice.chance(700)).cloned().collect();
        let _ = writeln!(text, "sources = [{}]", named.join(", "));
        if !named.is_empty() {
            all = named;
        }
    }
    if dice.chance(350) {
        text.push_str("best_effort = true\n");
    }
    if dice.chance(150) {
        let _ = writeln!(
            text,
            "rate_max_mib_per_s = {}",
            tenths(dice.between(5, 200))
        );
    }
    if dice.chance(150) {
        let _ = writeln!(
            text,
            "priority = \"{}\"",
            ["low", "high"][index(dice.between(0, 1))]
        );
    }
    if dice.chance(100) {
        let _ = writeln!(text, "cancel_after_s = {}", tenths(dice.between(0, 1200)));
    }
    all
}

/// Writes the holdings of the last stage-in. Usually each source holds everything.
fn holdings(sources: &[String], dice: &mut Dice, text: &mut String) {
    if sources.len() < 2 || dice.chance(500) {
        return;
    }
    let holdings: Vec<String> = (0..dice.between(1, 5))
        .map(|_| {
            let mut holders: Vec<&str> = sources.iter().map(String::as_str).collect();
            holders.retain(|_| dice.chance(500));
            if holders.is_empty() {
                holders = vec![&sources[index(dice.between(0, sources.len() as u64 - 1))]];
            }
            let (weight, holders) = (dice.between(1, 9), holders.join(", "));
            format!("{{ weight = {weight}, sources = [{holders}] }}")
        })
        .collect();
    let _ = writeln!(text, "holdings = [{}]", holdings.join(", "));
}

fn depot(number: u64, dice: &mut Dice, text: &mut String) {
    let _ = writeln!(
        text,
        "\n[[depot]]\nname = \"depot-{number}\"\nrate_mib_per_s = {}\nlatency_ms = {}\ncapacity_mib = {}",
        tenths(dice.between(5, 300)),
        dice.between(1, 150),
        dice.between(30, 3000)
    );
    if dice.chance(500) {
        text.push_str("advertises = true\n");
    }
    if dice.chance(600) {
        let _ = writeln!(text, "jitter_permille = {}", dice.between(20, 400));
    }
    weather(dice, text);
}

/// Writes recurring failures, now and then.
fn failing(dice: &mut Dice, text: &mut String) {
    if dice.chance(80) {
        let (mean, repair, wiped) = (
            dice.between(100, 3000),
            dice.between(2, 90),
            dice.between(0, 500),
        );
        let _ = writeln!(
            text,
            "mtbf_s = {mean}\nmttr_s = {repair}\nwiped_permille = {wiped}"
        );
    }
}

/// Writes changes of a depot and its path over time, now and then.
fn weather(dice: &mut Dice, text: &mut String) {
    if dice.chance(100) {
        let (loss, streams) = (dice.between(1, 10), dice.between(1, 64));
        let _ = writeln!(text, "loss_permille = {loss}\nstreams = {streams}");
    }
    if dice.chance(100) {
        let low = dice.between(0, 600);
        let (high_s, low_s) = (dice.between(5, 200), dice.between(1, 60));
        let _ = writeln!(
            text,
            "varies = {{ two_state = {{ low_permille = {low}, high_mean_s = {high_s}, low_mean_s = {low_s} }} }}"
        );
    }
    failing(dice, text);
    if dice.chance(80) {
        let from = dice.between(1, 400);
        let _ = writeln!(
            text,
            "offline_s = [[{from}, {}]]",
            from + dice.between(1, 120)
        );
    }
}

fn request(depots: u64, dice: &mut Dice, text: &mut String) {
    let destination = dice.chance(300).then(|| dice.between(1, depots));
    let staging = depots - u64::from(destination.is_some());
    // Now and then a code has more fragments than there are depots.
    let most = if dice.chance(60) { 6 } else { staging.max(1) };
    let codes = CODES.iter().filter(|(_, total)| *total <= most).count() as u64;
    let (code, _) = CODES[index(dice.between(0, codes - 1))];
    let (chunks, quarters) = (dice.between(1, CHUNKS_MAX), dice.between(1, 24));
    // Now and then the destination must replace a depot. Earlier draws decide, so that the other
    // worlds stay unchanged.
    let stands_in = destination.is_some() && (chunks + 2 * quarters) % 4 == 1;
    let mut one_more = CODES.iter().rev();
    let one_more = one_more.find(|(code, total)| *total == staging + 1 && !code.ends_with("+0"));
    let code = one_more
        .filter(|_| stands_in)
        .map_or(code, |(code, _)| code);
    let _ = writeln!(
        text,
        "\n[[request]]\nat_s = {}\nsize_mib = {}\nchunk_mib = {}\ndeadline_s = {}\ncode = \"{code}\"\n\
         files = 2\nrelease = {}",
        tenths(dice.between(0, 2000)),
        quarter(chunks * quarters),
        quarter(quarters),
        dice.between(10, 900),
        dice.chance(700)
    );
    if let Some(destination) = destination {
        let _ = writeln!(text, "destination = \"depot-{destination}\"");
        let more = destination % depots + 1;
        if (chunks + quarters) % 2 == 0 && more != destination {
            let _ = writeln!(text, "destinations = [\"depot-{more}\"]");
        }
        // Earlier draws decide this too, so that the other worlds stay unchanged.
        if quarters % 5 < 3 {
            let by_s = 10 + (chunks * 37 + quarters * 101) % 1490;
            let _ = writeln!(text, "deliver_by_s = {by_s}");
        }
    }
    if dice.chance(200) {
        let others = (1..=depots).filter(|depot| Some(*depot) != destination);
        let via: Vec<String> = others
            .filter(|_| dice.chance(800))
            .map(|depot| format!("\"depot-{depot}\""))
            .collect();
        let _ = writeln!(text, "via = [{}]", via.join(", "));
    }
    // Earlier draws decide, as above.
    let (pinned, is_pinned) = (
        1 + (chunks * 7 + quarters) % depots,
        (chunks + 3 * quarters) % 5 == 0,
    );
    let is_end = |end: u64| end == pinned || end % depots + 1 == pinned;
    if is_pinned && !destination.is_some_and(is_end) {
        let _ = writeln!(text, "pin = [\"depot-{pinned}\"]");
    }
    for (key, permille) in [("encrypted", 150), ("best_effort", 350)] {
        if dice.chance(permille) {
            let _ = writeln!(text, "{key} = true");
        }
    }
    if dice.chance(200) {
        let (name, _) = Method::NAMES[index(dice.between(0, Method::NAMES.len() as u64 - 1))];
        let _ = writeln!(text, "optimizer = \"{name}\"");
    }
    for (key, low, high) in [("cancel_after_s", 0, 1200), ("delivered_after_s", 50, 3000)] {
        if dice.chance(100) {
            let _ = writeln!(text, "{key} = {}", tenths(dice.between(low, high)));
        }
    }
}

/// Writes the prices of a depot, in cents; some depots are free.
fn price(dice: &mut Dice, text: &mut String) {
    for key in ["usd_per_gb", "usd_per_gb_month"] {
        if dice.chance(600) {
            let (dollars, cents) = (dice.between(0, 4), dice.between(1, 99));
            let _ = writeln!(text, "{key} = {dollars}.{cents:02}");
        }
    }
}

/// Writes a user's options beyond a deadline, now and then.
fn wish(costs: bool, dice: &mut Dice, text: &mut String) {
    if costs && dice.chance(600) {
        // Up to ten dollars a gigabyte, and up to a gigabyte or two: mostly too little, or too
        // much.
        let cents = dice.between(0, 99);
        let dollars = dice.between(0, 5);
        let _ = writeln!(text, "budget_usd = {dollars}.{cents:02}");
    }
    if dice.chance(100) {
        let _ = writeln!(text, "purge_s = {}", tenths(dice.between(100, 12_000)));
    }
    if dice.chance(150) {
        text.push_str("lazy_repair = true\n");
    }
    if dice.chance(250) {
        let _ = writeln!(text, "safe_with = {}", dice.between(0, 2));
    }
    if dice.chance(150) {
        let rate = tenths(dice.between(2, 200));
        let _ = writeln!(text, "rate_max_mib_per_s = {rate}");
    }
}

fn fault(depots: u64, dice: &mut Dice, text: &mut String) {
    let all = FAULTS.iter().map(|(_, weight)| weight).sum::<u64>();
    let mut drawn = dice.between(1, all);
    let kind = FAULTS.iter().find(|(_, weight)| {
        let is_it = drawn <= *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it
    });
    let kind = kind.map_or("dies", |(kind, _)| kind);
    let _ = writeln!(
        text,
        "\n[[fault]]\nat_s = {}\ndepot = \"depot-{}\"\nkind = \"{kind}\"",
        tenths(dice.between(0, 3000)),
        dice.between(1, depots)
    );
    if kind == "slows" {
        let _ = writeln!(text, "rate_mib_per_s = {}", tenths(dice.between(0, 50)));
    }
    let lasts = dice.between(1, 1500);
    if kind == "driver-crash" || dice.chance(700) {
        let _ = writeln!(text, "for_s = {}", tenths(lasts));
    }
}

fn index(drawn: u64) -> usize {
    usize::try_from(drawn).unwrap_or(0)
}

fn tenths(count: u64) -> String {
    format!("{}.{}", count / 10, count % 10)
}

fn quarter(count: u64) -> String {
    format!("{}.{:02}", count / 4, count % 4 * 25)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;

    #[test]
    fn what_is_drawn_is_sound_and_everything_is_drawn_some_time() {
        let all: Vec<String> = (0..300).map(draw).collect();
        for (seed, text) in all.iter().enumerate() {
            Scenario::parse(text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        }
        let all = all.concat();
        for (kind, _) in FAULTS {
            assert!(all.contains(&format!("kind = \"{kind}\"")), "{kind}");
        }
        for (code, _) in CODES {
            assert!(all.contains(&format!("code = \"{code}\"")), "{code}");
        }
        for key in [
            "egress_mib_per_s",
            "destination",
            "destinations",
            "deliver_by_s",
            "via",
            "cancel_after_s",
            "pause_after_s",
            "pause_for_s",
            "optimizer",
            "encrypted",
            "loss_permille",
            "two_state",
            "mtbf_s",
            "offline_s",
            "level = 3",
            "rate_max_mib_per_s",
            "budget_usd",
            "lazy_repair",
            "safe_with",
            "purge_s",
            "usd_per_gb_month",
            "[[stage-in]]",
            "near = \"depot-1\"",
            "via = [\"depot-1\"",
            "not_before_s",
            "rate_max_mib_per_s",
            "source = \"source-1\"",
            "encode = \"relays\"",
            "encode = \"auto\"",
            "codes = false",
            "follows = true",
            "kind = \"drains\"",
            "kind = \"empties\"",
            "domain = \"site-1\"\nkind = \"wiped\"",
            "domain = \"site-1\"\nkind = \"offline\"",
            "[[domain]]\nname = \"site-3\"\nmtbf_s",
            "domain = \"site-1,provider-1\"",
            "domain = \"provider-2\"\nkind = \"wiped\"",
            "landmark = true",
            "owner = \"alice\"",
            "hours = \"08:",
            "load_max",
            "lent = [{ depot = \"depot-1\", hours",
            "load_below",
            "[[link]]",
            "[[background]]\non = \"campus\"",
            "[[background]]\non = \"depot-1\"",
        ] {
            assert!(all.contains(key), "{key}");
        }
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
