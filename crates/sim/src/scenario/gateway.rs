//! Gateways of a scenario: what they carry, to which depots, and when they are gone.

use serde::Deserialize;

use super::{Amount, Scenario, Varies};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayPlan {
    pub(crate) name: String,
    /// Where it leads to.
    pub(crate) depots: Vec<String>,
    /// What it carries, for all of them together.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default)]
    pub(crate) varies: Varies,
    /// When it is gone: from and until.
    #[serde(default)]
    pub(crate) gone_s: Vec<[f64; 2]>,
}

impl GatewayPlan {
    /// What is wrong with it.
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

/// Says what is wrong with the gateways first.
pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    for gateway in &scenario.gateways {
        let checked = gateway.check(scenario);
        checked.map_err(|error| format!("gateway `{}`: {error}", gateway.name))?;
    }
    Ok(())
}
