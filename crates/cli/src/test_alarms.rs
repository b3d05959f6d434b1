//! `posthaste test-alarms`: sends a test alarm to every recipient.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_service::{Alarm, read_alarms, test_alarm};

use crate::{
    failure::{Exit, Failure, Outcome},
    output,
};

/// Tries alarms: sends a test to each webhook, mailbox and program of a file that `serve --alarms` reads
///
/// What they get has the event `test`. Says of each whether it was told, and why not.
///
/// Examples:
///   posthaste test-alarms /etc/posthaste/alarms.toml
///   posthaste test-alarms /etc/posthaste/alarms.toml pager
///   posthaste test-alarms /etc/posthaste/alarms.toml --dry-run
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct TestArguments {
    /// The file of alarms
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only read the file
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object for each, with name and error
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails if the file can't be read, or an alarm can't be delivered.
pub async fn run(arguments: TestArguments) -> Outcome {
    let mut alarms = read_alarms(&arguments.file)?;
    let names = &arguments.names;
    if let Some(unknown) = names
        .iter()
        .find(|name| alarms.iter().all(|alarm| alarm.name != **name))
    {
        let known: Vec<&str> = alarms.iter().map(|alarm| alarm.name.as_str()).collect();
        let message = format!(
            "there is no alarm {unknown}; there are: {}",
            known.join(", ")
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    alarms.retain(|alarm| names.is_empty() || names.contains(&alarm.name));
    if alarms.is_empty() && !arguments.json {
        let file = arguments.file.display();
        output::line(&format!("there are no alarms in {file}"));
    }
    let mut untold = 0;
    for alarm in &alarms {
        let told = match arguments.dry_run {
            true => Ok(()),
            false => test_alarm(alarm).await,
        };
        untold += usize::from(told.is_err());
        let error = told.err().map(|error| error.to_string());
        show(alarm, error.as_deref(), &arguments);
    }
    if untold > 0 {
        let message = format!("{untold} of {} alarms could not be told", alarms.len());
        return Err(Failure::new(Exit::Other, message));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(alarm: &Alarm, error: Option<&str>, arguments: &TestArguments) {
    let name = &alarm.name;
    if arguments.json {
        output::json(
            &serde_json::json!({ "name": name, "error": error, "dry_run": arguments.dry_run }),
        );
        return;
    }
    output::line(&match (error, arguments.dry_run) {
        (Some(error), _) => format!("{name}: {error}"),
        (None, true) => format!("{name}: would be told"),
        (None, false) => format!("{name}: told"),
    });
}
