//! `cargo xtask bench tuner [FOLDER]`: every optimizer over paths measured at many settings, and
//! over made-up ones. Nothing is sent: the rate of a setting is looked up.

mod replay;
mod report;
mod sweeps;
mod synthetic;

use std::path::Path;

use anyhow::bail;
use posthaste_plan::tuner::{Method, Setting};

use super::{publish, say};
use replay::{Outcome, Rival};

/// A path with the rate of each setting.
pub struct Course {
    /// Source of its measurements, or formula behind it; results are grouped by it.
    pub origin: String,
    /// Facts given to an optimizer.
    pub facts: posthaste_plan::tuner::PathFacts,
    /// Bounds of its choice.
    pub bounds: posthaste_plan::tuner::Bounds,
    /// Number of files, and their size.
    pub files: (u64, posthaste_types::Bytes),
    /// Mean rate of the grid's best setting, in bytes a second.
    pub best: f64,
    /// Rates of settings.
    pub road: Box<dyn Road>,
}

/// Rates of settings, in bytes a second.
pub trait Road {
    /// Returns the rate of one measurement, the `turn`th in a row.
    fn measure(&self, setting: Setting, turn: usize) -> f64;

    /// Returns the mean rate.
    fn mean(&self, setting: Setting) -> f64;
}

/// Replays everything and writes the report.
///
/// # Errors
/// Fails if the folder can't be read or has no sweeps, or the report can't be written.
pub fn run(options: &[String]) -> anyhow::Result<()> {
    let folder = match options {
        [] => None,
        [folder] => Some(Path::new(folder)),
        [..] => bail!("write `cargo xtask bench tuner [FOLDER]`"),
    };
    let made_up = synthetic::courses();
    let measured = folder.map(sweeps::read).transpose()?;
    let measured = measured.unwrap_or_default();
    let sets = [
        ("Measured paths that `auto` was made with", measured.fitted),
        ("Measured paths that it was not made with", measured.other),
        ("Made-up paths", made_up),
    ];
    if folder.is_some() && sets[..2].iter().all(|(_, courses)| courses.is_empty()) {
        bail!(
            "no file of the folder has a sweep of {} settings",
            sweeps::SETTINGS_MIN
        );
    }
    let mut text = report::head();
    for (title, courses) in sets.iter().filter(|(_, courses)| !courses.is_empty()) {
        say(&format!("{title}: {} sweeps", courses.len()));
        let results: Vec<(Rival, Vec<Outcome>)> = rivals()
            .into_iter()
            .map(|rival| {
                let play = |course| replay::play(&rival, course);
                let outcomes = courses.iter().map(play).collect();
                (rival, outcomes)
            })
            .collect();
        text.push_str(&report::section(title, courses, &results));
    }
    publish("tuner", &text)
}

/// Returns everything to compare: fixed settings people use, rules, models, searches.
fn rivals() -> Vec<Rival> {
    let fixed = |concurrency, parallelism, pipelining| {
        let setting = Setting::new(concurrency, parallelism, pipelining);
        Rival::of(Method::Fixed { setting })
    };
    let named = Method::NAMES
        .iter()
        .filter(|(_, method)| *method != Method::Auto);
    [
        fixed(1, 1, 1),
        fixed(8, 2, 8),
        fixed(8, 4, 8),
        fixed(16, 2, 8),
        fixed(32, 1, 8),
    ]
    .into_iter()
    .chain(named.map(|(_, method)| Rival::of(*method)))
    .chain([
        Rival::of(Method::Auto),
        Rival::of(Method::Auto).blind(),
        Rival::of(Method::Auto).again(),
    ])
    .collect()
}
