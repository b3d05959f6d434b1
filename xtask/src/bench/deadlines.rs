//! `cargo xtask bench deadlines`: deadlines met by each policy, in one and the same simulated
//! world.
//!
//! `crates/sim/examples/deadlines.rs`, built for release, plays and prints each seed as soon as it
//! is over. Its lines go into a file at once, so that an interrupted run keeps its results. Here
//! the lines become a page.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs::{self, File},
    process::Command,
};

use anyhow::{Context, bail, ensure};

use super::{figures::facts, publish, say};
use crate::root;

/// Seeds of each family.
const SEEDS: u64 = 1000;
/// File of the played lines, below the project's folder.
const PLAYED: &str = "target/deadlines.tsv";
/// Fields of a line before its figures: family, summary, policy and seed.
const NAMES: usize = 4;
/// Cost of sending and keeping at list prices, in dollars for 10^12 bytes: 0.09 dollars a gigabyte
/// to leave a cloud, 0.023 to lie there for a month.
const SEND_USD: f64 = 90.0;
const KEEP_USD: f64 = 23.0;
/// The mind as it ships, and the one that only counts the deadlines that the clairvoyant meets.
const MIND: &str = "posthaste";
const CHOSEN: &str = "posthaste, asked the feasible only";
const USAGE: &str =
    "write `cargo xtask bench deadlines [--seeds N] [--after SEED] [--family NAME] [--from FILE]`";

/// Plays `--seeds N` seeds of each family or one of them, or reads the lines of an earlier `--from
/// FILE`. With `--after SEED` it continues an interrupted run and appends to its lines.
///
/// # Errors
/// Fails if the program can't be built, or prints anything but figures.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut seeds, mut after, mut family, mut from) = (SEEDS, 0, None, None);
    for pair in arguments.chunks(2) {
        match pair {
            [option, value] if option == "--seeds" => {
                seeds = value.parse().context("--seeds wants a number")?;
            }
            [option, value] if option == "--after" => {
                after = value.parse().context("--after wants a number")?;
            }
            [option, name] if option == "--family" => family = Some(name),
            [option, file] if option == "--from" => from = Some(file.clone()),
            [..] => bail!(USAGE),
        }
    }
    let from = match from {
        Some(file) => file,
        None => play(seeds, after, family)?,
    };
    let lines = fs::read_to_string(&from).with_context(|| format!("reading {from}"))?;
    let page = page(&lines, &facts())?;
    if family.is_some() {
        // The page is about all families.
        say(&page);
        return Ok(());
    }
    publish("deadlines", &page)
}

/// Plays, and returns the file of the lines.
fn play(seeds: u64, after: u64, family: Option<&String>) -> anyhow::Result<String> {
    let path = root().join(PLAYED);
    let file = File::options()
        .write(true)
        .create(true)
        .append(after > 0)
        .truncate(after == 0)
        .open(&path);
    let file = file.with_context(|| format!("creating {}", path.display()))?;
    // The last line of an interrupted run is played again.
    let before = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let whole = before.iter().rposition(|byte| *byte == b'\n');
    file.set_len(whole.map_or(0, |end| end as u64 + 1))?;
    say(&format!("what is played is written to {}", path.display()));
    let status = Command::new(std::env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "posthaste-sim"])
        .args(["--example", "deadlines", "--", "scenarios/deadlines"])
        .arg(seeds.to_string())
        .args(["--after", &after.to_string()])
        .args(family.into_iter().flat_map(|name| ["--family", name]))
        .current_dir(root())
        .stdout(file)
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "the families can't be played: {status}");
    Ok(path.to_string_lossy().into_owned())
}

/// The sums of one policy over some seeds, each with its name.
type Sums = BTreeMap<String, u128>;

/// All played lines.
#[derive(Debug, Default)]
struct Played {
    /// Families, with name, summary and results of all policies, in the order of play.
    families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
struct Family {
    summary: String,
    policies: Vec<(String, Sums)>,
    seeds: BTreeSet<u64>,
}

/// A line as it was printed.
struct Line<'a> {
    names: [&'a str; NAMES],
    figures: Vec<(&'a str, u128)>,
}

impl<'a> Line<'a> {
    fn parse(head: &[&'a str], line: &'a str) -> anyhow::Result<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        ensure!(fields.len() == head.len(), "no line of figures: {line}");
        let figure = |(name, field): (&&'a str, &&'a str)| {
            let figure = field.parse::<u128>();
            Ok((
                *name,
                figure.with_context(|| format!("no number: {field}"))?,
            ))
        };
        let figures = head.iter().zip(&fields).skip(NAMES).map(figure);
        Ok(Self {
            names: [fields[0], fields[1], fields[2], fields[3]],
            figures: figures.collect::<anyhow::Result<_>>()?,
        })
    }

    fn figure(&self, name: &str) -> u128 {
        let found = self.figures.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, figure)| *figure)
    }
}

impl Played {
    /// Sums the lines. The most deadlines that can be met with a seed are as many as any policy
    /// met: the clairvoyant, or another that found more within its effort.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let names = text.lines().next().unwrap_or_default();
        let head: Vec<&str> = names.split('\t').collect();
        ensure!(head.len() > NAMES, "nothing was played");
        // The last line of an interrupted run is incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        // A continued run begins with the names again, and may repeat lines.
        let lines = whole.lines().filter(|line| *line != names);
        let lines = lines.map(|line| Line::parse(&head, line));
        let mut lines: Vec<Line<'_>> = lines.collect::<anyhow::Result<_>>()?;
        let mut played = BTreeSet::new();
        lines.retain(|line| played.insert(line.names));
        ensure!(!lines.is_empty(), "nothing was played");
        let mut most: BTreeMap<(&str, &str), u128> = BTreeMap::new();
        for line in &lines {
            let [family, _, _, seed] = line.names;
            let most = most.entry((family, seed)).or_default();
            *most = (*most).max(line.figure("feasible")).max(line.figure("met"));
        }
        let mut played = Self::default();
        for line in &lines {
            let [family, summary, policy, seed] = line.names;
            let known = played.families.entry(family.to_owned()).or_default();
            summary.clone_into(&mut known.summary);
            known
                .seeds
                .insert(seed.parse().context("a seed is a number")?);
            let place = known.policies.iter().position(|(name, _)| name == policy);
            let place = place.unwrap_or_else(|| {
                known.policies.push((policy.to_owned(), Sums::new()));
                known.policies.len() - 1
            });
            let sums = &mut known.policies[place].1;
            for (name, figure) in &line.figures {
                *sums.entry((*name).to_owned()).or_default() += figure;
            }
            let most = most.get(&(family, seed)).copied().unwrap_or_default();
            *sums.entry("most".to_owned()).or_default() += most;
        }
        Ok(played)
    }
}

/// Returns one figure of some sums divided by another.
#[expect(clippy::cast_precision_loss, reason = "ratios for people")]
fn ratio(some: u128, all: u128) -> f64 {
    some as f64 / all.max(1) as f64
}

/// Returns the share of one sum in another, for people.
fn percent(sums: &Sums, some: &str, all: &str) -> String {
    format!("{:.1} %", 100.0 * ratio(of(sums, some), of(sums, all)))
}

fn of(sums: &Sums, name: &str) -> u128 {
    sums.get(name).copied().unwrap_or_default()
}

const HEAD: &str = "# Keeping deadlines\n\n\
    Who keeps how many deadlines in one and the same simulated world. Made by `cargo xtask bench deadlines \
    [--seeds N]`; the worlds are in [`scenarios/deadlines`](../../scenarios/deadlines), and anybody can play \
    one: `posthaste simulate scenarios/deadlines/bursts.toml --seed 7`.\n\n\
    Requests come over some minutes, each with a deadline by which all of it must be safe: whole at its \
    destination, or in fragments on depots, of which none may be lost. All \
    policies get the same inputs as the mind and give the same commands, all worlds are the same for a seed, \
    and nobody but the clairvoyant knows the future. Before the first request all see for a minute what paths \
    carry, one path a second: a centre knows its paths.\n\n\
    - **clairvoyant**: the linear program of [the plan over time](../algorithms/time-expanded-plan.md) on \
    what every path really carried, exact to the deadline. What it keeps is what **feasible** means here. It \
    maximizes how many deadlines are kept with bounded effort, so it is a bound up to that effort. Of depots that \
    lose their data it knows this much: a request that even alone is not safe at any moment before its deadline, what \
    is gone or came back empty not counted, is not feasible.\n\
    - **direct only**: whole chunks to the destination, first come, first served; and by **earliest \
    deadline first**, what is late last.\n\
    - **static split**: fragment i to the i-th depot. **round robin**: fragments over all depots that are up.\n\
    - **AIMD without deadlines**: point to point, requests side by side, concurrency by additive increase and \
    multiplicative decrease, as file transfer services do.\n\
    - **greedy plan over time**: `horizon::greedy` made anew every five seconds from measured rates, and \
    whatever is most urgent where a depot would idle. It refuses nothing.\n\
    - **posthaste**: the mind that ships, as it is; and **greedy only**, as it is where no plan over time is ever \
    asked for. **Asked the feasible only** it knows one thing more, which requests the clairvoyant keeps: nobody asks for \
    the others. The mind and the clairvoyant keep fragments of a chunk apart by \
    failure domain; the rivals do not, and what they store counts as safe all the same.\n\
    - **clairvoyant, with 5 % less**: the clairvoyant where every path and the way out carry 5 % less. So tight are these \
    worlds: who knows all that comes, but wastes so much, keeps no more.\n\n\
    Columns: **kept**, deadlines by number, of as many as can be kept: where not all can, which ones is for each to \
    choose, and where somebody kept more than the clairvoyant found in its effort, so many can be; **feasible met**, of \
    the very requests the clairvoyant keeps, **feasible refused** and **feasible missed**, those of them that were \
    refused at submission, and accepted and not kept; **broken promises**, of all that were accepted; **infeasible \
    refused** at submission, of those that neither the clairvoyant nor the policy keeps, and of these **of what could be foreseen**, which the \
    clairvoyant could not keep either, beside what it does keep, had no site gone away, its path carrying on at its rate: the \
    others were made infeasible by failures after they were asked for; **moved**, bytes sent for each \
    byte that the redundancy chosen needs of what was safe in the end, a byte for each of a chunk that went whole to its \
    destination and all fragments of one that was coded: repairs and what was sent in vain is what is above 1, and what \
    depots send on to destinations afterwards is not counted; \
    **cost** of a terabyte that was safe in time at list prices, 0.09 $ a gigabyte sent and 0.023 $ a gigabyte kept for a \
    month; **fan-out**, depots and destinations a request was sent to; **churn**, bytes sent that were never stored.\n";

const WHY: &str = "\nWhat is missing, and why. The row that is asked the feasible only says what unknown requests cost: what it loses \
    is lost by the mind itself, which knows neither rates nor failures to come, and forecasts both.\n\n\
    - **storage**: refusals for want of space. \
    What is safe is delivered to the destination, which is no part of what the clairvoyant has to do, and until all of it is there it lies on \
    depots as well. Depots evict it then; of what is refused all the same most finds less space in all than it has bytes: larger requests were taken before, which whoever knows who comes refuses.\n\
    - **failures**: promises are broken, hardly anything is refused. What depots lose has to be sent again, and \
    forecasts do not count on it; requests are fed to more depots where some come and go, which leaves time for some of it. Whoever knows the moments of failures makes \
    safe between them.\n\
    - **failures**, **offline**: what is infeasible there is so, but for a few, because depots or users go away after it was \
    asked for. How many are left, and how many of these are refused, says the column of what could be foreseen.\n\
    - **bursts**, **cloud**: refusals. The clairvoyant itself keeps about as many where every path carries a twentieth less: what is missing is the last of \
    what paths carry, which nobody fills to the byte who does not know it before.\n\
    - **volatile**, and these: taking what misses by a twentieth or a tenth of its time by the forecast kept no more: such \
    requests were late by seconds, as the clairvoyant fills every path to the last byte until the deadline, or their paths grew quicker later, which nobody could know.\n";

/// Returns goals and results: deadlines met, bytes moved and infeasible requests refused in each
/// family.
fn goals(families: &BTreeMap<String, Family>) -> String {
    let mut text = String::from(
        "| posthaste | kept, of as many as the clairvoyant keeps: 99 % | of as many as can be | moved: 1.15 | infeasible refused: 95 % | \
         of what could be foreseen | broken promises | kept when asked the feasible only |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (name, family) in families {
        let sums = |policy: &str| {
            let found = family.policies.iter().find(|(known, _)| known == policy);
            found.map(|(_, sums)| sums.clone()).unwrap_or_default()
        };
        let (ours, chosen) = (derived(&sums(MIND)), sums(CHOSEN));
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} of {} | {} | {} |",
            percent(&ours, "met", "feasible"),
            percent(&ours, "met", "most"),
            moved(&ours),
            percent(&ours, "refused infeasible", "infeasible"),
            percent(&ours, "refused foreseeable", "foreseeable"),
            of(&ours, "foreseeable"),
            percent(&ours, "broken", "accepted"),
            percent(&chosen, "met", "most"),
        );
    }
    text
}

/// Returns the sums, and figures derived from them.
fn derived(sums: &Sums) -> Sums {
    let mut sums = sums.clone();
    let accepted = of(&sums, "asked").saturating_sub(of(&sums, "refused"));
    let refused = of(&sums, "refused").saturating_sub(of(&sums, "refused feasible"));
    sums.insert("accepted".to_owned(), accepted);
    sums.insert("refused infeasible".to_owned(), refused);
    sums
}

fn page(lines: &str, facts: &str) -> anyhow::Result<String> {
    let Played { families } = Played::parse(lines)?;
    let mut page = String::from(HEAD);
    let seeds = families.iter().map(|(name, family)| {
        let (first, last) = (family.seeds.first(), family.seeds.last());
        let range = first
            .zip(last)
            .map(|(first, last)| format!("{first} to {last}"));
        let count = family.seeds.len();
        format!("{name} {count} ({})", range.unwrap_or_default())
    });
    let seeds: Vec<String> = seeds.collect();
    write!(
        page,
        "\n{facts}- seeds: {}\n\n## All families\n\n{}",
        seeds.join(", "),
        overview(&families)
    )?;
    write!(page, "\n## Beside the goals\n\n{}{WHY}", goals(&families))?;
    for (name, family) in &families {
        write!(
            page,
            "\n## {name}\n\n{}\n\n{}",
            family.summary,
            table(&family.policies)
        )?;
    }
    let (mut violations, mut runs) = (0, 0);
    for family in families.values() {
        let minds = family.policies.iter();
        let minds = minds.filter(|(name, _)| name.starts_with("posthaste"));
        for (_, sums) in minds {
            violations += of(sums, "violations");
            runs += family.seeds.len();
        }
    }
    writeln!(
        page,
        "\nIn {violations} of the {runs} runs of posthaste a checker of the simulator objected."
    )?;
    Ok(page)
}

/// Returns the deadlines met by each policy in each family.
fn overview(families: &BTreeMap<String, Family>) -> String {
    let mut text = String::from("| kept |");
    for name in families.keys() {
        let _ = write!(text, " {name} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(families.len()));
    let first = families.values().next();
    let policies = first.map(|family| family.policies.as_slice());
    for (place, (policy, _)) in policies.unwrap_or_default().iter().enumerate() {
        let _ = write!(text, "| {policy} |");
        for family in families.values() {
            let sums = family.policies.get(place).map(|(_, sums)| sums);
            let share = sums.map_or_else(|| "-".to_owned(), |sums| percent(sums, "met", "most"));
            let _ = write!(text, " {share} |");
        }
        text.push('\n');
    }
    text
}

fn table(policies: &[(String, Sums)]) -> String {
    let mut text = String::from(
        "| | kept | feasible met | feasible refused | feasible missed | broken promises | infeasible refused | moved | \
         cost | fan-out | churn |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (policy, sums) in policies {
        let sums = derived(sums);
        let figure = |name: &str| of(&sums, name);
        let (moved, cost) = (moved(&sums), cost(&sums));
        let share = |some: &str, all: &str| percent(&sums, some, all);
        // A policy that only counts what is possible sends nothing.
        let of_sent = |text: String| match figure("sent") {
            0 => "-".to_owned(),
            _ => text,
        };
        let fan_out = format!("{:.1}", ratio(figure("reached"), figure("reaching")));
        let _ = writeln!(
            text,
            "| {policy} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            share("met", "most"),
            share("met feasible", "feasible"),
            share("refused feasible", "feasible"),
            share("broken feasible", "feasible"),
            share("broken", "accepted"),
            share("refused infeasible", "infeasible"),
            of_sent(moved),
            of_sent(cost),
            of_sent(fan_out),
            of_sent(share("lost", "sent")),
        );
    }
    let sums = policies.first().map(|(_, sums)| sums);
    let figure = |name: &str| sums.map_or(0, |sums| of(sums, name));
    let _ = writeln!(
        text,
        "\nOf {} requests the clairvoyant keeps {}, and {} can be kept.",
        figure("asked"),
        figure("feasible"),
        figure("most")
    );
    text
}

/// Largest figure shown: a hundred bytes for each, or a hundred dollars for a gigabyte, mean
/// nothing any more.
const FIGURES_MAX: f64 = 100.0;

/// Returns the bytes sent for each byte that is needed.
fn moved(sums: &Sums) -> String {
    let moved = ratio(of(sums, "sent"), of(sums, "needed bytes"));
    if moved < FIGURES_MAX {
        format!("{moved:.2}")
    } else {
        "-".to_owned()
    }
}

/// Returns the dollars for 10^12 bytes that were safe in time.
fn cost(sums: &Sums) -> String {
    let kept = of(sums, "kept bytes");
    let sent = SEND_USD * ratio(of(sums, "sent"), kept);
    let stored = of(sums, "sent").saturating_sub(of(sums, "lost"));
    let cost = KEEP_USD.mul_add(ratio(stored, kept), sent);
    if cost < FIGURES_MAX * 1000.0 {
        format!("{cost:.0} $")
    } else {
        "-".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES_OF: &str = "family\tsummary\tpolicy\tseed\tasked\tfeasible\tmet\tmet feasible\trefused\trefused feasible\t\
        broken\tbroken feasible\tinfeasible\tforeseeable\trefused foreseeable\tsent\tlost\tkept bytes\tneeded bytes\treached\treaching\tviolations\n";

    #[test]
    fn lines_become_tables() {
        let first = "bursts\tMuch at once.\tposthaste\t1\t12\t10\t8\t7\t3\t2\t1\t1\t1\t1\t1\t115\t15\t50\t100\t30\t10\t0\n";
        let second = "bursts\tMuch at once.\tposthaste\t2\t12\t8\t10\t8\t2\t0\t0\t0\t2\t1\t0\t115\t0\t50\t100\t40\t10\t0\n";
        let broken_off = "bursts\tMuch at on";
        let text = page(&[NAMES_OF, first, second, broken_off].concat(), "- facts\n").unwrap();
        // 18 of 20, 15 of 18, 2 and 1 of 18, 1 of 19 accepted, 3 of 3.
        let row = "| posthaste | 90.0 % | 83.3 % | 11.1 % | 5.6 % | 5.3 % | 100.0 % | 1.15 | 256 $ | 3.5 | 6.5 % |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| posthaste | 90.0 % |\n"), "{text}");
        let goals = "| bursts | 100.0 % | 90.0 % | 1.15 | 100.0 % | 50.0 % of 2 | 5.3 % | 0.0 % |";
        assert!(text.contains(goals), "{text}");
        assert!(text.contains("seeds: bursts 2 (1 to 2)"), "{text}");
        assert!(text.contains("keeps 18, and 20 can be kept"), "{text}");
        let went_on = [NAMES_OF, first, NAMES_OF, first, second].concat();
        let went_on = page(&went_on, "- facts\n").unwrap();
        assert!(went_on == text, "{went_on}");
        assert!(page("", "").is_err());
        assert!(page(NAMES_OF, "").is_err());
        assert!(page(&[NAMES_OF, "bursts\t1\n"].concat(), "").is_err());
    }
}
