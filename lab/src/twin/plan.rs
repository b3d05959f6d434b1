//! Content of a scenario that real processes can play, and the network it means.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::Topology;

/// The host where the service runs.
pub(super) const CENTRE: &str = "centre";

/// A full packet of TCP with time stamps over IPv4, and its data bytes: scenarios count data.
const PACKET_BYTES: f64 = 1500.0;
const DATA_BYTES: f64 = 1448.0;

/// A mebibyte, in bits.
const MEBI_BITS: f64 = 8.0 * 1_048_576.0;

/// A scenario, as far as it is possible in reality. An unknown field is rejected: it would be true
/// of one twin only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub(super) name: String,
    /// For people.
    #[serde(rename = "summary")]
    _summary: String,
    /// Latest end of the run.
    pub(super) horizon_s: f64,
    pub(super) egress_mib_per_s: Option<f64>,
    #[serde(rename = "depot")]
    pub(super) depots: Vec<Depot>,
    #[serde(rename = "request")]
    pub(super) requests: Vec<Request>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Fault>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Depot {
    pub(super) name: String,
    pub(super) rate_mib_per_s: f64,
    #[serde(default = "usual_latency")]
    pub(super) latency_ms: f64,
    pub(super) capacity_mib: f64,
    pub(super) way_in_mib_per_s: Option<f64>,
    #[serde(default)]
    pub(super) advertises: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    pub(super) at_s: f64,
    pub(super) size_mib: u64,
    /// Chunk size in the simulator; the service chooses its own.
    pub(super) chunk_mib: f64,
    pub(super) deadline_s: f64,
    pub(super) code: String,
    #[serde(default)]
    pub(super) via: Vec<String>,
    pub(super) destination: Option<String>,
    #[serde(default = "yes")]
    pub(super) release: bool,
    #[serde(default)]
    pub(super) best_effort: bool,
    /// Checks of the simulator.
    #[serde(default, rename = "expect")]
    _expect: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) at_s: f64,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) depot: String,
    pub(super) rate_mib_per_s: Option<f64>,
    pub(super) for_s: Option<f64>,
}

/// Faults possible in both worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The relay is killed with SIGKILL.
    Dies,
    /// The link loses everything.
    Vanishes,
    /// The link carries less.
    Slows,
    /// The service is killed with SIGKILL.
    DriverCrash,
}

/// Returns the default latency of the simulator.
fn usual_latency() -> f64 {
    20.0
}

fn yes() -> bool {
    true
}

impl Plan {
    /// Reads a scenario.
    ///
    /// # Errors
    /// Fails if it is invalid, or contains what is impossible here.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let plan: Self =
            toml::from_str(text).context("the scenario can't be played in the laboratory")?;
        for depot in &plan.depots {
            ensure!(
                depot.name != CENTRE,
                "a depot can't be called {CENTRE}: the service's host is"
            );
        }
        for fault in &plan.faults {
            let is_known = plan.depots.iter().any(|depot| depot.name == fault.depot);
            ensure!(
                is_known || fault.kind == Kind::DriverCrash,
                "a fault strikes `{}`, which is no depot",
                fault.depot
            );
            ensure!(
                fault.for_s.is_some() || fault.kind != Kind::DriverCrash,
                "a service that is killed needs for_s: it has to come back"
            );
        }
        Ok(plan)
    }

    /// Returns the depots that a request may use: those it names, or all but its destination.
    pub(super) fn via(&self, request: &Request) -> Vec<String> {
        if !request.via.is_empty() {
            return request.via.clone();
        }
        let names = self.depots.iter().map(|depot| depot.name.clone());
        names
            .filter(|name| Some(name) != request.destination.as_ref())
            .collect()
    }

    /// Returns the depot of that name.
    pub(super) fn depot(&self, name: &str) -> Option<&Depot> {
        self.depots.iter().find(|depot| depot.name == name)
    }

    /// Returns the network: a star around the centre, one link to each depot.
    ///
    /// # Errors
    /// Fails if no laboratory can be like that.
    pub(super) fn topology(&self) -> Result<Topology> {
        let mut text = format!("name = \"twin\"\n[[host]]\nname = \"{CENTRE}\"\n");
        if let Some(egress) = self.egress_mib_per_s {
            let _ = writeln!(text, "up = \"{}\"", rate(egress));
        }
        for depot in &self.depots {
            let _ = writeln!(text, "[[host]]\nname = \"{}\"", depot.name);
            if let Some(way_in) = depot.way_in_mib_per_s {
                let _ = writeln!(text, "down = \"{}\"", rate(way_in));
            }
        }
        for depot in &self.depots {
            let _ = writeln!(
                text,
                "[[link]]\nname = \"{}\"\nends = [\"{CENTRE}\", \"{}\"]\nrate = \"{}\"\ndelay = \"{}ms\"",
                link(&depot.name),
                depot.name,
                rate(depot.rate_mib_per_s),
                depot.latency_ms
            );
        }
        Topology::parse(&text)
    }
}

/// Returns the name of the link to a depot.
pub(super) fn link(depot: &str) -> String {
    format!("to-{depot}")
}

/// Returns the rate of the link for a rate of data, with the headers of its packets.
pub(super) fn rate(mib_per_s: f64) -> String {
    format!(
        "{:.0}bit/s",
        mib_per_s * MEBI_BITS * PACKET_BYTES / DATA_BYTES
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        summary = "Two depots, one request."
        horizon_s = 60
        egress_mib_per_s = 3
        [[depot]]
        name = "home"
        rate_mib_per_s = 1
        capacity_mib = 100
        [[depot]]
        name = "alpha"
        rate_mib_per_s = 2.5
        latency_ms = 7
        capacity_mib = 100
        [[request]]
        size_mib = 10
        chunk_mib = 1
        deadline_s = 60
        code = "1+0"
        destination = "home"
    "#;

    #[test]
    fn a_scenario_becomes_a_star_whose_links_carry_its_rates_of_data() {
        let plan = Plan::parse(SMALL).unwrap();
        let topology = plan.topology().unwrap();
        let alpha = &topology.links()[1];
        assert_eq!(alpha.name, "to-alpha");
        let bits = alpha.forth.rate.bits_per_s().unwrap();
        let data = bits as f64 / 8.0 * DATA_BYTES / PACKET_BYTES;
        assert!((data / 1_048_576.0 - 2.5).abs() < 1e-6, "{data}");
        let delays = topology
            .links()
            .iter()
            .map(|link| link.forth.delay.duration().as_millis());
        assert_eq!(delays.collect::<Vec<_>>(), [20, 7]);
        assert!(topology.hosts()[0].up.rate.bits_per_s().is_some());
    }

    #[test]
    fn a_request_goes_through_all_but_its_destination_unless_it_says() {
        let plan = Plan::parse(SMALL).unwrap();
        assert_eq!(plan.via(&plan.requests[0]), ["alpha"]);
    }

    #[test]
    fn what_would_be_true_of_one_twin_only_is_refused() {
        for (from, to) in [
            ("horizon_s", "egress_known = true\nhorizon_s"),
            ("latency_ms = 7", "jitter_permille = 50"),
            ("rate_mib_per_s = 1\n", "rate_mib_per_s = [1, 2]\n"),
            ("name = \"alpha\"", "name = \"centre\""),
            (
                "[[request]]",
                "[[fault]]\nat_s = 1\nkind = \"dies\"\ndepot = \"beta\"\n[[request]]",
            ),
            (
                "[[request]]",
                "[[fault]]\nat_s = 1\nkind = \"driver-crash\"\n[[request]]",
            ),
            (
                "[[request]]",
                "[[fault]]\nat_s = 1\nkind = \"full\"\ndepot = \"home\"\n[[request]]",
            ),
        ] {
            let text = SMALL.replace(from, to);
            assert_ne!(text, SMALL);
            assert!(Plan::parse(&text).is_err(), "{to}");
        }
    }
}
