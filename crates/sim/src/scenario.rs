//! Scenarios: a world and its faults, as TOML. `scenarios/` holds the named ones.

mod amount;
mod check;
mod circuit;
mod gateway;
mod inbound;
mod lent;
mod plan;
mod trace;
mod wishes;

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use posthaste_core::contract::Encode;
use serde::Deserialize;

pub(crate) use amount::{Amount, Price, SECONDS_A_MONTH, mebi};
pub(crate) use circuit::CircuitPlan;
pub(crate) use gateway::GatewayPlan;
pub(crate) use inbound::{SourcePlan, StageInPlan};
pub(crate) use lent::{LentPlan, permille};
pub(crate) use plan::{
    BackgroundPlan, DepotPlan, DomainPlan, FaultKind, FaultPlan, LinkPlan, PathPlan, RequestPlan,
    Varies,
};
pub(crate) use trace::Trace;

/// Most depots of a scenario, and most requests. Memory is the limit.
const DEPOTS_MAX: u64 = 100_000;
const REQUESTS_MAX: u64 = 10_000_000;

/// Named world with its requests and faults.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// Summary in a sentence.
    pub summary: String,
    /// Latest end of the run, in virtual seconds.
    pub(crate) horizon_s: u64,
    /// Egress capacity of the centre for all depots together.
    pub(crate) egress_mib_per_s: Option<f64>,
    /// Knowledge of that capacity by the mind.
    #[serde(default)]
    pub(crate) egress_known: bool,
    /// Place of coding: at the `centre`, at `relays`, or chosen by `auto`.
    #[serde(default)]
    pub(crate) encode: Option<String>,
    /// Seconds at the start in which other traffic shows the paths' rates, one path a second. A
    /// centre knows its paths before any request; requests come only afterwards.
    #[serde(default)]
    pub(crate) monitored_s: u64,
    /// Steps between two snapshots of the mind that must be restored unchanged.
    #[serde(default = "default_snapshot_every")]
    pub(crate) snapshot_every: u64,
    /// Period of the liveness probes of every depot.
    #[serde(default = "default_probe_every")]
    pub(crate) probe_every_s: u64,
    /// Permille of fragments damaged in flight.
    #[serde(default)]
    pub(crate) corrupt_permille: u64,
    /// Permille of stored fragments whose answer is lost.
    #[serde(default)]
    pub(crate) answer_lost_permille: u64,
    #[serde(default, rename = "depot")]
    pub(crate) depots: Vec<DepotPlan>,
    #[serde(default, rename = "request")]
    pub(crate) requests: Vec<RequestPlan>,
    #[serde(default, rename = "source")]
    pub(crate) sources: Vec<SourcePlan>,
    #[serde(default, rename = "stage-in")]
    pub(crate) stage_ins: Vec<StageInPlan>,
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultPlan>,
    #[serde(default, rename = "link")]
    pub(crate) links: Vec<LinkPlan>,
    #[serde(default, rename = "path")]
    pub(crate) paths: Vec<PathPlan>,
    #[serde(default, rename = "domain")]
    pub(crate) domains: Vec<DomainPlan>,
    #[serde(default, rename = "circuit")]
    pub(crate) circuits: Vec<CircuitPlan>,
    #[serde(default, rename = "gateway")]
    pub(crate) gateways: Vec<GatewayPlan>,
    #[serde(default, rename = "background")]
    pub(crate) background: Vec<BackgroundPlan>,
    /// Traces from files, by their name in the scenario.
    #[serde(skip)]
    traces: BTreeMap<String, Arc<Trace>>,
}

fn default_snapshot_every() -> u64 {
    50
}
fn default_probe_every() -> u64 {
    2
}

/// Error of an unusable scenario, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError(String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario from a file, and the traces it names from files beside it.
    ///
    /// # Errors
    /// [`ScenarioError`] if a file can't be read or is no scenario. Retrying won't help.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = read(path, "scenario")?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let load = |name: &str| {
            let path = folder.join(name);
            let trace = Trace::parse(&read(&path, "trace")?);
            trace.map_err(|error| ScenarioError(format!("the trace {}: {error}", path.display())))
        };
        Self::build(&text, load)
            .map_err(|error| ScenarioError(format!("in {}: {error}", path.display())))
    }

    /// Reads a scenario from text.
    ///
    /// # Errors
    /// [`ScenarioError`] naming the fault. A scenario that names a trace also fails, because the
    /// text has no folder.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        Self::build(text, |name| {
            Err(ScenarioError(format!(
                "the trace `{name}` lies beside the scenario's file, and there is none: write it as \
                 trace_mbit_per_s"
            )))
        })
    }

    fn build(
        text: &str,
        load: impl Fn(&str) -> Result<Trace, ScenarioError>,
    ) -> Result<Self, ScenarioError> {
        let mut scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError(error.to_string()))?;
        scenario.number().map_err(ScenarioError)?;
        check::check(&scenario).map_err(ScenarioError)?;
        let mut traces = BTreeMap::new();
        for varies in scenario.varying() {
            if let Some(name) = &varies.trace
                && !traces.contains_key(name)
            {
                traces.insert(name.clone(), Arc::new(load(name)?));
            }
        }
        scenario.traces = traces;
        Ok(scenario)
    }

    /// Returns the centre's egress capacity, in bytes a second.
    pub(crate) fn egress(&self) -> Option<u64> {
        self.egress_mib_per_s.map(mebi)
    }

    pub(crate) fn encode(&self) -> Encode {
        let said = self.encode.as_ref().and_then(|text| text.parse().ok());
        said.unwrap_or_default()
    }

    /// Returns whether the service is ever killed.
    pub(crate) fn kills_driver(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|fault| fault.kind == FaultKind::DriverCrash)
    }

    /// Expands every table of depots that has a count.
    fn number(&mut self) -> Result<(), String> {
        let all: u64 = self.depots.iter().map(|depot| depot.count).sum();
        let requests: u64 = self.requests.iter().map(|request| request.count).sum();
        let stage_ins: u64 = self.stage_ins.iter().map(|plan| plan.count).sum();
        let requests = requests.saturating_add(stage_ins);
        if all > DEPOTS_MAX || requests > REQUESTS_MAX {
            return Err(format!(
                "at most {DEPOTS_MAX} depots and {REQUESTS_MAX} requests fit in a scenario"
            ));
        }
        let plans = std::mem::take(&mut self.depots);
        self.depots = plans.into_iter().flat_map(numbered).collect();
        Ok(())
    }

    /// Returns all tables of rate changes.
    fn varying(&self) -> impl Iterator<Item = &Varies> {
        let depots = self.depots.iter().map(|depot| &depot.varies);
        let links = self.links.iter().map(|link| &link.varies);
        let paths = self.paths.iter().map(|path| &path.varies);
        let sources = self.sources.iter().map(|source| &source.varies);
        let gateways = self.gateways.iter().map(|gateway| &gateway.varies);
        depots
            .chain(links)
            .chain(paths)
            .chain(sources)
            .chain(gateways)
    }

    /// Returns the trace that a rate follows, if any.
    pub(crate) fn trace(&self, varies: &Varies) -> Option<Arc<Trace>> {
        let written = varies.trace_mbit_per_s.as_ref();
        let written = written.and_then(|points| Trace::new(&pairs(points)).ok());
        let named = varies.trace.as_ref().and_then(|name| self.traces.get(name));
        written.map(Arc::new).or_else(|| named.cloned())
    }

    /// Returns the depots' places by name: one for a depot's own name, all for a numbered one.
    pub(crate) fn places(&self) -> BTreeMap<&str, Vec<usize>> {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, depot) in self.depots.iter().enumerate() {
            let names = [Some(&depot.name), depot.template.as_ref()];
            for name in names.into_iter().flatten() {
                places.entry(name).or_default().push(place);
            }
        }
        places
    }

    /// Returns the places of a domain's depots.
    pub(crate) fn members(&self, domain: &str) -> Vec<usize> {
        let depots = self.depots.iter().enumerate();
        let is_member = |depot: &DepotPlan| depot.terms().domains().any(|name| name == domain);
        let members = depots.filter(|(_, depot)| is_member(depot));
        members.map(|(place, _)| place).collect()
    }
}

fn read(path: &Path, what: &str) -> Result<String, ScenarioError> {
    std::fs::read_to_string(path)
        .map_err(|error| ScenarioError(format!("reading the {what} {}: {error}", path.display())))
}

fn pairs(points: &[[f64; 2]]) -> Vec<(f64, f64)> {
    points.iter().map(|[at, rate]| (*at, *rate)).collect()
}

/// Returns the depots of one table: the table itself, or numbered copies if it has a count.
fn numbered(plan: DepotPlan) -> Vec<DepotPlan> {
    if plan.count == 1 {
        return vec![plan];
    }
    let number = |number: u64| DepotPlan {
        name: format!("{}-{number}", plan.name),
        count: 1,
        template: Some(plan.name.clone()),
        ..plan.clone()
    };
    (1..=plan.count).map(number).collect()
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
    fn a_table_of_several_depots_is_numbered_and_its_name_means_all() {
        let text = SMALL.replace("[[request]]", "count = 3\n[[request]]");
        let scenario = Scenario::parse(&text).unwrap();
        let names: Vec<&str> = scenario
            .depots
            .iter()
            .map(|plan| plan.name.as_str())
            .collect();
        assert_eq!(names, ["alpha-1", "alpha-2", "alpha-3"]);
        assert_eq!(scenario.places()["alpha"], [0, 1, 2]);
        assert_eq!(scenario.places()["alpha-2"], [1]);
    }

    /// Invalid edits of a scenario, each with the text, its replacement and the expected message.
    const WRONG: &[(&str, &str, &str)] = &[
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
        (
            "code = \"1+0\"",
            "code = \"1+0\"\nvia_count = 2",
            "via_count is 2, of 1",
        ),
        (
            "[[request]]",
            "mtbf_s = 5\n[[request]]",
            "`alpha`: mtbf_s and mttr_s belong",
        ),
        (
            "[[request]]",
            "domain = \"hall\"\n[[request]]",
            "no domain is called `hall`",
        ),
        (
            "[[request]]",
            "domain = \"hall, yard\"\n[[domain]]\nname = \"hall\"\n[[request]]",
            "no domain is called `yard`",
        ),
        (
            "[[request]]",
            "domain = \"a,b,c,d,e,f,g,h,i\"\n[[request]]",
            "a depot has at most 8 failure domains",
        ),
        (
            "[[request]]",
            "[[domain]]\nname = \"a,b\"\n[[request]]",
            "`a,b` is no name of a domain",
        ),
        (
            "[[request]]",
            "loss_permille = 1001\n[[request]]",
            "loss_permille is at most",
        ),
        (
            "[[request]]",
            "online_mean_s = 3\n[[request]]",
            "offline_mean_s belong",
        ),
        (
            "[[request]]",
            "offline_s = [[5, 3]]\n[[request]]",
            "offline_s are",
        ),
        (
            "[[request]]",
            "varies = { scale = 2 }\n[[request]]",
            "need a trace",
        ),
        (
            "[[request]]",
            "varies = { trace = \"x\" }\n[[request]]",
            "the trace `x` lies beside",
        ),
        (
            "[[request]]",
            "varies = { trace_mbit_per_s = [[0, 1], [0, 2]] }\n[[request]]",
            "moments of a trace rise",
        ),
        (
            "[[request]]",
            "varies = { daily_permille = [1000] }\n[[request]]",
            "daily_permille are 24",
        ),
        (
            "[[request]]",
            "[[path]]\nfrom = \"alpha\"\nto = \"alpha\"\nrate_mib_per_s = 1\n[[request]]",
            "is none, or named twice",
        ),
        (
            "[[request]]",
            "[[background]]\non = \"x\"\nrate_mib_per_s = 1\non_mean_s = 1\noff_mean_s = 1\n[[request]]",
            "no link and no depot is called `x`",
        ),
        (
            "[[request]]",
            "[[link]]\nname = \"alpha\"\nrate_mib_per_s = 1\n[[request]]",
            "each link needs its own name",
        ),
        (
            "horizon_s",
            "probe_every_s = 0\nhorizon_s",
            "must be 1 or more",
        ),
        (
            "[[request]]",
            "count = 200000\n[[request]]",
            "at most 100000 depots",
        ),
    ];

    #[test]
    fn what_is_wrong_with_a_scenario_is_named() {
        for (from, to, said) in WRONG {
            let error = Scenario::parse(&SMALL.replace(from, to))
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
