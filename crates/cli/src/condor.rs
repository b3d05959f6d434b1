//! `posthaste condor`: commands for a pool's HTCondor.

mod ads;
mod plugin;
mod report;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Serves HTCondor's file transfer
///
/// plugins/condor/posthaste-condor-plugin in FILETRANSFER_PLUGINS moves what jobs name by URL in transfer_input_files and
/// output_destination. docs/operating/htcondor.md says how it is set up.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct CondorArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plugin(plugin::PluginArguments),
}

/// Runs the command.
///
/// # Errors
/// Returns the command's errors.
pub async fn run(arguments: CondorArguments) -> Outcome {
    match arguments.command {
        Command::Plugin(arguments) => plugin::run(arguments).await,
    }
}
