//! History of copies: where tuning ended on each path, and the reasons for the last copy's choices.
//!
//! Nothing depends on it. A file that is missing, damaged or can't be written costs a copy its head
//! start, nothing else.

use std::{collections::BTreeMap, fs, io::Write, path::PathBuf};

use posthaste_engine::copy::Tuned;
use posthaste_plan::tuner::Setting;
use serde::{Deserialize, Serialize};

use crate::config;

/// Paths remembered, at most. The least recently used are forgotten first.
const PATHS_MAX: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Path {
    concurrency: u16,
    parallelism: u16,
    pipelining: u16,
    used_at: jiff::Timestamp,
}

/// Choice of a setting, as `posthaste explain last` shows it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Step {
    /// Seconds since the start of the copy.
    pub(crate) at_s: f64,
    /// Rate of the period before, in bytes a second.
    pub(crate) rate_bytes_per_s: Option<u64>,
    /// Setting from then on: files at once, streams a file, small files ahead.
    pub(crate) setting: String,
    /// Reason for the choice.
    pub(crate) reason: String,
}

/// Last copy with a remote end.
#[derive(Serialize, Deserialize)]
pub(crate) struct Last {
    /// Source and destination.
    pub(crate) path: String,
    /// End of the copy.
    pub(crate) ended_at: jiff::Timestamp,
    /// Choices, in order.
    pub(crate) steps: Vec<Step>,
}

fn file(name: &str) -> PathBuf {
    config::state_directory().join(name)
}

fn paths() -> BTreeMap<String, Path> {
    let text = fs::read(file("paths.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Loads the final settings of copies, by path.
pub(super) fn load() -> BTreeMap<String, Setting> {
    let known = paths().into_iter();
    known
        .map(|(name, path)| {
            let setting = Setting::new(path.concurrency, path.parallelism, path.pipelining);
            (name, setting)
        })
        .collect()
}

/// Stores what a copy learned.
pub(super) fn keep(tuned: &Tuned) {
    if tuned.path.is_empty() {
        return;
    }
    let now = jiff::Timestamp::now();
    if let Some(best) = tuned.best {
        let mut known = paths();
        let path = Path {
            concurrency: best.concurrency,
            parallelism: best.parallelism,
            pipelining: best.pipelining,
            used_at: now,
        };
        known.insert(tuned.path.clone(), path);
        while known.len() > PATHS_MAX {
            let oldest = known.iter().min_by_key(|(_, path)| path.used_at);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            known.remove(&oldest);
        }
        write("paths.json", &known);
    }
    let steps = tuned.decisions.iter().map(|decision| Step {
        at_s: decision.at.as_secs_f64(),
        rate_bytes_per_s: decision.rate.map(posthaste_types::ByteRate::get),
        setting: decision.setting.to_string(),
        reason: decision.reason.clone(),
    });
    let last = Last {
        path: tuned.path.clone(),
        ended_at: now,
        steps: steps.collect(),
    };
    write("last-copy.json", &last);
}

/// Returns the last copy with a remote end, if one is remembered.
pub(crate) fn last() -> Option<Last> {
    serde_json::from_slice(&fs::read(file("last-copy.json")).ok()?).ok()
}

/// Replaces the whole file, so that copies that end together leave one version or the other.
fn write(name: &str, value: &impl Serialize) {
    let replace = || -> std::io::Result<()> {
        let folder = config::state_directory();
        fs::create_dir_all(&folder)?;
        let mut new = tempfile::NamedTempFile::new_in(&folder)?;
        new.write_all(&serde_json::to_vec(value)?)?;
        new.persist(file(name))?;
        Ok(())
    };
    // History that can't be stored is learned again.
    let _ = replace();
}
