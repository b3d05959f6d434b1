//! `posthaste backup`: copies a service's state while the service runs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use posthaste_service::{Backup, Whereabouts, back_up, copied_so_far, look_at_backup};
use posthaste_types::Bytes;

use crate::{config, failure::Outcome, ls::progress::telling, output};

/// Copies what a service keeps, journal and secrets, into a folder to start it from again
///
/// The service may run meanwhile, on this host. FOLDER gets its name when the copy is whole and on disk; one that is
/// there is refused. It has the secrets of the service: keep it where nobody else can read it.
///
/// A journal that is in a PostgreSQL database is not copied: pg_dump does that, before this command.
///
/// To restore, start a service on a copy of FOLDER, and never beside the one it was made of.
///
/// Examples:
///   posthaste backup --state ~/posthaste --to /backup/posthaste-monday --dry-run
///   posthaste backup --state ~/posthaste --to /backup/posthaste-monday
///   cp -a /backup/posthaste-monday ~/posthaste && posthaste serve --state ~/posthaste
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct BackupArguments {
    /// The service's state directory [default: ~/.local/state/posthaste]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The folder to make
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Only say what would be copied
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object with files, bytes, and where the journal is
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails if no service keeps anything in the directory, the folder exists or can't be written, or
/// the journal can't be read. Then there is no copy.
pub fn run(arguments: &BackupArguments) -> Outcome {
    let state = arguments.state.clone();
    let state = state.unwrap_or_else(config::state_directory);
    let backup = if arguments.dry_run {
        look_at_backup(&state, &arguments.to)?
    } else {
        // In a database the journal is not counted, and need not be.
        let most = look_at_backup(&state, &arguments.to)?.bytes;
        let told = || {
            let copied = Bytes::new(copied_so_far(&arguments.to));
            format!("{copied} of some {} are copied", Bytes::new(most))
        };
        telling(told, || back_up(&state, &arguments.to))?
    };
    show(&backup, &state, arguments);
    Ok(ExitCode::SUCCESS)
}

fn show(backup: &Backup, state: &Path, arguments: &BackupArguments) {
    let Backup {
        journal,
        files,
        bytes,
    } = backup;
    if arguments.json {
        let (is_copied, database) = match journal {
            Whereabouts::File => (true, None),
            Whereabouts::Database(address) => (false, address.as_ref()),
        };
        output::json(&serde_json::json!({
            "dry_run": arguments.dry_run,
            "to": arguments.to,
            "files": files,
            "bytes": bytes,
            "journal_copied": is_copied,
            "database": database,
        }));
        return;
    }
    let verb = match arguments.dry_run {
        true => "would copy",
        false => "copied",
    };
    let (size, to) = (Bytes::new(*bytes), arguments.to.display());
    let state = state.display();
    output::line(&format!("{verb} {files} files, {size}, of {state} to {to}"));
    if let Whereabouts::Database(address) = journal {
        let database = address.as_deref().unwrap_or("a database");
        output::line(&format!(
            "the journal is in {database}: pg_dump copies it, and a restored service needs both"
        ));
    }
}
