//! `posthaste migrate`: moves a journal from a file into a database.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_endpoint::Error;
use posthaste_journal::{Counts, DatabaseUrl, Journal, LEASE_LASTS, Lease, SqliteFile};
use posthaste_service::journal_error;

use crate::{
    database,
    failure::{Exit, Failure, Outcome},
    output,
};

/// Moves the journal of a service from its file into a PostgreSQL database
///
/// Everything is copied in one transaction: all of it is there at the end, or nothing. End the service before.
/// The database must be empty; the file stays. Afterwards start the service with --database, and with the same --state,
/// where its secrets are.
///
/// The password of the database is taken from PGPASSWORD, PGPASSFILE or ~/.pgpass, as psql takes it.
///
/// Examples:
///   posthaste migrate --from ~/posthaste/journal.db --to postgres:///posthaste --dry-run
///   posthaste migrate --from ~/posthaste/journal.db --to postgres:///posthaste
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct MigrateArguments {
    /// The journal: journal.db in the service's state directory
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The database: `postgres://[USER@]HOST[:PORT]/NAME`, without a host the socket on this machine
    #[arg(long, value_name = "URL")]
    to: String,
    /// Only say what would be copied, and whether the database is empty
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object with the rows of each table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails if the file is no journal or in use, or the database is not empty, in use or unreachable.
/// Then nothing was copied.
pub fn run(arguments: &MigrateArguments) -> Outcome {
    let address = database::address("--to", &arguments.to)?;
    let shown = arguments.from.display().to_string();
    let there = arguments.from.metadata();
    there.map_err(|cause| Error::io("open the journal", shown, cause))?;
    let source = SqliteFile::open(&arguments.from).map_err(journal_error)?;
    let counts = if arguments.dry_run {
        source.check_target(&address).map_err(journal_error)?;
        source.counts().map_err(journal_error)?
    } else {
        copy(&source, &address)?
    };
    show(&counts, &address, arguments);
    Ok(ExitCode::SUCCESS)
}

/// Copies the journal while no service leads there.
fn copy(source: &SqliteFile, address: &DatabaseUrl) -> Result<Counts, Failure> {
    let holder = format!("`posthaste migrate`, process {}", std::process::id());
    let mut lease = Lease::want(address, &holder, LEASE_LASTS).map_err(journal_error)?;
    let Some(epoch) = lease.acquire().map_err(journal_error)? else {
        let (leader, _) = lease.holder().map_err(journal_error)?.unwrap_or_default();
        return Err(Failure::new(
            Exit::Other,
            format!("can't migrate to {address}: {leader} leads there (end that one first)"),
        ));
    };
    let copied = Journal::open_database(address, epoch).and_then(|target| source.copy_to(&target));
    // The lease would expire anyway: only a complete copy counts.
    let _ = lease.release();
    Ok(copied.map_err(journal_error)?)
}

fn show(counts: &Counts, address: &DatabaseUrl, arguments: &MigrateArguments) {
    if arguments.json {
        let tables = counts
            .iter()
            .cloned()
            .map(|(table, rows)| (table, rows.into()));
        let tables: serde_json::Map<String, serde_json::Value> = tables.collect();
        output::json(&serde_json::json!({ "dry_run": arguments.dry_run, "rows": tables }));
        return;
    }
    let mut rows = vec![vec!["TABLE".into(), "ROWS".into()]];
    for (table, count) in counts {
        rows.push(vec![table.clone(), count.to_string()]);
    }
    output::table(&rows);
    let all: u64 = counts.iter().map(|(_, rows)| rows).sum();
    output::line(&if arguments.dry_run {
        format!("would copy {all} rows to {address}, which is empty")
    } else {
        format!("copied {all} rows to {address}")
    });
}
