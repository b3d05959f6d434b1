//! `posthaste slurm`: what a centre's Slurm has of posthaste.

mod config;
mod hook;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Serves Slurm's burst buffer plug-in
///
/// `plugins/slurm/burst_buffer.lua` beside slurm.conf lets jobs wait until what their `#POSTHASTE stage_in` lines name is
/// on scratch, and frees their nodes before what `#POSTHASTE stage_out` names has left. docs/operating/slurm.md says how it
/// is set up.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SlurmArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Hook(hook::HookArguments),
}

/// Runs the command.
///
/// # Errors
/// The command's.
pub async fn run(arguments: SlurmArguments) -> Outcome {
    match arguments.command {
        Command::Hook(arguments) => hook::run(arguments).await,
    }
}
