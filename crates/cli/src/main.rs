//! The `posthaste` executable: parses the command line and calls one file per command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod copy;
mod failure;

/// Moves data to and from an HPC centre by a deadline.
#[derive(Parser)]
#[command(name = "posthaste", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Copies files and trees
    #[command(name = "cp")]
    Copy(copy::CopyArguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome: failure::Outcome = match cli.command {
        Command::Copy(arguments) => copy::run(arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("posthaste: {failure}");
            failure.exit_code()
        }
    }
}
