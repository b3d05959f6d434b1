//! Where stage-ins come from and what is asked for, as tables.

use posthaste_core::contract::Priority;
use serde::Deserialize;

use super::{Amount, Scenario, Varies};
use crate::report::Fate;

/// An endpoint that holds data users want at the centre.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourcePlan {
    pub(crate) name: String,
    /// Of its path to the centre.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default = "default_latency")]
    pub(crate) latency_ms: Amount,
    /// Whether the mind is told the most it gives.
    #[serde(default)]
    pub(crate) advertises: bool,
    /// How far the rate strays, of a thousand.
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    /// How often.
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    /// How the rate changes over time.
    #[serde(default)]
    pub(crate) varies: Varies,
}

/// Data that must be at the centre in time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageInPlan {
    /// How many like this.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    #[serde(default = "default_zero")]
    pub(crate) at_s: Amount,
    pub(crate) size_mib: Amount,
    #[serde(default = "default_chunk")]
    pub(crate) chunk_mib: f64,
    /// From its submission.
    pub(crate) deadline_s: Amount,
    /// From its submission as well; without it, it may be there at once.
    pub(crate) not_before_s: Option<Amount>,
    /// Each holds all of it. Empty: all sources there are.
    #[serde(default)]
    pub(crate) sources: Vec<String>,
    /// How much it matters beside others, by name or as a number.
    pub(crate) priority: Option<String>,
    /// Most that may be read for it.
    pub(crate) rate_max_mib_per_s: Option<Amount>,
    #[serde(default)]
    pub(crate) best_effort: bool,
    pub(crate) cancel_after_s: Option<Amount>,
    /// What must become of it with every seed.
    #[serde(default)]
    pub(crate) expect: Vec<Fate>,
}

impl StageInPlan {
    /// How much it matters.
    pub(crate) fn priority(&self) -> Result<Priority, String> {
        let priority = self.priority.as_deref().map(str::parse).transpose();
        let priority: Option<Priority> =
            priority.map_err(|error: posthaste_core::contract::PriorityError| error.to_string())?;
        Ok(priority.unwrap_or_default())
    }
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
fn default_latency() -> Amount {
    Amount::Fixed(20.0)
}
fn default_jitter_every() -> f64 {
    1.0
}

/// Says what is wrong first with the tables about stage-ins.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    for source in &scenario.sources {
        if !names.insert(source.name.as_str()) {
            return Err(format!("two sources are called `{}`", source.name));
        }
        super::check::check_time("jitter_every_s", source.jitter_every_s)?;
    }
    for plan in &scenario.stage_ins {
        plan.priority()?;
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

/// The amounts those tables say.
pub(super) fn amounts(scenario: &Scenario) -> impl Iterator<Item = Amount> + '_ {
    let sources = scenario.sources.iter();
    let sources = sources.flat_map(|plan| [plan.rate_mib_per_s, plan.latency_ms]);
    let stage_ins = scenario.stage_ins.iter().flat_map(|plan| {
        let own = [plan.at_s, plan.size_mib, plan.deadline_s];
        let more = [
            plan.not_before_s,
            plan.rate_max_mib_per_s,
            plan.cancel_after_s,
        ];
        own.into_iter().chain(more.into_iter().flatten())
    });
    sources.chain(stage_ins)
}
