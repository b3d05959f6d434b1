//! What a copy that ended says of the whole.

use std::sync::Mutex;

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::copy::{self, Ending, Figures, is_clash};
use posthaste_journal::RequestRecord;

use super::locked;

/// Keeps what says most of why a copy failed: what lasts, before what may pass.
pub(super) fn keep_worst(worst: &Mutex<Option<Error>>, error: &Error, destination: &str) {
    let mut worst = locked(worst);
    let is_worse = worst
        .as_ref()
        .is_none_or(|known| known.is_temporary() && !error.is_temporary());
    if is_worse {
        let told = Error::new(error.kind(), "copy to", destination);
        let told = told.cause(error.to_string()).at(error.locus());
        *worst = Some(match is_clash(error) {
            true => copy::clash(told),
            false => told,
        });
    }
}

/// Returns what a copy moved, if it brought everything.
///
/// # Errors
/// Why it did not.
pub(super) fn judge(
    ending: Ending,
    failed: Option<Error>,
    record: &RequestRecord,
) -> Result<Figures> {
    if let Some(error) = ending.fatal.or(failed) {
        return Err(error);
    }
    let is_whole = ending.temporary + ending.left_out + ending.other == 0 && ending.limit.is_none();
    if is_whole {
        return Ok(ending.figures);
    }
    let why = ending.last_error.unwrap_or_default();
    Err(Error::new(ErrorKind::Other, "copy to", &record.destination).cause(why))
}
