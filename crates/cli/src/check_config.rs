//! `posthaste check-config`: checks a file of settings before something is started with it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Command};
use posthaste_endpoint::gateway::Gateways;
use posthaste_service::Issuer;

use crate::{
    failure::{Exit, Failure, Outcome},
    output, settings,
};

/// Checks a file of settings: every wrong one is said with its line, and what the files say that it names
///
/// Nothing is started, connected to or changed. Each `--config` of `posthaste serve` and `posthaste relay` reads its own
/// table of the file.
///
/// Example:
///   posthaste check-config /etc/posthaste/posthaste.toml
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct CheckConfigArguments {
    /// The file of settings
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Lists the mistakes in the file.
pub fn run(arguments: &CheckConfigArguments, command: &Command) -> Outcome {
    let tables = settings::read(command, &arguments.file)?;
    let (mut count, mut notes) = (0, Vec::new());
    for (name, words) in &tables {
        count += words.len();
        let start = [OsString::from("posthaste"), name.into()];
        let all = start.iter().chain(words);
        // The command line may complete a table; options that exclude each other are wrong.
        let matches = command.clone().try_get_matches_from(all);
        let matches = match matches {
            Ok(matches) => matches,
            Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => {
                let said = error.to_string();
                let lacks: Vec<&str> = said.lines().skip(1).map(str::trim).collect();
                let lacks: Vec<&str> = lacks
                    .into_iter()
                    .take_while(|line| !line.is_empty())
                    .collect();
                notes.push(format!("[{name}] still needs {}", lacks.join(", ")));
                continue;
            }
            Err(error) => {
                let said = error.to_string();
                let said = said.lines().next().unwrap_or_default();
                let said = said.trim_start_matches("error: ");
                let message = format!("{}: [{name}]: {said}", arguments.file.display());
                return Err(Failure::new(Exit::Fatal, message));
            }
        };
        if name == "serve"
            && let Some(serve) = matches.subcommand_matches(name)
        {
            let file = |key: &str| serve.get_one::<PathBuf>(key).cloned();
            check_files(&file)?;
        }
    }
    if let Some(oidc) = settings::site(&arguments.file)?.oidc {
        Issuer::open(&oidc.issuer, oidc.ca_file.as_deref())?;
        notes.push(format!("[oidc] lets people log in with {}", oidc.issuer));
    }
    let shown = arguments.file.display();
    output::line(&format!("{shown}: {count} settings, nothing wrong"));
    notes.iter().for_each(|note| output::line(note));
    Ok(ExitCode::SUCCESS)
}

/// Checks the files that a service reads at its start.
fn check_files(file: &dyn Fn(&str) -> Option<PathBuf>) -> Result<(), Failure> {
    let each = |key: &str, check: &dyn Fn(&Path) -> Result<(), Failure>| {
        file(key).map_or(Ok(()), |path| check(&path))
    };
    each("gateways", &|path| Ok(Gateways::read(path).map(drop)?))?;
    each("circuits", &|path| {
        Ok(posthaste_circuit::read_circuits(path).map(drop)?)
    })?;
    each("alarms", &|path| {
        Ok(posthaste_service::read_alarms(path).map(drop)?)
    })?;
    each("purge_policy", &|path| {
        Ok(posthaste_service::check_purge_policy(path)?)
    })
}
