//! `posthaste pbs`: commands for a centre's PBS.

mod copy;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Serves PBS: staging for its execution hosts
///
/// plugins/pbs/posthaste-scp and posthaste-cp, named in pbs.conf as PBS_SCP and PBS_CP, take over what `qsub -W stagein=` and
/// `stageout=` name. plugins/pbs/posthaste_hook.py lets jobs wait for their data before nodes are chosen.
/// docs/operating/pbs.md says how both are set up.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PbsArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Copy(copy::StagingArguments),
}

/// Runs the command.
///
/// # Errors
/// Returns the command's errors.
pub fn run(arguments: PbsArguments) -> Outcome {
    match arguments.command {
        Command::Copy(arguments) => copy::run(arguments),
    }
}
