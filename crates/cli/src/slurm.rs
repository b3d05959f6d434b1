//! `posthaste slurm`: commands for a centre's Slurm.

mod config;
mod doctor;
mod hook;
mod install;
mod prolog;
mod scripts;
mod site;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
pub use hook::{complaints, directives, only_directives, variables};

/// Makes Slurm wait for data: install, doctor
///
/// A script beside slurm.conf (Slurm's burst_buffer/lua) lets jobs wait until what their `#POSTHASTE stage_in` lines name is
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
    Install(install::InstallArguments),
    Doctor(doctor::DoctorArguments),
}

/// Runs the command.
///
/// # Errors
/// Returns the command's errors.
pub async fn run(arguments: SlurmArguments) -> Outcome {
    match arguments.command {
        Command::Hook(arguments) => hook::run(arguments).await,
        Command::Install(arguments) => install::run(arguments).await,
        Command::Doctor(arguments) => doctor::run(arguments).await,
    }
}
