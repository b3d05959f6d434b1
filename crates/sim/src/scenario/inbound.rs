//! Sources and stage-ins of a scenario, as tables.

use posthaste_core::contract::{Priority, StageInNews};
use posthaste_types::{Bytes, RequestId};
use serde::Deserialize;

use super::{Amount, Price, Scenario, Varies};
use crate::report::Fate;

/// Endpoint that holds data users want at the centre.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourcePlan {
    pub(crate) name: String,
    /// Depot that it stands for, read by the centre. It then holds only the data that waits there
    /// for stage-ins.
    pub(crate) near: Option<String>,
    /// Rate of its path to the centre.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default = "default_latency")]
    pub(crate) latency_ms: Amount,
    /// Price of reading 10^9 bytes. `usd_per_1000_gets` is the price of a thousand GETs.
    #[serde(default)]
    pub(crate) usd_per_gb_out: Price,
    #[serde(default)]
    pub(crate) usd_per_1000_gets: Price,
    /// Declaration of its highest rate to the mind.
    #[serde(default)]
    pub(crate) advertises: bool,
    /// Deviation of the rate, in permille.
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    /// Period of the deviation.
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    /// Change of the rate over time.
    #[serde(default)]
    pub(crate) varies: Varies,
}

/// Data that must be at the centre in time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageInPlan {
    /// Number of stage-ins like this.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    #[serde(default = "default_zero")]
    pub(crate) at_s: Amount,
    pub(crate) size_mib: Amount,
    #[serde(default = "default_chunk")]
    pub(crate) chunk_mib: f64,
    /// Deadline, from its submission.
    pub(crate) deadline_s: Amount,
    /// Earliest arrival, from its submission. Without one it may arrive at once.
    pub(crate) not_before_s: Option<Amount>,
    /// Sources of the data. Empty: all sources.
    #[serde(default)]
    pub(crate) sources: Vec<String>,
    /// Depots near the centre on which it may wait. Each is also a source of that name.
    #[serde(default)]
    pub(crate) via: Vec<String>,
    /// Export, whose source is removed once all data is there.
    #[serde(default)]
    pub(crate) release: bool,
    /// Number of the request whose depots an export to an address reads.
    pub(crate) of: Option<u64>,
    /// Holdings of the sources. Empty: each source holds everything.
    #[serde(default)]
    pub(crate) holdings: Vec<HoldingPlan>,
    /// Priority, by name or as a number.
    pub(crate) priority: Option<String>,
    /// Owner. `project` is the account it is charged to.
    #[serde(default)]
    pub(crate) owner: String,
    #[serde(default)]
    pub(crate) project: String,
    /// Highest rate of its reads.
    pub(crate) rate_max_mib_per_s: Option<Amount>,
    pub(crate) budget_usd: Option<Price>,
    #[serde(default)]
    pub(crate) best_effort: bool,
    pub(crate) cancel_after_s: Option<Amount>,
    /// Time of its user's pause, from its submission, for `pause_for_s`; without that, for ever.
    pub(crate) pause_after_s: Option<Amount>,
    pub(crate) pause_for_s: Option<Amount>,
    /// Changes of its deadline.
    #[serde(default)]
    pub(crate) moves: Vec<MovePlan>,
    /// Outcomes allowed with every seed.
    #[serde(default)]
    pub(crate) expect: Vec<Fate>,
}

/// Change of a stage-in's deadline and earliest arrival. All times count from its submission.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MovePlan {
    /// Time of the change.
    pub(crate) after_s: Amount,
    pub(crate) not_before_s: Amount,
    pub(crate) deadline_s: Amount,
}

/// Share of a stage-in that lies at some of its sources.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldingPlan {
    /// Size, relative to the other holdings.
    pub(crate) weight: u64,
    pub(crate) sources: Vec<String>,
}

impl StageInPlan {
    /// Returns the report that it is an export to a place, or from depots to an address.
    pub(crate) fn goes_elsewhere(&self) -> Option<StageInNews> {
        let on = self.of.map(|of| StageInNews::GoesOn {
            of: RequestId::new(of),
        });
        let out = self
            .release
            .then_some(StageInNews::GoesOut { release: true });
        on.or(out)
    }

    /// Returns the report of its owner and project, if the scenario names them.
    pub(crate) fn is_for(&self) -> Option<StageInNews> {
        let (owner, project) = (self.owner.clone(), self.project.clone());
        let is_said = !owner.is_empty() || !project.is_empty();
        is_said.then_some(StageInNews::IsFor { owner, project })
    }

    /// Returns the bytes of each holding by weight. The last one gets the remainder.
    pub(crate) fn split(&self, bytes: Bytes) -> Vec<Bytes> {
        let weights = self.holdings.iter().map(|holding| holding.weight);
        let all = weights.clone().sum::<u64>().max(1);
        let mut sizes: Vec<Bytes> = weights
            .map(|weight| Bytes::new(bytes.get() / all * weight))
            .collect();
        let given: Bytes = sizes.iter().copied().sum();
        if let Some(last) = sizes.last_mut() {
            *last += bytes - given;
        }
        sizes
    }

    pub(crate) fn priority(&self) -> Result<Priority, String> {
        let priority = self.priority.as_deref().map(str::parse).transpose();
        let priority: Option<Priority> =
            priority.map_err(|error: posthaste_core::contract::PriorityError| error.to_string())?;
        Ok(priority.unwrap_or_default())
    }
}

/// Highest weight. Finer differences are useless.
const HOLDING_WEIGHT_MAX: u64 = 1000;

fn default_count() -> u64 {
    1
}
fn default_zero() -> Amount {
    Amount::Fixed(0.0)
}
fn default_chunk() -> f64 {
    4.0
}
fn default_latency() -> Amount {
    Amount::Fixed(20.0)
}
fn default_jitter_every() -> f64 {
    1.0
}

/// Returns the first inconsistency of the stage-in tables as an error.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    for source in &scenario.sources {
        if !names.insert(source.name.as_str()) {
            return Err(format!("two sources are called `{}`", source.name));
        }
        super::check::check_time("jitter_every_s", source.jitter_every_s)?;
        if ![source.usd_per_gb_out, source.usd_per_1000_gets]
            .iter()
            .all(|price| price.is_sound())
        {
            return Err("a price is from 0 to a million dollars".into());
        }
        let is_depot = |name: &String| scenario.depots.iter().any(|depot| depot.name == *name);
        if let Some(near) = source.near.as_ref().filter(|near| !is_depot(near)) {
            return Err(format!("no depot is called `{near}`"));
        }
    }
    for plan in &scenario.stage_ins {
        plan.priority()?;
        if plan.budget_usd.is_some_and(|budget| !budget.is_sound()) {
            return Err("a budget is from 0 to a million dollars".into());
        }
        let is_near = |via: &String| {
            let mut sources = scenario.sources.iter();
            sources.any(|source| source.near.as_ref() == Some(via))
        };
        if let Some(via) = plan.via.iter().find(|via| !is_near(via)) {
            return Err(format!("no source is near as `{via}`"));
        }
        if let Some(name) = plan
            .sources
            .iter()
            .find(|name| !names.contains(name.as_str()))
        {
            return Err(format!("no source is called `{name}`"));
        }
        if names.is_empty() {
            return Err("a stage-in needs a source".into());
        }
        let requests: u64 = scenario.requests.iter().map(|plan| plan.count).sum();
        if plan.of.is_some_and(|of| of == 0 || of > requests) {
            return Err("what goes on is `of` the number of a request".into());
        }
        for holding in &plan.holdings {
            let is_named = |name: &String| {
                let is_one = plan.sources.is_empty() || plan.sources.contains(name);
                is_one && names.contains(name.as_str())
            };
            if holding.sources.is_empty() || !holding.sources.iter().all(is_named) {
                return Err("a holding lies at sources of its stage-in".into());
            }
            if !(1..=HOLDING_WEIGHT_MAX).contains(&holding.weight) {
                return Err(format!("a weight is 1 to {HOLDING_WEIGHT_MAX}"));
            }
        }
        if !(plan.chunk_mib > 0.0 && plan.chunk_mib <= 1024.0) {
            return Err("chunk_mib must be above 0 and at most 1024".into());
        }
    }
    for fault in &scenario.faults {
        let Some(name) = &fault.source else { continue };
        if !names.contains(name.as_str()) {
            return Err(format!("no source is called `{name}`"));
        }
        let is_plain = fault.depot.is_empty() && fault.domain.is_none();
        if !is_plain || !super::FaultKind::OF_SOURCES.contains(&fault.kind) {
            return Err("a source dies, vanishes, slows or changes".into());
        }
    }
    Ok(())
}

/// Returns the amounts in the stage-in tables.
pub(super) fn amounts(scenario: &Scenario) -> impl Iterator<Item = Amount> + '_ {
    let sources = scenario.sources.iter();
    let sources = sources.flat_map(|plan| [plan.rate_mib_per_s, plan.latency_ms]);
    let stage_ins = scenario.stage_ins.iter().flat_map(|plan| {
        let own = [plan.at_s, plan.size_mib, plan.deadline_s];
        let more = [
            plan.not_before_s,
            plan.rate_max_mib_per_s,
            plan.cancel_after_s,
            plan.pause_after_s,
            plan.pause_for_s,
        ];
        let moves = plan.moves.iter();
        let moves = moves.flat_map(|one| [one.after_s, one.not_before_s, one.deadline_s]);
        own.into_iter()
            .chain(more.into_iter().flatten())
            .chain(moves)
    });
    sources.chain(stage_ins)
}
