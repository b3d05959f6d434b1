//! `posthaste movers`: the movers of the service.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    moment::show_seconds,
    output,
};

/// Shows who moves data for the service
#[derive(Debug, Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  posthaste movers                    those that are there
  posthaste movers drain dtn3         gives dtn3 nothing new, before it is switched off
  posthaste movers drain dtn3 --off   gives it work again

A mover that `rests` could not do what others could, three times in a row: it may see other files, or lack a
profile. It gets work again after a minute. Where none is there the service moves data itself."
)]
pub struct MoversArguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Gives movers of this name nothing new; what they have they do
    Drain {
        /// Name of it
        name: String,
        /// Give it work again
        #[arg(long)]
        off: bool,
        #[command(flatten)]
        service: ServiceArguments,
    },
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: MoversArguments) -> Outcome {
    if let Some(Verb::Drain { name, off, service }) = arguments.verb {
        let method = if off { Method::DELETE } else { Method::POST };
        let service = ServiceClient::open(&service)?;
        service
            .tell(method, &format!("/v1/movers/{name}/drain"))
            .await?;
        return Ok(ExitCode::SUCCESS);
    }
    let service = ServiceClient::open(&arguments.service)?;
    let movers: Vec<api::Mover> = service.get("/v1/movers").await?;
    if arguments.json {
        output::json(&movers);
    } else if movers.is_empty() {
        crate::output::note!("posthaste: no mover is there: the service moves data itself");
    } else {
        output::table(&table(&movers));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(movers: &[api::Mover]) -> Vec<Vec<String>> {
    let heading = [
        "NAME", "HOST", "STATE", "WORK", "DONE", "FAILED", "MOVED", "HEARD", "VERSION",
    ];
    let row = |mover: &api::Mover| {
        vec![
            mover.name.clone(),
            mover.host.clone(),
            mover.state.to_string(),
            format!("{}/{}", mover.working, mover.slots),
            mover.done.to_string(),
            mover.failed.to_string(),
            Bytes::new(mover.bytes).to_string(),
            show_seconds(mover.heard_s),
            mover.version.clone(),
        ]
    };
    let rows = movers.iter().map(row);
    std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}
