//! Depots lent for single requests, as tables.

use posthaste_core::contract::{LentTerms, Windows};
use posthaste_types::DepotId;
use serde::Deserialize;

use super::{DepotPlan, Scenario};

/// Highest load for each core, far above that of any machine.
const LOAD_MAX: f64 = 1000.0;

/// Terms of disk lent for one request, besides its general terms.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LentPlan {
    pub(crate) depot: String,
    /// Hours of the lending; without any, always.
    #[serde(default)]
    pub(crate) hours: String,
    /// Load for each core below which it is lent.
    pub(crate) load_below: Option<f64>,
}

impl LentPlan {
    pub(crate) fn terms(&self, depot: DepotId) -> LentTerms {
        LentTerms {
            depot,
            windows: self.hours.parse().unwrap_or_default(),
            load_max_permille: self.load_below.map(permille),
        }
    }
}

/// Converts a load to thousandths.
pub(crate) fn permille(load: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked when it was read"
    )]
    let permille = (load * 1000.0).round() as u32;
    permille
}

/// Returns the first inconsistency of the lent depots as an error.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    let is_load = |load: f64| (0.0..=LOAD_MAX).contains(&load);
    for lent in scenario.requests.iter().flat_map(|plan| &plan.lent) {
        let is_it = |depot: &DepotPlan| {
            let names = [Some(&depot.name), depot.template.as_ref()];
            names.into_iter().flatten().any(|name| *name == lent.depot)
        };
        if !scenario.depots.iter().any(is_it) {
            return Err(format!("no depot is called `{}`", lent.depot));
        }
        let hours = lent.hours.parse::<Windows>();
        if !lent.hours.is_empty() {
            hours.map_err(|error| error.to_string())?;
        }
        if !lent.load_below.is_none_or(is_load) {
            return Err("load_below is 0 to 1000".into());
        }
    }
    let mut most = scenario.depots.iter().filter_map(|depot| depot.load_max);
    if !most.all(is_load) {
        return Err("load_max is 0 to 1000".into());
    }
    let told = scenario.depots.iter().flat_map(|depot| &depot.load);
    for [at, load] in told {
        super::check::check_time("load", *at)?;
        if !is_load(*load) {
            return Err("load is [seconds, load], a load of 0 to 1000".into());
        }
    }
    Ok(())
}
