//! What a run came to, for people and programs.

use std::fmt::Write;

use posthaste_types::{Bytes, RequestId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Checkers, Violation};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Safe by its deadline.
    Met,
    /// Safe after its deadline.
    Late,
    /// Never safe within the run.
    Unsafe,
    /// Not taken.
    Refused,
    /// Cancelled by its user.
    Cancelled,
    /// Could not go on.
    Failed,
}

impl Fate {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Late => "late",
            Self::Unsafe => "unsafe",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When, since the start.
    pub at: std::time::Duration,
    /// What.
    pub what: String,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// What happened, in order.
    pub timeline: Vec<Entry>,
    /// Each request and what became of it.
    pub fates: Vec<(RequestId, Fate)>,
    /// Most depots any request was fed to at once, in the order it happened: the fan-out's course.
    pub fan_outs: Vec<u32>,
    /// Bytes sent, whatever came of them.
    pub sent: Bytes,
    /// Bytes stored.
    pub stored: Bytes,
    /// Steps of the mind.
    pub steps: u64,
    /// How long the run was, in virtual time.
    pub span: std::time::Duration,
    /// A digest of all that the mind said and commanded: the same for the same seed.
    pub fingerprint: u64,
    /// What must never be and was.
    pub violations: Vec<Violation>,
    pub(crate) start: Timestamp,
}

impl Report {
    /// Whether all checkers are content.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// How many requests had this fate.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.fates
            .iter()
            .filter(|(_, other)| *other == fate)
            .count()
    }

    /// The verdict of each checker: its name and what it found first.
    #[must_use]
    pub fn verdicts(&self) -> Vec<(&'static str, Option<&Violation>)> {
        let first = |name| {
            self.violations
                .iter()
                .find(|violation| violation.checker == name)
        };
        let mut names = Checkers::NAMES.to_vec();
        let others = self.violations.iter().map(|violation| violation.checker);
        names.extend(others.filter(|name| !Checkers::NAMES.contains(name)));
        names.dedup();
        names.into_iter().map(|name| (name, first(name))).collect()
    }

    /// The run as text: a timeline, then the verdicts.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.timeline {
            let _ = writeln!(text, "{:>9.3} s  {}", entry.at.as_secs_f64(), entry.what);
        }
        let _ = writeln!(text);
        for (request, fate) in &self.fates {
            let _ = writeln!(text, "{request}: {}", fate.name());
        }
        let _ = writeln!(
            text,
            "{} sent, {} stored, {} steps in {:.1} s of virtual time, fingerprint {:016x}",
            self.sent,
            self.stored,
            self.steps,
            self.span.as_secs_f64(),
            self.fingerprint
        );
        for (name, violation) in self.verdicts() {
            let _ = match violation {
                None => writeln!(text, "  holds     {name}"),
                Some(violation) => {
                    let at = violation.at.since(self.start).as_secs_f64();
                    writeln!(text, "  VIOLATED  {name}: at {at:.3} s, {}", violation.what)
                }
            };
        }
        text
    }
}
