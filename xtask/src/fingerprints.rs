//! `cargo xtask fingerprints`: whether the mind still decides the same.
//!
//! A fingerprint is a hash of all that the mind puts out in one played scenario. The committed file
//! has the fingerprints of every scenario and of random worlds. A change that is to change no
//! behaviour leaves it as it is; one that does writes it anew, and says why.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, bail};
use posthaste_core::Settings;
use posthaste_sim::{Scenario, simulate_with, swarm};

use crate::{root, test::print};

const FILE: &str = "scenarios/fingerprints.txt";
const HEADING: &str = "# Fingerprints of the mind: a scenario, and the hash over its first seeds and over all its seeds.\n\
                       # `cargo xtask fingerprints` compares them; `--write` replaces them.\n";
/// Seeds of each scenario, and random worlds.
const SEEDS: u64 = 20;
/// Seeds of the first hash, with which `--short` is content.
const FIRST_SEEDS: u64 = 3;
/// Scenarios so large that one seed takes minutes or hours: not played.
const LARGE: [&str; 2] = ["large", "scale"];
/// Plays between two progress lines.
const SAID_EVERY: usize = 500;
/// Name under which the random worlds are listed.
const SWARM: &str = "swarm";

/// Hashes of one scenario; the second is missing after `--short`.
type Hashes = (String, Option<String>);

/// Compares the fingerprints with the committed ones, or writes them.
///
/// # Errors
/// Fails if a scenario or the file can't be read, or a fingerprint differs.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let (mut is_short, mut writes) = (false, false);
    for word in arguments {
        match word.as_str() {
            "--short" => is_short = true,
            "--write" => writes = true,
            _ => bail!("there is no option `{word}`; there are --short and --write"),
        }
    }
    if is_short && writes {
        bail!("--write needs all seeds: leave out --short");
    }
    let found = play_all(is_short)?;
    let path = root().join(FILE);
    if writes {
        let mut text = HEADING.to_owned();
        for (name, (first, all)) in &found {
            writeln!(text, "{name} {first} {}", all.as_deref().unwrap_or("-"))?;
        }
        return fs::write(&path, text).with_context(|| format!("write {}", path.display()));
    }
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let differing = compare(&parse(&text)?, &found);
    if differing.is_empty() {
        print(&format!("{} scenarios decide the same\n", found.len()));
        return Ok(());
    }
    bail!("these decide otherwise: {}", differing.join(", "))
}

/// Returns the names whose fingerprints differ, and those that only one side has.
fn compare(committed: &BTreeMap<String, Hashes>, found: &BTreeMap<String, Hashes>) -> Vec<String> {
    let is_same = |name: &String| {
        let (Some(one), Some(other)) = (committed.get(name), found.get(name)) else {
            return false;
        };
        one.0 == other.0 && (other.1.is_none() || one.1 == other.1)
    };
    let mut names: Vec<&String> = committed.keys().chain(found.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| !is_same(name));
    names.into_iter().cloned().collect()
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<String, Hashes>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, first, all] = words[..] else {
            bail!("{FILE}: `{line}` is no line of it: write it anew with --write");
        };
        Ok((name.to_owned(), (first.to_owned(), Some(all.to_owned()))))
    });
    read.collect()
}

/// Plays every scenario and the random worlds, on all cores.
fn play_all(is_short: bool) -> anyhow::Result<BTreeMap<String, Hashes>> {
    let seeds = if is_short { FIRST_SEEDS } else { SEEDS };
    let mut work: Vec<(String, Option<Scenario>, u64)> = (0..seeds)
        .map(|seed| (SWARM.to_owned(), None, seed))
        .collect();
    for (name, scenario) in scenarios(&root().join("scenarios"))? {
        if LARGE.contains(&name.as_str()) {
            continue;
        }
        work.extend((0..seeds).map(|seed| (name.clone(), Some(scenario.clone()), seed)));
    }
    let all = work.len();
    let next = AtomicUsize::new(0);
    let played: Mutex<BTreeMap<(String, u64), u64>> = Mutex::default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, scenario, seed)) = work.get(place) else {
                        return;
                    };
                    if place.is_multiple_of(SAID_EVERY) {
                        eprintln!("xtask: {place} of {all} played");
                    }
                    let fingerprint = play(scenario.as_ref(), *seed);
                    let mut played = played.lock().unwrap_or_else(PoisonError::into_inner);
                    played.insert((name.clone(), *seed), fingerprint);
                }
            });
        }
    });
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for ((name, _), fingerprint) in played.into_inner().unwrap_or_else(PoisonError::into_inner) {
        found.entry(name).or_default().push(fingerprint);
    }
    let hashes = found.into_iter().map(|(name, all)| {
        let first = all
            .len()
            .min(usize::try_from(FIRST_SEEDS).unwrap_or(usize::MAX));
        let whole = (!is_short).then(|| hash(&all));
        (name, (hash(&all[..first]), whole))
    });
    Ok(hashes.collect())
}

fn play(scenario: Option<&Scenario>, seed: u64) -> u64 {
    let drawn = || Scenario::parse(&swarm::draw(seed)).ok();
    let scenario = scenario.cloned().or_else(drawn);
    scenario.map_or(0, |scenario| {
        simulate_with(&scenario, seed, Settings::default()).fingerprint
    })
}

/// Reads the scenarios of a folder, but not those of the folders in it.
fn scenarios(folder: &Path) -> anyhow::Result<Vec<(String, Scenario)>> {
    let mut found = Vec::new();
    let entries = folder.read_dir();
    for entry in entries.with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|end| end == "toml")) {
            let scenario = Scenario::load(&path);
            found.push((
                name,
                scenario.with_context(|| format!("read {}", path.display()))?,
            ));
        }
    }
    Ok(found)
}

/// Hashes fingerprints in order (FNV-1a).
fn hash(fingerprints: &[u64]) -> String {
    let bytes = fingerprints.iter().flat_map(|one| one.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_decides_otherwise_is_named() {
        let committed = parse("# heading\na 1 2\nb 3 4\nc 5 6\n").unwrap();
        assert_eq!(compare(&committed, &committed), Vec::<String>::new());
        let mut found = committed.clone();
        found.insert("b".into(), ("3".into(), Some("9".into())));
        found.remove("c");
        assert_eq!(compare(&committed, &found), ["b", "c"]);
        found.insert("b".into(), ("3".into(), None));
        found.insert("d".into(), ("0".into(), None));
        assert_eq!(compare(&committed, &found), ["c", "d"]);
        assert!(parse("a 1\n").is_err());
    }

    #[test]
    fn hashes_depend_on_the_order() {
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_eq!(hash(&[]), "cbf29ce484222325");
    }
}
