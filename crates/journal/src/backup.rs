//! Copy of a journal in a file, made while a service keeps writing it.

use std::path::Path;

use crate::{
    JournalError, Trouble, TroubleKind,
    database::{
        Database,
        lock::{Lock, other_host},
        params,
        sqlite::Sqlite,
    },
    failed, schema, step, to_sql,
};

/// Request numbers that a copy skips: requests submitted to the original after the copy are not in
/// it, and their numbers must not get another meaning.
pub const NUMBERS_LEFT_OUT: u64 = 10_000;

/// Copies the journal in the file `from`, as it is at one moment, into the empty file `to`; returns
/// the names of its depots. Writers of the journal continue meanwhile. The copy is not durable yet.
///
/// # Errors
/// [`JournalError::Database`] if `from` is missing, no journal, or locked; if a service on another
/// host may have it open; and if `to` can't be written. [`JournalError::Newer`].
pub fn back_up(from: &Path, to: &Path) -> Result<Vec<String>, JournalError> {
    let place = from.display().to_string();
    let failed = failed("copy", &place);
    let _alone = other_host(from)
        .map(|host| alone(from, &host))
        .transpose()
        .map_err(&failed)?;
    let database = Sqlite::open_to_read(from).map_err(&failed)?;
    let found = schema::version(&database).map_err(&failed)?;
    if schema::is_newer(found) {
        return Err(JournalError::Newer { place, found });
    }
    copy(&database, to).map_err(&failed)
}

/// Locks a journal that was open on another host, so that nobody can open it: see [`other_host`].
fn alone(from: &Path, host: &str) -> Result<Lock, Trouble> {
    Lock::take(from).map_err(|cause| match cause.kind() {
        TroubleKind::InUse => {
            let message = format!("a service on {host} has it open: make the copy there");
            Trouble::new(TroubleKind::Other, message)
        }
        TroubleKind::Full
        | TroubleKind::Unreachable
        | TroubleKind::Denied
        | TroubleKind::Damaged
        | TroubleKind::Other => cause,
    })
}

fn copy(database: &Sqlite, to: &Path) -> Result<Vec<String>, Trouble> {
    let other = |cause: &str| Trouble::new(TroubleKind::Other, cause);
    let target =
        std::path::absolute(to).map_err(|cause| Trouble::new(TroubleKind::Other, cause))?;
    let target = target.to_str();
    let target = target.ok_or_else(|| other("the name of the copy is not in UTF-8"))?;
    // A single read transaction: later writes are not in the copy, and wait for nothing.
    database.execute("VACUUM INTO ?1", &params![target])?;
    let copied = Sqlite::open_copy(to)?;
    copied.check("integrity_check")?;
    // Older journals have no digests.
    if schema::version(&copied)? >= schema::WITH_DIGESTS {
        step::check_all(&copied)?;
    }
    leave_numbers_out(&copied)?;
    let rows = copied.query("SELECT name FROM depot ORDER BY name", &[])?;
    rows.iter().map(|row| row.get(0)).collect()
}

fn leave_numbers_out(copied: &Sqlite) -> Result<(), Trouble> {
    let more = to_sql(NUMBERS_LEFT_OUT);
    let moved = copied.execute(
        "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'request'",
        &params![more],
    )?;
    if moved == 0 {
        copied.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES ('request', ?1)",
            &params![more],
        )?;
    }
    Ok(())
}
