//! `posthaste pull`: brings a dataset home from all depots that hold it at once.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use hyper::Method;
use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    output,
    screen::Screen,
};

/// Pulls a dataset to DIR from every depot that holds it, rebuilding what is missing
///
/// Verifies every chunk. Each file appears under its name only when it is whole. Killed and run
/// again, it goes on where it was.
///
/// Example:
///   posthaste pull r7 ~/results
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PullArguments {
    /// The request's id, like r7
    id: String,
    /// Where to put it; made if it isn't there
    directory: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// When too few depots can be reached, the destination can't be written, or the service refuses.
pub async fn run(arguments: PullArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let shown = Shown::from(&Screen::new(!arguments.json));
    let report = fetch(&service, &arguments.id, &arguments.directory, shown).await?;
    if arguments.json {
        output::json(&serde_json::json!({
            "bytes": report.bytes,
            "files": report.files,
            "rebuilt_chunks": report.rebuilt_chunks,
            "corrupt_fragments": report.corrupt_fragments,
            "depots_lost": report.depots_lost,
            "skipped_chunks": report.skipped_chunks,
        }));
    } else {
        output::line(&format!(
            "{}: {} in {} files pulled and verified to {} ({} chunks rebuilt)",
            arguments.id,
            Bytes::new(report.bytes),
            report.files,
            arguments.directory.display(),
            report.rebuilt_chunks
        ));
    }
    Ok(ExitCode::SUCCESS)
}
