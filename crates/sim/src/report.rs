//! Results of runs, for people and programs.

mod page;
mod plot;
mod recording;
mod timeline;

use std::fmt::{self, Write};

use posthaste_core::contract::{Happening, Reason};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Checkers, Violation};

pub use page::{Page, page};
pub(crate) use recording::Recorder;
pub use recording::{Recording, Sample};
pub use timeline::timeline;

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Safe by its deadline.
    Met,
    /// Safe after its deadline.
    Late,
    /// Never safe within the run.
    Unsafe,
    /// Rejected.
    Refused,
    /// Cancelled by its user.
    Cancelled,
    /// Ended by a failure.
    Failed,
}

impl Fate {
    /// Returns the outcome's name.
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

/// Line of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Time since the start.
    pub at: std::time::Duration,
    /// Request that the entry is about, if any.
    pub request: Option<RequestId>,
    /// Depot that the entry is about, if any.
    pub depot: Option<DepotId>,
    /// Content of the entry.
    pub what: What,
}

/// Content of a timeline entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Event of the mind.
    Said {
        /// Kind of event.
        happening: Happening,
        /// Reason for the event.
        reason: Reason,
    },
    /// Event in the world.
    World(String),
    /// Action of the driver on its own account.
    Driver(String),
    /// Action of a user.
    User(String),
}

impl What {
    /// Returns the name for programs: an event's own name, `world`, `driver` or `user`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Said { happening, .. } => happening.name(),
            Self::World(_) => "world",
            Self::Driver(_) => "driver",
            Self::User(_) => "user",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said { happening, reason } => write!(f, "{happening}: {reason}"),
            Self::World(what) | Self::Driver(what) | Self::User(what) => f.write_str(what),
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of the run.
    pub seed: u64,
    /// Names of the depots, in the order of their numbers.
    pub depots: Vec<String>,
    /// Events in the order of time.
    pub timeline: Vec<Entry>,
    /// Number of entries that had no room in the timeline.
    pub timeline_left_out: u64,
    /// Outcome of each request.
    pub fates: Vec<(RequestId, Fate)>,
    /// Fan-outs over time: the most depots any request was fed to at once.
    pub fan_outs: Vec<u32>,
    /// Bytes sent, whatever their outcome.
    pub sent: Bytes,
    /// Bytes that left the centre, whatever their outcome.
    pub left: Bytes,
    /// Bytes stored.
    pub stored: Bytes,
    /// Number of path probes.
    pub probes: u64,
    /// Bytes that probes sent or reserved, except for probes that were requested.
    pub probed: Bytes,
    /// Steps of the mind.
    pub steps: u64,
    /// Duration of the run, in virtual time.
    pub span: std::time::Duration,
    /// Digest of all events and commands of the mind. Equal seeds give equal digests.
    pub fingerprint: u64,
    /// Violations the checkers found.
    pub violations: Vec<Violation>,
    pub(crate) start: Timestamp,
}

impl Report {
    /// Returns whether no checker found a violation.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Returns the number of requests with this outcome.
    #[must_use]
    pub fn count(&self, fate: Fate) -> usize {
        self.fates
            .iter()
            .filter(|(_, other)| *other == fate)
            .count()
    }

    /// Returns the verdict of each checker: its name and its first violation.
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

    /// Returns the name of a depot.
    #[must_use]
    pub fn depot(&self, depot: DepotId) -> &str {
        let place = (depot.get() as usize).wrapping_sub(1);
        self.depots.get(place).map_or("?", String::as_str)
    }

    /// Returns a timeline entry as a line, without its time.
    #[must_use]
    pub fn line(&self, entry: &Entry) -> String {
        let request = entry.request.map(|it| it.to_string());
        let what = &entry.what;
        match what {
            What::World(_) => format!("world: {what}"),
            What::Driver(_) => format!("driver: {what}"),
            What::User(_) => format!("user: {}, {what}", request.unwrap_or_default()),
            What::Said { .. } => {
                let depot = entry.depot.map(|it| format!("{}:", self.depot(it)));
                let words = [request, depot, Some(what.to_string())];
                words.into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Returns the run as text: the timeline, then the verdicts.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.timeline {
            let at = entry.at.as_secs_f64();
            let _ = writeln!(text, "{at:>9.3} s  {}", self.line(entry));
        }
        if self.timeline_left_out > 0 {
            let _ = writeln!(text, "{:>9}    {} more", "...", self.timeline_left_out);
        }
        let _ = writeln!(text);
        for (request, fate) in &self.fates {
            let _ = writeln!(text, "{request}: {}", fate.name());
        }
        let _ = writeln!(
            text,
            "{} sent, {} stored, {} in {} probes, {} steps in {:.1} s of virtual time, fingerprint {:016x}",
            self.sent,
            self.stored,
            self.probed,
            self.probes,
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
