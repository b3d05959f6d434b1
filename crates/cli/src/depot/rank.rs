use clap::Args;
use posthaste_api as api;
use posthaste_types::ByteRate;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Failure,
    moment::show_seconds,
    output,
};

/// Which way.
#[derive(Debug, Args)]
pub(super) struct RankArguments {
    /// The depot that is the destination; without it only the distance from the centre counts
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

pub(super) async fn run(arguments: RankArguments) -> Result<(), Failure> {
    let service = ServiceClient::open(&arguments.service)?;
    let end = arguments
        .to
        .map_or_else(String::new, |to| format!("?to={to}"));
    let ranked: Vec<api::Ranked> = service.get(&format!("/v1/ranking{end}")).await?;
    if arguments.json {
        output::json(&ranked);
    } else {
        output::table(&table(&ranked));
    }
    Ok(())
}

fn table(ranked: &[api::Ranked]) -> Vec<Vec<String>> {
    let heading = [
        "NAME",
        "LEVEL",
        "FROM CENTRE",
        "p50",
        "AGE",
        "ONWARD",
        "p50",
        "AGE",
        "",
    ];
    let unknown = || "-".to_owned();
    let millis = |span: Option<f64>| span.map_or_else(unknown, |span| format!("{span:.1} ms"));
    let age = |age: Option<f64>| age.map_or_else(unknown, show_seconds);
    let rows = ranked.iter().map(|depot| {
        let onward = depot.onward_p50_bytes_per_s;
        vec![
            depot.name.clone(),
            depot.level.to_string(),
            millis(depot.from_centre_ms),
            ByteRate::new(depot.rate_p50_bytes_per_s).to_string(),
            age(depot.age_s),
            millis(depot.to_destination_ms),
            onward.map_or_else(unknown, |rate| ByteRate::new(rate).to_string()),
            age(depot.onward_age_s),
            String::from(if depot.landmark { "landmark" } else { "" }),
        ]
    });
    std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut depot = api::Ranked {
            name: "ash".into(),
            from_centre_ms: None,
            to_destination_ms: None,
            level: 1,
            landmark: false,
            rate_p50_bytes_per_s: 8 << 20,
            age_s: None,
            onward_p50_bytes_per_s: None,
            onward_age_s: None,
        };
        let shown = |depot: &api::Ranked| table(std::slice::from_ref(depot)).remove(1).join(" ");
        assert_eq!(shown(&depot), "ash 1 - 8.0 MiB/s - - - - ");
        (depot.from_centre_ms, depot.to_destination_ms) = (Some(2.5), Some(40.0));
        (depot.onward_p50_bytes_per_s, depot.onward_age_s) = (Some(1 << 20), Some(3.0));
        depot.landmark = true;
        assert!(shown(&depot).starts_with("ash 1 2.5 ms 8.0 MiB/s - 40.0 ms 1.0 MiB/s "));
        assert!(shown(&depot).ends_with("landmark"));
    }
}
