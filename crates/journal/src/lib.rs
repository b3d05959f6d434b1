//! The one durable truth: what came into the mind and what it wanted done, in order.
//!
//! A [`Journal`] is one SQLite file. [`Journal::append`] writes a step of the mind (inputs,
//! commands, events, and the digests learned on the way) in one transaction, before the commands
//! are carried out, so after `kill -9` a restart is [`Journal::replay`]: the newest snapshot, then
//! every input since. The other tables hold what the mind doesn't know and people ask for: where a
//! source lies, what a depot's address is. No secret is ever written here, so that a day can be
//! given away for replay in the simulator.

extern crate alloc;

mod depot;
mod job;
mod outcome;
mod request;
mod schema;
mod step;

use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub use depot::DepotRecord;
pub use job::{JobPhase, JobRecord};
pub use outcome::OutcomeRecord;
pub use request::{RequestRecord, Scan, StageIn};
pub use step::{ChunkRecord, EventRecord, Replay, Step};

/// The journal of one centre, open for one decision maker.
#[derive(Debug)]
pub struct Journal {
    connection: Connection,
    path: PathBuf,
}

/// What went wrong with the journal.
#[derive(Debug)]
pub enum JournalError {
    /// SQLite says no: disk full, locked, corrupt.
    Sqlite {
        /// What was being done.
        operation: &'static str,
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
    /// The file was written by a newer posthaste.
    Newer {
        /// Which file.
        path: PathBuf,
        /// The schema it has.
        found: u32,
    },
    /// Bytes in it are no record.
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What was expected.
        cause: posthaste_types::Malformed,
    },
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite {
                operation,
                path,
                cause,
            } => {
                write!(
                    f,
                    "can't {operation} the journal {}: {cause}",
                    path.display()
                )
            }
            Self::Newer { path, found } => write!(
                f,
                "can't open the journal {}: its schema {found} is newer than this posthaste (install a newer one)",
                path.display()
            ),
            Self::Malformed { path, cause } => write!(
                f,
                "can't read the journal {}: {cause} (restore it from a copy)",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite { cause, .. } => Some(cause),
            Self::Malformed { cause, .. } => Some(cause),
            Self::Newer { .. } => None,
        }
    }
}

impl Journal {
    /// Opens the journal at `path`, creating or migrating it. Only one process may have it open:
    /// there is one decision maker.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`] when the file can't be opened or another process holds it;
    /// [`JournalError::Newer`] when a newer posthaste wrote it.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = |cause| JournalError::Sqlite {
            operation: "open",
            path: path.into(),
            cause,
        };
        let connection = Connection::open(path).map_err(failed)?;
        let mut journal = Self {
            connection,
            path: path.into(),
        };
        schema::prepare(&mut journal)?;
        Ok(journal)
    }

    fn failed(&self, operation: &'static str) -> impl Fn(rusqlite::Error) -> JournalError + use<> {
        let path = self.path.clone();
        move |cause| JournalError::Sqlite {
            operation,
            path: path.clone(),
            cause,
        }
    }

    fn malformed(&self) -> impl Fn(posthaste_types::Malformed) -> JournalError + use<> {
        let path = self.path.clone();
        move |cause| JournalError::Malformed {
            path: path.clone(),
            cause,
        }
    }
}

/// SQLite's integers are signed; ids and times here never reach the sign.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
