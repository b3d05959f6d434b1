//! Mark of a journal with which a service began: an empty one may have taken the place of another.

use crate::{Journal, JournalError, database::params};

impl Journal {
    /// Records that a service began with it.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn begin(&mut self) -> Result<(), JournalError> {
        let begun =
            "INSERT INTO meta (key, value) VALUES ('begun', 1) ON CONFLICT (key) DO NOTHING";
        self.write(|database| database.execute(begun, &params![]).map(drop))
    }

    /// Returns whether no service began with it, nor has anything happened in it.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn is_unused(&self) -> Result<bool, JournalError> {
        let begun = "SELECT value FROM meta WHERE key = 'begun'";
        let begun = self.database.query_row(begun, &params![]);
        let has_begun = begun.map_err(self.failed("read"))?.is_some();
        Ok(!has_begun && self.newest_event()? == 0 && self.depots()?.is_empty())
    }
}
