//! `posthaste paths`: the forecast rate of each path, and its accuracy.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use hyper::Method;
use posthaste_api as api;
use posthaste_types::ByteRate;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    moment::show_seconds,
    output,
};

/// Interval between two looks at a requested probe.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait for a probe. A probe takes 40 s at most; the rest is for one before it, and for
/// transfers that must end first.
const PROBE_PATIENCE: Duration = Duration::from_secs(120);

/// Shows what each path is forecast to carry, how that is known, and how far it was off so far
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste paths                 every path from the centre
  posthaste paths --probe ash     measures the path to ash first, once nothing is on its way there
  posthaste paths --probe s3://lab/run7
                                  measures how fast that takes what is written there
  posthaste paths --probe ash --from birch
                                  lets birch measure its path to ash

Nine in ten measurements are faster than p10, one in ten is faster than p90; both move away from p50
with AGE, the time since the path was last measured. ERROR is how far p50 was off so far, on average.
KNOWN BY: `transfers` and `probe` were measured, `advertised` is what the depot says it lends,
`assumed` is a guess. Where gateways lead to a depot, a line for each way says what it carries, and which is taken.
Who operates the service also sees the paths of what comes in, and goes to addresses.")]
pub struct PathsArguments {
    /// Measure the path to this depot or address first; at an address something is written and removed
    #[arg(long, value_name = "DEPOT|ADDRESS")]
    probe: Option<String>,
    /// Profile of the service's user for that address, where it has no name of its own
    #[arg(long, value_name = "NAME", requires = "probe")]
    profile: Option<String>,
    /// Let this depot measure it, rather than the centre
    #[arg(long, value_name = "DEPOT", requires = "probe")]
    from: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached or a requested probe does not
/// end.
pub async fn run(arguments: PathsArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    if let Some(end) = &arguments.probe {
        match end.contains(':') || end.starts_with('/') {
            true => probe_address(&service, &arguments, end).await?,
            false => probe(&service, arguments.from.as_deref(), end).await?,
        }
    }
    let paths: Vec<api::Path> = service.get("/v1/paths").await?;
    if arguments.json {
        output::json(&paths);
    } else {
        output::table(&table(&paths));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures the path to an address.
async fn probe_address(
    service: &ServiceClient,
    arguments: &PathsArguments,
    address: &str,
) -> Result<(), Failure> {
    if let Some(from) = &arguments.from {
        let why = format!("can't probe the path from {from} to {address}: depots probe depots");
        return Err(Failure::new(Exit::Usage, why));
    }
    let new = api::NewProbe {
        address: address.to_owned(),
        profile: arguments.profile.clone(),
    };
    service.post::<api::Path>("/v1/paths/probe", &new).await?;
    Ok(())
}

/// Probes the path from the centre, or from a depot, to a depot, and waits for the end.
async fn probe(service: &ServiceClient, from: Option<&str>, depot: &str) -> Result<(), Failure> {
    let before = probed(service, from, depot).await?;
    let begin = from.map_or_else(String::new, |from| format!("?from={from}"));
    service
        .tell(Method::POST, &format!("/v1/paths/{depot}/probe{begin}"))
        .await?;
    let ended = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = probed(service, from, depot).await?;
            if now != before {
                return Ok(());
            }
        }
    };
    let waited = tokio::time::timeout(PROBE_PATIENCE, ended).await;
    waited.unwrap_or_else(|_| {
        Err(Failure::new(
            Exit::Temporary,
            format!(
                "can't probe the path to {depot}: it did not begin or end within {} s (is something on its way there? its transfers tell more)",
                PROBE_PATIENCE.as_secs()
            ),
        ))
    })
}

/// Waits for the end of the path's last probe.
async fn probed(
    service: &ServiceClient,
    from: Option<&str>,
    depot: &str,
) -> Result<Option<String>, Failure> {
    let paths: Vec<api::Path> = service.get("/v1/paths").await?;
    let from = from.unwrap_or("centre");
    let mut paths = paths.into_iter();
    let path = paths.find(|path| path.from == from && path.to == depot);
    Ok(path.and_then(|path| path.probed))
}

fn table(paths: &[api::Path]) -> Vec<Vec<String>> {
    let heading = [
        "FROM", "TO", "p10", "p50", "p90", "AGE", "SAMPLES", "ERROR", "KNOWN BY",
    ];
    let row = |path: &api::Path| {
        vec![
            path.from.clone(),
            path.to.clone(),
            ByteRate::new(path.rate_p10_bytes_per_s).to_string(),
            ByteRate::new(path.rate_p50_bytes_per_s).to_string(),
            ByteRate::new(path.rate_p90_bytes_per_s).to_string(),
            path.age_s.map_or_else(|| "-".into(), show_seconds),
            (path.transfers + path.probes).to_string(),
            path.error
                .map_or_else(|| "-".into(), |error| format!("{:.0} %", error * 100.0)),
            path.known_by.clone(),
        ]
    };
    let rows = paths
        .iter()
        .flat_map(|path| std::iter::once(row(path)).chain(path.ways.iter().map(way_row)));
    std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

/// Formats one of several ways to the depot of the row above.
fn way_row(way: &api::PathWay) -> Vec<String> {
    let rate =
        |rate: Option<u64>| rate.map_or_else(|| "-".into(), |rate| ByteRate::new(rate).to_string());
    let is_taken = if way.taken { "taken" } else { "" };
    vec![
        "  way".into(),
        way.name.clone(),
        rate(way.rate_p10_bytes_per_s),
        rate(way.rate_p50_bytes_per_s),
        rate(way.rate_p90_bytes_per_s),
        way.age_s.map_or_else(|| "-".into(), show_seconds),
        String::new(),
        String::new(),
        is_taken.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut path = api::Path {
            from: "centre".into(),
            to: "ash".into(),
            rate_p10_bytes_per_s: 4 << 20,
            rate_p50_bytes_per_s: 32 << 20,
            rate_p90_bytes_per_s: 1 << 30,
            known_by: "assumed".into(),
            measured: None,
            age_s: None,
            transfers: 0,
            probes: 0,
            probed: None,
            error: None,
            judged: 0,
            round_trip_ms: None,
            below_p10: None,
            above_p90: None,
            ways: Vec::new(),
        };
        let shown = |path: &api::Path| table(std::slice::from_ref(path)).remove(1).join(" ");
        assert_eq!(
            shown(&path),
            "centre ash 4.0 MiB/s 32.0 MiB/s 1.0 GiB/s - 0 - assumed"
        );
        path.age_s = Some(90.0);
        (path.transfers, path.probes, path.error) = (12, 2, Some(0.137));
        path.known_by = "transfers".into();
        assert!(
            shown(&path).ends_with("14 14 % transfers"),
            "{}",
            shown(&path)
        );
    }
}
