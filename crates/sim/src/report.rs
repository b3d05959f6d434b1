//! What a run came to, for people and programs.

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
    /// About this request, where it is about one.
    pub request: Option<RequestId>,
    /// About this depot, where it is about one.
    pub depot: Option<DepotId>,
    /// What.
    pub what: What,
}

/// What an entry of the timeline tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The mind said this.
    Said {
        /// What.
        happening: Happening,
        /// Why.
        reason: Reason,
    },
    /// Something happened in the world.
    World(String),
    /// The driver did this on its own account.
    Driver(String),
    /// A user asked for this.
    User(String),
}

impl What {
    /// The word programs know it by: an event's own name, `world`, `driver` or `user`.
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

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The names of the depots, from the first number on.
    pub depots: Vec<String>,
    /// What happened, in order.
    pub timeline: Vec<Entry>,
    /// How many entries had no place in the timeline.
    pub timeline_left_out: u64,
    /// Each request and what became of it.
    pub fates: Vec<(RequestId, Fate)>,
    /// Most depots any request was fed to at once, in the order it happened: the fan-out's course.
    pub fan_outs: Vec<u32>,
    /// Bytes sent, whatever came of them.
    pub sent: Bytes,
    /// Bytes that left the centre, whatever came of them.
    pub left: Bytes,
    /// Bytes stored.
    pub stored: Bytes,
    /// Probes of paths.
    pub probes: u64,
    /// Bytes that probes sent or set aside, but for those that somebody asked for.
    pub probed: Bytes,
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

    /// The name of a depot.
    #[must_use]
    pub fn depot(&self, depot: DepotId) -> &str {
        let place = (depot.get() as usize).wrapping_sub(1);
        self.depots.get(place).map_or("?", String::as_str)
    }

    /// An entry of the timeline as a line, without its moment.
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

    /// The run as text: a timeline, then the verdicts.
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
