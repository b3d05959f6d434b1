//! `posthaste datasets`: the datasets that depots hold, and their holders.

use std::process::ExitCode;

use clap::Args;
use posthaste_api as api;
use posthaste_endpoint::encode;
use posthaste_types::Bytes;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    output,
};

/// Shows what depots hold: each dataset, and how much of it is where
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste datasets                 all that depots hold something of, the newest first
  posthaste datasets r7              that of one request
  posthaste datasets --json | jq -r 'select(.holders | any(.state == \"down\")).request'

SAFE counts chunks that survive the loss of as many depots as the code has parity; a depot with ! is not up.")]
pub struct DatasetsArguments {
    /// A request, like r7, or a dataset by the name that depots know it by [default: all of them]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Show so many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    /// Print JSON, a line each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: DatasetsArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let datasets = match &arguments.id {
        Some(id) => vec![one(&service, id).await?],
        None => {
            let request = |dataset: &api::Dataset| dataset.request.clone();
            let most = arguments.limit;
            service.newest("/v1/datasets", "", most, request).await?
        }
    };
    if arguments.json {
        datasets.iter().for_each(output::json);
    } else {
        output::table(&table(&datasets));
    }
    Ok(ExitCode::SUCCESS)
}

async fn one(service: &ServiceClient, id: &str) -> Result<api::Dataset, Failure> {
    let number = id.strip_prefix('r').map(str::parse::<u64>);
    let dataset = match number {
        Some(Ok(_)) => {
            let request: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
            request.dataset
        }
        Some(Err(_)) | None => encode(id.as_bytes(), false),
    };
    service.get(&format!("/v1/datasets/{dataset}")).await
}

fn table(datasets: &[api::Dataset]) -> Vec<Vec<String>> {
    let heading = ["REQUEST", "STATE", "BYTES", "CODE", "SAFE", "HELD BY"];
    let rows = datasets.iter().map(|dataset| {
        let holders = dataset.holders.iter().map(|holder| {
            let mark = if holder.state == api::DepotState::Up {
                ""
            } else {
                "!"
            };
            format!("{}{mark} {}", holder.depot, Bytes::new(holder.bytes))
        });
        vec![
            dataset.request.clone(),
            dataset.state.to_string(),
            Bytes::new(dataset.bytes).to_string(),
            dataset.code.clone(),
            format!("{} of {}", dataset.chunks_safe, dataset.chunks),
            holders.collect::<Vec<_>>().join(", "),
        ]
    });
    [heading.map(str::to_owned).to_vec()]
        .into_iter()
        .chain(rows)
        .collect()
}
