//! An optimizer on a path.

use std::fmt;

use posthaste_plan::tuner::{
    Choice, Method, Optimizer, Probe, Setting, Stocks, Urgency, optimizer,
};
use posthaste_types::Bytes;

use super::Course;

/// Periods that are played: two minutes.
const PERIODS: usize = 40;
/// Periods with one setting after which an optimizer counts as settled.
const STAYED: usize = 3;
/// Periods after which an unsettled optimizer is judged: a minute.
const PERIODS_MAX: usize = 20;
/// Factor by which each sweep's files are repeated: the search is to be seen, not the end of the
/// files.
const REPEATED: u64 = 1_000_000;

/// An optimizer in the comparison.
pub struct Rival {
    method: Method,
    /// True if it does not know the bandwidth.
    is_blind: bool,
    /// True if it has used the path before.
    is_again: bool,
}

impl Rival {
    pub fn of(method: Method) -> Self {
        Self {
            method,
            is_blind: false,
            is_again: false,
        }
    }

    pub fn blind(self) -> Self {
        Self {
            is_blind: true,
            ..self
        }
    }

    pub fn again(self) -> Self {
        Self {
            is_again: true,
            ..self
        }
    }

    /// Returns whether it is the default.
    pub fn is_default(&self) -> bool {
        self.method == Method::Auto && !self.is_blind && !self.is_again
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.method)?;
        if self.is_blind {
            write!(f, ", bandwidth unknown")?;
        }
        if self.is_again {
            write!(f, ", the second time")?;
        }
        Ok(())
    }
}

/// Result of an optimizer.
pub struct Outcome {
    /// Rate of the setting it settled at, as a fraction of the best.
    pub settled: f64,
    /// Periods before it settled.
    pub probes: usize,
    /// Rate of the second minute, as a fraction of the best.
    pub later: f64,
    /// Streams it settled at.
    pub streams: u32,
}

/// Plays the path for two minutes.
pub fn play(rival: &Rival, course: &Course) -> Outcome {
    let history = rival.is_again.then(|| learn(course)).flatten();
    let settings = settings(rival, course, history).0;
    let settled = (0..PERIODS_MAX)
        .find(|&period| {
            let stay = &settings[period..period + STAYED];
            stay.iter().all(|setting| *setting == stay[0])
        })
        .unwrap_or(PERIODS_MAX);
    let fraction = |setting: Setting| course.road.mean(setting) / course.best;
    let last = &settings[PERIODS / 2..];
    let later = last.iter().map(|&setting| fraction(setting)).sum::<f64>();
    Outcome {
        settled: fraction(settings[settled]),
        probes: settled,
        later: later / last.len() as f64,
        streams: settings[settled].streams(),
    }
}

/// Returns the setting that a first transfer on the path leaves behind.
fn learn(course: &Course) -> Option<Setting> {
    settings(&Rival::of(Method::Auto), course, None).1
}

/// Returns the setting of each period, and the best that the optimizer knows in the end.
fn settings(
    rival: &Rival,
    course: &Course,
    history: Option<Setting>,
) -> (Vec<Setting>, Option<Setting>) {
    let mut facts = course.facts;
    if rival.is_blind {
        facts.bandwidth = None;
    }
    let (count, size) = course.files;
    let mut stocks = Stocks::default();
    stocks.add_all(facts.class(size), count * REPEATED, size);
    let mut tuner = optimizer(rival.method, facts, course.bounds, history, Urgency::Normal);
    let mut choice = tuner.first(&stocks);
    let mut settings = Vec::new();
    for turn in 0..PERIODS {
        let setting = choice.setting();
        settings.push(setting);
        choice = next(
            &mut tuner,
            &choice,
            course.road.measure(setting, turn),
            &stocks,
        );
    }
    (settings, tuner.best())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is carried in seconds is far below 2^53 bytes"
)]
fn next(tuner: &mut impl Optimizer, choice: &Choice, rate: f64, stocks: &Stocks) -> Choice {
    let probe = Probe {
        setting: choice.setting(),
        elapsed: choice.probe,
        bytes: Bytes::new((rate * choice.probe.as_secs_f64()) as u64),
        lost_permille: None,
    };
    tuner.on_probe(&probe, stocks)
}
