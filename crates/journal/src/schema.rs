//! The tables, and how an older file becomes a newer one.

use rusqlite::OptionalExtension;

use crate::{Journal, JournalError};

/// Each entry brings the schema from its index to the next; entries are never changed.
const MIGRATIONS: [&str; 11] = [
    "
    CREATE TABLE input (
        seq INTEGER PRIMARY KEY,
        at_micros INTEGER NOT NULL,
        step INTEGER NOT NULL,
        record BLOB NOT NULL
    );
    CREATE TABLE command (
        seq INTEGER PRIMARY KEY,
        at_micros INTEGER NOT NULL,
        record BLOB NOT NULL
    );
    CREATE TABLE event (
        seq INTEGER PRIMARY KEY,
        at_micros INTEGER NOT NULL,
        request INTEGER,
        record BLOB NOT NULL
    );
    CREATE INDEX event_of_request ON event (request, seq);
    CREATE TABLE snapshot (
        input_seq INTEGER PRIMARY KEY,
        record BLOB NOT NULL
    );
    CREATE TABLE request (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        submission TEXT UNIQUE,
        dataset TEXT NOT NULL UNIQUE,
        source BLOB NOT NULL,
        destination TEXT NOT NULL,
        code TEXT NOT NULL,
        via TEXT NOT NULL,
        release INTEGER NOT NULL,
        best_effort INTEGER NOT NULL,
        created_micros INTEGER NOT NULL,
        deadline_micros INTEGER NOT NULL,
        expires_micros INTEGER NOT NULL,
        bytes INTEGER,
        files INTEGER,
        chunk_size INTEGER,
        scan_error TEXT,
        submitted INTEGER NOT NULL DEFAULT 0,
        ended TEXT
    );
    CREATE TABLE chunk (
        request INTEGER NOT NULL,
        chunk INTEGER NOT NULL,
        digests BLOB NOT NULL,
        PRIMARY KEY (request, chunk)
    ) WITHOUT ROWID;
    CREATE TABLE depot (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        url TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        capacity INTEGER NOT NULL,
        rate_max INTEGER
    );
",
    "ALTER TABLE request ADD COLUMN recipients TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE request ADD COLUMN optimizer TEXT NOT NULL DEFAULT 'auto';",
    "ALTER TABLE depot ADD COLUMN terms BLOB;",
    "ALTER TABLE request ADD COLUMN wishes BLOB;",
    "ALTER TABLE depot ADD COLUMN level INTEGER NOT NULL DEFAULT 1;",
    "ALTER TABLE request ADD COLUMN stage_in BLOB;
    CREATE TABLE source (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE
    );",
    "ALTER TABLE request ADD COLUMN purge_micros INTEGER;",
    "CREATE TABLE job (
        scheduler TEXT NOT NULL,
        job TEXT NOT NULL,
        round INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        script TEXT NOT NULL,
        phase INTEGER NOT NULL,
        ended_micros INTEGER,
        created_micros INTEGER NOT NULL,
        PRIMARY KEY (scheduler, job)
    );",
    "CREATE INDEX request_of_destination ON request (destination, id);",
    "CREATE TABLE outcome (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        forecaster TEXT NOT NULL,
        procs INTEGER NOT NULL,
        walltime_s INTEGER NOT NULL,
        submitted_micros INTEGER NOT NULL,
        said_micros INTEGER NOT NULL,
        p10_micros INTEGER NOT NULL,
        p50_micros INTEGER NOT NULL,
        p90_micros INTEGER NOT NULL,
        started_micros INTEGER NOT NULL
    );",
];

/// Opens for one process, durable at each commit, and brings the schema up to date.
pub(crate) fn prepare(journal: &mut Journal) -> Result<(), JournalError> {
    let failed = journal.failed("open");
    let connection = &mut journal.connection;
    connection
        .execute_batch(
            // The lock is taken by the first write and kept: a second service fails at once.
            "PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA foreign_keys = ON;
             CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);",
        )
        .map_err(&failed)?;
    let transaction = connection.transaction().map_err(&failed)?;
    let found: u32 = transaction
        .query_row("SELECT value FROM meta WHERE key = 'schema'", [], |row| {
            row.get(0)
        })
        .optional()
        .map_err(&failed)?
        .unwrap_or(0);
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(JournalError::Newer {
            path: journal.path.clone(),
            found,
        });
    }
    for migration in MIGRATIONS.iter().skip(found as usize) {
        transaction.execute_batch(migration).map_err(&failed)?;
    }
    transaction
        .execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?1)",
            [known],
        )
        .map_err(&failed)?;
    transaction.commit().map_err(&failed)
}
