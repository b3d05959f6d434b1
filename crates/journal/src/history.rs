//! Bytes moved by minute, hour and day: bounded, however long the service runs.

use std::time::Duration;

use posthaste_types::{Bytes, Timestamp};

use crate::{
    Journal, JournalError, Trouble,
    database::{Row, params},
    from_sql, to_sql,
};

/// Widths of the spans in which bytes are counted, and how long each is kept: 1,560 + 768 + 732
/// rows for a path that is always in use.
pub const HISTORY_WIDTHS: [(Duration, Duration); 3] = [
    (Duration::from_secs(60), Duration::from_secs(26 * 3600)),
    (Duration::from_secs(3600), Duration::from_secs(32 * 86400)),
    (Duration::from_secs(86400), Duration::from_secs(732 * 86400)),
];

/// Bytes moved on a path in a span of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedRecord {
    /// Name of the depot they went to, or of the source they came from.
    pub path: String,
    /// Start of the span; when recording, any moment in it.
    pub at: Timestamp,
    /// Number of bytes.
    pub bytes: Bytes,
}

fn from_row(row: &Row) -> Result<MovedRecord, Trouble> {
    Ok(MovedRecord {
        path: row.get("path")?,
        at: Timestamp::from_secs(from_sql(row.get("start_s")?)),
        bytes: Bytes::new(from_sql(row.get("bytes")?)),
    })
}

/// Returns the second at which the span of this width that contains a moment begins.
fn start_s(at: Timestamp, width: Duration) -> u64 {
    let second = at.as_micros() / 1_000_000;
    second - second % width.as_secs()
}

impl Journal {
    /// Adds the moved bytes to the counts of their moments, in each width, and removes counts that
    /// are too old by `now`, in one transaction.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_moved(
        &mut self,
        moved: &[MovedRecord],
        now: Timestamp,
    ) -> Result<(), JournalError> {
        self.write(|database| {
            for (width, kept) in HISTORY_WIDTHS {
                let width_s = to_sql(width.as_secs());
                for one in moved {
                    database.execute(
                        "INSERT INTO moved (width_s, start_s, path, bytes) VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (width_s, start_s, path) DO UPDATE SET bytes = moved.bytes + ?4",
                        &params![
                            width_s,
                            to_sql(start_s(one.at, width)),
                            one.path,
                            to_sql(one.bytes.get()),
                        ],
                    )?;
                }
                let oldest_s = (now.as_micros() / 1_000_000).saturating_sub(kept.as_secs());
                database.execute(
                    "DELETE FROM moved WHERE width_s = ?1 AND start_s < ?2",
                    &params![width_s, to_sql(oldest_s)],
                )?;
            }
            Ok(())
        })
    }

    /// Returns the bytes moved in the spans of a width that begin in this time, on one path or on
    /// all. The oldest come first, those of one moment in the order of their names.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn moved(
        &self,
        path: Option<&str>,
        width: Duration,
        (from, to): (Timestamp, Timestamp),
    ) -> Result<Vec<MovedRecord>, JournalError> {
        let second = |at: Timestamp| to_sql(at.as_micros().div_ceil(1_000_000));
        let read = || -> Result<_, Trouble> {
            let rows = self.database.query(
                "SELECT path, start_s, bytes FROM moved
                 WHERE width_s = ?1 AND start_s >= ?2 AND start_s < ?3 AND (?4 = '' OR path = ?4)
                 ORDER BY start_s, path",
                &params![
                    to_sql(width.as_secs()),
                    second(from),
                    second(to),
                    path.unwrap_or_default()
                ],
            )?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}
