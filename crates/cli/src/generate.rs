//! `posthaste generate`: files generated from the program itself: OpenAPI, man pages, completions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;
use posthaste_endpoint::Error;

use crate::{endpoints, failure::Outcome};

/// Writes shell completions, man pages, the OpenAPI document or the reference to a directory
///
/// Example:
///   posthaste generate completions ~/.local/share/posthaste
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct GenerateArguments {
    /// Kind of output
    #[arg(value_enum)]
    what: What,
    /// Where to; made if it isn't there
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// For bash, elvish, fish, PowerShell and zsh
    Completions,
    /// Write one page for each command
    Man,
    /// The REST API's OpenAPI 3.1 document
    Openapi,
    /// Pages of the reference in Markdown: what each endpoint can do
    Reference,
}

/// Runs the command.
///
/// # Errors
/// Fails if the directory can't be written.
pub fn run(arguments: &GenerateArguments, command: Command) -> Outcome {
    let directory = &arguments.directory;
    let failed =
        |cause: std::io::Error| Error::io("write to", directory.display().to_string(), cause);
    fs::create_dir_all(directory).map_err(failed)?;
    match arguments.what {
        What::Completions => completions(directory, command).map_err(failed)?,
        What::Man => clap_mangen::generate_to(command, directory).map_err(failed)?,
        What::Openapi => {
            fs::write(
                directory.join("posthaste.json"),
                posthaste_service::openapi(),
            )
            .map_err(failed)?;
        }
        What::Reference => {
            fs::write(directory.join("endpoints.md"), endpoints::page()).map_err(failed)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn completions(directory: &Path, mut command: Command) -> std::io::Result<()> {
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "posthaste", directory)?;
    }
    Ok(())
}
