//! Circuits of a scenario: their terms, reservations of others, and outages.

use posthaste_core::contract::CircuitTerms;
use posthaste_types::{ByteRate, DepotId};
use serde::Deserialize;
use std::time::Duration;

use super::{Amount, Price, mebi};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CircuitPlan {
    pub(crate) name: String,
    /// Depots it leads to.
    pub(crate) depots: Vec<String>,
    /// Highest rate of all reservations together.
    pub(crate) rate_mib_per_s: f64,
    /// Lead time from the request until data can flow.
    pub(crate) lead_s: u64,
    /// Shortest reservation.
    #[serde(default)]
    pub(crate) least_s: u64,
    #[serde(default)]
    pub(crate) usd_per_hour: Price,
    /// Response time of its provider.
    #[serde(default = "default_answer")]
    pub(crate) answer_s: Amount,
    /// Delay of its setup beyond the requested time.
    #[serde(default = "default_late")]
    pub(crate) up_late_s: Amount,
    /// Reservations of others: from, until, and the rate.
    #[serde(default)]
    pub(crate) taken: Vec<[f64; 3]>,
    /// Permille of requests refused although rate is free.
    #[serde(default)]
    pub(crate) refused_permille: u64,
    /// Times in which it refuses all requests: from and until.
    #[serde(default)]
    pub(crate) refuses_s: Vec<[f64; 2]>,
    /// Times in which it carries nothing: from and until.
    #[serde(default)]
    pub(crate) down_s: Vec<[f64; 2]>,
    /// Times at which all its reservations are lost.
    #[serde(default)]
    pub(crate) fails_s: Vec<f64>,
}

impl CircuitPlan {
    pub(crate) fn terms(&self, depots: Vec<DepotId>) -> CircuitTerms {
        CircuitTerms {
            name: self.name.clone(),
            depots,
            rate_max: ByteRate::new(self.rate()),
            lead: Duration::from_secs(self.lead_s),
            least: Duration::from_secs(self.least_s),
            hour_micro_usd: self.usd_per_hour.micro(),
            ways: Vec::new(),
        }
    }

    /// Returns its rate in bytes a second.
    pub(crate) fn rate(&self) -> u64 {
        mebi(self.rate_mib_per_s)
    }

    /// Checks the table of the circuit.
    pub(super) fn check(&self, is_depot: impl Fn(&str) -> bool) -> Result<(), String> {
        if let Some(unknown) = self.depots.iter().find(|name| !is_depot(name)) {
            return Err(format!("no depot is called `{unknown}`"));
        }
        if self.depots.is_empty() || !(self.rate_mib_per_s > 0.0 && self.rate_mib_per_s < 1e9) {
            return Err("it leads to depots, at a rate".into());
        }
        let spans = self.refuses_s.iter().chain(&self.down_s).copied();
        let spans = spans.chain(self.taken.iter().map(|[from, until, _]| [*from, *until]));
        let is_wrong = |[from, until]: [f64; 2]| !(from >= 0.0 && from < until && until < 1e9);
        if spans.into_iter().any(is_wrong) {
            return Err("times are from and until, in seconds".into());
        }
        if self.refused_permille > 1000 {
            return Err("refused_permille is at most 1000".into());
        }
        let is_never = |at: &f64| !(*at >= 0.0 && *at < 1e9);
        if self.fails_s.iter().any(is_never)
            || self
                .taken
                .iter()
                .any(|[_, _, rate]| !(*rate >= 0.0 && *rate < 1e9))
        {
            return Err("it fails at a time, and what is taken is a rate".into());
        }
        Ok(())
    }
}

fn default_answer() -> Amount {
    Amount::Fixed(0.8)
}
fn default_late() -> Amount {
    Amount::Fixed(0.0)
}
