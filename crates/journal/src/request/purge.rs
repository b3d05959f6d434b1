//! Purges of sources that are announced or known later than the request.

use posthaste_types::{RequestId, Timestamp};

use super::REQUEST;
use crate::{Journal, JournalError, database::params, digest, to_sql};

impl Journal {
    /// Keeps the time of the purge of the first file of the request's source.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_purge(&mut self, request: RequestId, at: Timestamp) -> Result<(), JournalError> {
        self.write(|database| {
            digest::change(
                database,
                REQUEST,
                "UPDATE request SET purge_micros = ?2 WHERE id = ?1",
                &params![to_sql(request.get()), to_sql(at.as_micros())],
            )?;
            Ok(())
        })
    }
}
