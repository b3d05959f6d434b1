//! A copy of a journal in a file, made while a service goes on writing it.

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

/// Numbers of requests that a copy leaves out: those that are submitted to the original after the copy was made are not in it, and
/// their numbers must not come to mean something else.
pub const NUMBERS_LEFT_OUT: u64 = 10_000;

/// Copies the journal in the file `from`, as it is at one moment, into the empty file `to`; gives the names of the depots in it. Whoever
/// writes the journal goes on meanwhile. The copy is not durable yet.
///
/// # Errors
/// [`JournalError::Database`] when `from` is not there, no journal, or locked; when a service on another host may have it open; and when
/// `to` can't be written. [`JournalError::Newer`].
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

/// Lets nobody open a journal that was open on another host: see [`other_host`].
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
    // One transaction that reads: what is written after it began is not in the copy, and waits for nothing.
    database.execute("VACUUM INTO ?1", &params![target])?;
    let copied = Sqlite::open_copy(to)?;
    copied.check("integrity_check")?;
    // A journal of before has none.
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
