//! What a world is and what goes wrong in it, as TOML. `scenarios/` holds the named ones.

use std::{collections::BTreeSet, fmt, path::Path};

use posthaste_core::contract::Method;
use serde::Deserialize;

use crate::{random::Dice, report::Fate};

/// A number, or two between which the seed draws one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Fixed(f64),
    Drawn([f64; 2]),
}

impl Amount {
    /// The amount in thousandths.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scenarios hold small positive numbers"
    )]
    #[expect(
        clippy::cast_sign_loss,
        reason = "negative amounts are refused when read"
    )]
    pub(crate) fn draw_milli(self, dice: &mut Dice) -> u64 {
        let milli = |amount: f64| (amount * 1000.0).round() as u64;
        match self {
            Self::Fixed(amount) => milli(amount),
            Self::Drawn([low, high]) => dice.between(milli(low), milli(high)),
        }
    }

    fn is_sound(self) -> bool {
        let fine = |amount: f64| amount.is_finite() && (0.0..1e12).contains(&amount);
        match self {
            Self::Fixed(amount) => fine(amount),
            Self::Drawn([low, high]) => fine(low) && fine(high) && low <= high,
        }
    }
}

/// A named world with its requests and faults.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name it is called by.
    pub name: String,
    /// What it shows, in a sentence.
    pub summary: String,
    /// The run ends here at the latest, in virtual seconds.
    pub(crate) horizon_s: u64,
    /// What the centre's way out carries, all depots together.
    pub(crate) egress_mib_per_s: Option<f64>,
    /// Whether the mind knows that.
    #[serde(default)]
    pub(crate) egress_known: bool,
    /// Steps between two snapshots of the mind that must come back as it was.
    #[serde(default = "default_snapshot_every")]
    pub(crate) snapshot_every: u64,
    /// Fragments damaged on the way, of a thousand.
    #[serde(default)]
    pub(crate) corrupt_permille: u64,
    /// Fragments stored whose answer is lost, of a thousand.
    #[serde(default)]
    pub(crate) answer_lost_permille: u64,
    #[serde(rename = "depot")]
    pub(crate) depots: Vec<DepotPlan>,
    #[serde(rename = "request")]
    pub(crate) requests: Vec<RequestPlan>,
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultPlan>,
}

fn default_snapshot_every() -> u64 {
    50
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepotPlan {
    pub(crate) name: String,
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default = "default_latency")]
    pub(crate) latency_ms: Amount,
    pub(crate) capacity_mib: Amount,
    /// Whether its owner says what it lends.
    #[serde(default)]
    pub(crate) advertises: bool,
    /// How far the rate strays each second, of a thousand.
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    /// What sending 10^9 bytes there costs. The mind does not know.
    #[serde(default)]
    pub(crate) usd_per_gb: Price,
    /// What keeping 10^9 bytes there for a month costs. The mind does not know.
    #[serde(default)]
    pub(crate) usd_per_gb_month: Price,
}

/// A price in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Price(f64);

/// What prices by the month mean by one: 30 days.
pub(crate) const SECONDS_A_MONTH: u64 = 30 * 86_400;

impl Price {
    /// In millionths of a dollar.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "prices out of range are refused when read"
    )]
    pub(crate) fn micro(self) -> u64 {
        (self.0 * 1e6).round() as u64
    }

    fn is_sound(self) -> bool {
        (0.0..=1e6).contains(&self.0)
    }
}

fn default_latency() -> Amount {
    Amount::Fixed(20.0)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPlan {
    /// How many like this.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    #[serde(default = "default_zero")]
    pub(crate) at_s: Amount,
    pub(crate) size_mib: Amount,
    #[serde(default = "default_chunk")]
    pub(crate) chunk_mib: f64,
    /// Whether its chunks are encrypted: depots store a tag with each.
    #[serde(default)]
    pub(crate) encrypted: bool,
    /// From its submission.
    pub(crate) deadline_s: Amount,
    pub(crate) code: String,
    /// Empty: every depot but the destination.
    #[serde(default)]
    pub(crate) via: Vec<String>,
    pub(crate) destination: Option<String>,
    #[serde(default = "default_true")]
    pub(crate) release: bool,
    #[serde(default)]
    pub(crate) best_effort: bool,
    /// What chooses how many fragments go to a depot at once, by name.
    pub(crate) optimizer: Option<String>,
    pub(crate) cancel_after_s: Option<Amount>,
    pub(crate) delivered_after_s: Option<Amount>,
    /// What must become of it with every seed.
    #[serde(default)]
    pub(crate) expect: Vec<Fate>,
}

fn default_count() -> u64 {
    1
}
fn default_zero() -> Amount {
    Amount::Fixed(0.0)
}
fn default_chunk() -> f64 {
    4.0
}
fn default_true() -> bool {
    true
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// The depot is gone; connections break.
    Dies,
    /// The depot is gone and nothing says so: the network swallows everything.
    Vanishes,
    /// The depot answers probes and stores nothing.
    Hangs,
    /// The depot is gone and comes back empty.
    Wiped,
    /// The link carries `rate_mib_per_s` from now on.
    Slows,
    /// The depot says that it is full.
    Full,
    /// The service is killed and starts again from its journal.
    DriverCrash,
    /// A file of every request changes.
    SourceChanges,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultPlan {
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    pub(crate) at_s: Amount,
    /// Empty: the seed names one.
    #[serde(default)]
    pub(crate) depot: String,
    pub(crate) kind: FaultKind,
    /// How long it lasts; without it, for ever.
    pub(crate) for_s: Option<Amount>,
    pub(crate) rate_mib_per_s: Option<Amount>,
}

/// A scenario that can't be used, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError(String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    /// [`ScenarioError`] when the file can't be read or is no scenario. Trying again won't help.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ScenarioError(format!("reading the scenario {}: {error}", path.display()))
        })?;
        Self::parse(&text).map_err(|error| ScenarioError(format!("in {}: {error}", path.display())))
    }

    /// Reads a scenario from text.
    ///
    /// # Errors
    /// [`ScenarioError`] naming what is wrong.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError(error.to_string()))?;
        scenario.check().map_err(ScenarioError)?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        let names: BTreeSet<&str> = self
            .depots
            .iter()
            .map(|depot| depot.name.as_str())
            .collect();
        if names.len() != self.depots.len() || names.is_empty() {
            return Err("each depot needs its own name, and there must be one".into());
        }
        let known = |name: &str| {
            if names.contains(name) {
                Ok(())
            } else {
                Err(format!("no depot is called `{name}`"))
            }
        };
        for request in &self.requests {
            request
                .via
                .iter()
                .chain(&request.destination)
                .try_for_each(|name| known(name))?;
            if request.code.parse::<posthaste_types::Code>().is_err() {
                return Err(format!(
                    "`{}` is no code: write k+m, like 4+1",
                    request.code
                ));
            }
            if let Some(name) = &request.optimizer {
                name.parse::<Method>().map_err(|error| error.to_string())?;
            }
            if !(request.chunk_mib > 0.0 && request.chunk_mib <= 1024.0) {
                return Err("chunk_mib must be above 0 and at most 1024".into());
            }
        }
        for fault in &self.faults {
            if !fault.depot.is_empty() {
                known(&fault.depot)?;
            }
            if fault.kind == FaultKind::Slows && fault.rate_mib_per_s.is_none() {
                return Err("a link that slows needs rate_mib_per_s".into());
            }
        }
        let mut prices = self
            .depots
            .iter()
            .flat_map(|depot| [depot.usd_per_gb, depot.usd_per_gb_month]);
        if !prices.all(Price::is_sound) {
            return Err("prices are numbers from 0 to a million".into());
        }
        if self.amounts().all(Amount::is_sound) {
            Ok(())
        } else {
            Err("amounts are numbers from 0, or [low, high]".into())
        }
    }

    fn amounts(&self) -> impl Iterator<Item = Amount> + '_ {
        let depots = self
            .depots
            .iter()
            .flat_map(|depot| [depot.rate_mib_per_s, depot.latency_ms, depot.capacity_mib]);
        let requests = self
            .requests
            .iter()
            .flat_map(|request| [request.at_s, request.size_mib, request.deadline_s]);
        let faults = self.faults.iter().flat_map(|fault| {
            [Some(fault.at_s), fault.for_s, fault.rate_mib_per_s]
                .into_iter()
                .flatten()
        });
        depots.chain(requests).chain(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        summary = "One depot, one request."
        horizon_s = 100
        [[depot]]
        name = "alpha"
        rate_mib_per_s = [1, 2]
        capacity_mib = 100
        [[request]]
        size_mib = 10
        deadline_s = 60
        code = "1+0"
    "#;

    #[test]
    fn a_scenario_is_read() {
        let scenario = Scenario::parse(SMALL).unwrap();
        assert_eq!((scenario.depots.len(), scenario.requests.len()), (1, 1));
    }

    #[test]
    fn what_is_wrong_with_a_scenario_is_named() {
        for (from, to, said) in [
            ("code = \"1+0\"", "code = \"x\"", "`x` is no code"),
            ("[1, 2]", "[2, 1]", "amounts are"),
            ("deadline_s", "deadlin_s", "deadlin_s"),
            (
                "code =",
                "optimizer = \"best\"\ncode =",
                "`best` is no optimizer",
            ),
            (
                "code = \"1+0\"",
                "code = \"1+0\"\nvia = [\"beta\"]",
                "no depot is called `beta`",
            ),
        ] {
            let error = Scenario::parse(&SMALL.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
