//! Tables, and migrations from older schemas.

use crate::{
    JournalError,
    database::{Database, Trouble, params},
    digest, failed, to_sql,
};

/// Migrations from each schema to the next; entries are never changed. They are in SQLite's
/// language, which `Database::definition` translates for another database. A migration that adds a
/// column with a value to `request`, `depot`, `token`, `event` or `chunk` must empty the digests
/// there.
const MIGRATIONS: [&str; 29] = [
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
    "
    ALTER TABLE job ADD COLUMN hold INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX job_watched ON job (created_micros) WHERE hold <> 0 AND phase <> 4;",
    "ALTER TABLE request ADD COLUMN only_files BLOB;",
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
    "CREATE INDEX job_of_phase ON job (phase, created_micros);
    CREATE TABLE job_round (scheduler TEXT PRIMARY KEY, next INTEGER NOT NULL);",
    "ALTER TABLE request ADD COLUMN pinned TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE depot ADD COLUMN prices BLOB;",
    "CREATE TABLE token (
        name TEXT PRIMARY KEY,
        hash BLOB NOT NULL UNIQUE,
        scope TEXT NOT NULL,
        owner TEXT,
        project TEXT,
        below BLOB NOT NULL,
        profiles TEXT NOT NULL,
        created_micros INTEGER NOT NULL,
        expires_micros INTEGER
    );",
    "ALTER TABLE request ADD COLUMN one_file BLOB;
    CREATE TABLE fts_job (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        project TEXT NOT NULL,
        asked TEXT NOT NULL,
        priority INTEGER NOT NULL,
        created_micros INTEGER NOT NULL,
        ended_micros INTEGER,
        cancelled INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX fts_job_created ON fts_job (created_micros);
    CREATE INDEX fts_job_ended ON fts_job (ended_micros);
    CREATE TABLE fts_file (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        job TEXT NOT NULL,
        place INTEGER NOT NULL,
        asked TEXT NOT NULL,
        deadline_micros INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        state INTEGER NOT NULL,
        settled INTEGER NOT NULL,
        request INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0,
        not_before_micros INTEGER NOT NULL,
        tried TEXT NOT NULL DEFAULT '[]',
        reason TEXT NOT NULL DEFAULT '',
        bytes INTEGER,
        begun_micros INTEGER,
        ended_micros INTEGER
    );
    CREATE INDEX fts_file_of_job ON fts_file (job, id);
    CREATE INDEX fts_file_open ON fts_file (state, deadline_micros) WHERE settled = 0;",
    "CREATE TABLE small_list (request INTEGER PRIMARY KEY, list BLOB NOT NULL);",
    "ALTER TABLE request ADD COLUMN named BLOB;",
    "CREATE TABLE moved (
        width_s INTEGER NOT NULL,
        start_s INTEGER NOT NULL,
        path TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (width_s, start_s, path)
    ) WITHOUT ROWID;",
    "CREATE TABLE credential (
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        sealed BLOB NOT NULL,
        created_micros INTEGER NOT NULL,
        PRIMARY KEY (owner, name)
    );",
    "ALTER TABLE request ADD COLUMN lent BLOB;",
    "ALTER TABLE depot ADD COLUMN load_max_permille INTEGER;",
    "ALTER TABLE request ADD COLUMN patterns BLOB;",
    "ALTER TABLE input ADD COLUMN digest BLOB;
    ALTER TABLE snapshot ADD COLUMN digest BLOB;
    ALTER TABLE event ADD COLUMN digest BLOB;
    ALTER TABLE chunk ADD COLUMN digest BLOB;
    ALTER TABLE request ADD COLUMN digest BLOB;
    ALTER TABLE depot ADD COLUMN digest BLOB;
    ALTER TABLE token ADD COLUMN digest BLOB;",
    "CREATE TABLE left_out (
        request INTEGER NOT NULL,
        file INTEGER NOT NULL,
        digest BLOB,
        PRIMARY KEY (request, file)
    );",
    "ALTER TABLE depot ADD COLUMN owner TEXT;",
    "CREATE TABLE row_sum (
        kind INTEGER NOT NULL,
        request INTEGER NOT NULL,
        held INTEGER NOT NULL,
        total INTEGER NOT NULL,
        digest BLOB,
        PRIMARY KEY (kind, request)
    );",
];

/// First schema with digests.
pub(crate) const WITH_DIGESTS: u32 = 26;

/// Brings the schema up to date, in a running transaction.
pub(crate) fn prepare(database: &dyn Database, place: &str) -> Result<(), JournalError> {
    let failed = failed("open", place);
    let meta = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)";
    let made = database.run(&database.definition(meta));
    made.map_err(&failed)?;
    let found = version(database).map_err(&failed)?;
    if is_newer(found) {
        return Err(JournalError::Newer {
            place: place.to_owned(),
            found,
        });
    }
    if found as usize == MIGRATIONS.len() {
        digest::check_tables(database).map_err(&failed)?;
    }
    for migration in MIGRATIONS.iter().skip(found as usize) {
        let migration = database.definition(migration);
        database.run(&migration).map_err(&failed)?;
    }
    let kept = database.execute(
        "INSERT INTO meta (key, value) VALUES ('schema', ?1)
         ON CONFLICT (key) DO UPDATE SET value = ?1",
        &params![to_sql(MIGRATIONS.len() as u64)],
    );
    kept.map_err(&failed)?;
    digest::seal_tables(database).map_err(&failed)
}

/// Returns whether this version does not know a schema.
pub(crate) fn is_newer(found: u32) -> bool {
    MIGRATIONS.len() < found as usize
}

/// Returns the schema of a database: the number of migrations it has had.
pub(crate) fn version(database: &dyn Database) -> Result<u32, Trouble> {
    let row = database.query_row("SELECT value FROM meta WHERE key = 'schema'", &[])?;
    row.map_or(Ok(0), |row| row.get(0))
}
