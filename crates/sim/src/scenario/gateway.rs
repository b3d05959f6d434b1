//! Gateways of a scenario: their capacity, depots and outages.

use serde::Deserialize;

use super::{Amount, Scenario, Varies};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayPlan {
    pub(crate) name: String,
    /// Depots it leads to.
    pub(crate) depots: Vec<String>,
    /// Capacity for all these depots together.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default)]
    pub(crate) varies: Varies,
    /// Times in which it is gone: from and until.
    #[serde(default)]
    pub(crate) gone_s: Vec<[f64; 2]>,
}

impl GatewayPlan {
    /// Checks the table of the gateway.
    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let places = scenario.places();
        let unknown = |name: &&String| !places.contains_key(name.as_str());
        if let Some(unknown) = self.depots.iter().find(unknown) {
            return Err(format!("no depot is called `{unknown}`"));
        }
        if self.depots.is_empty() {
            return Err("it leads to depots".into());
        }
        let circuits = scenario.circuits.iter();
        let mut led_to = circuits.flat_map(|circuit| &circuit.depots);
        if let Some(both) = led_to.find(|name| self.depots.contains(name)) {
            return Err(format!("a circuit leads to `{both}` already"));
        }
        let is_wrong = |[from, until]: &[f64; 2]| !(*from >= 0.0 && from < until && *until < 1e9);
        if self.gone_s.iter().any(is_wrong) {
            return Err("times are from and until, in seconds".into());
        }
        Ok(())
    }
}

/// Returns the first inconsistency of the gateways as an error.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    for gateway in &scenario.gateways {
        let checked = gateway.check(scenario);
        checked.map_err(|error| format!("gateway `{}`: {error}", gateway.name))?;
    }
    Ok(())
}
