//! The one durable truth: what came into the mind and what it wanted done, in order.
//!
//! A [`Journal`] is one SQLite file, or one PostgreSQL database. [`Journal::append`] writes a step of the mind (inputs,
//! commands, events, and the digests learned on the way) in one transaction, before the commands
//! are carried out, so after `kill -9` a restart is [`Journal::replay`]: the newest snapshot, then
//! every input since. The other tables hold what the mind doesn't know and people ask for: where a
//! source lies, what a depot's address is. No secret is ever written here in the clear, so
//! that a day can be given away for replay in the simulator.
//!
//! There is one decision maker. A file is locked by the process that writes it; [`back_up`] reads it meanwhile. A database is written under a
//! [`Lease`], whose epoch every transaction that writes checks: whoever lost it can change nothing any more.

extern crate alloc;

mod address;
mod backup;
mod credential;
mod database;
mod depot;
mod digest;
mod fts;
mod history;
mod job;
mod lease;
mod migration;
mod outcome;
mod request;
mod schema;
mod snapshot;
mod step;
mod token;

use std::path::Path;

use database::{
    Database, params,
    postgres::{ANSWER_MAX, Postgres},
    sqlite::Sqlite,
};

pub use address::{BadAddress, DatabaseUrl};
pub use backup::{NUMBERS_LEFT_OUT, back_up};
pub use credential::CredentialRecord;
pub use database::{Trouble, TroubleKind};
pub use depot::DepotRecord;
pub use fts::{FtsFile, FtsJob, FtsJobs, FtsState};
pub use history::{HISTORY_WIDTHS, MovedRecord};
pub use job::{JobHold, JobPhase, JobRecord, PhaseName};
pub use lease::{Epoch, LEASE_LASTS, LEASE_RENEWED_EVERY, Lease};
pub use migration::{Counts, SqliteFile};
pub use outcome::OutcomeRecord;
pub use request::{LentFor, OneFile, Patterns, RequestRecord, Scan, Scanned, StageIn};
pub use step::{ChunkRecord, EventRecord, Replay, Step};
pub use token::{TOKENS_MAX, TokenRecord};

/// The journal of one centre, open for one decision maker.
#[derive(Debug)]
pub struct Journal {
    database: Box<dyn Database>,
    /// Where it is, as people are told.
    place: String,
    /// Under which lease it is written; none where the lock of a file plays that part.
    epoch: Option<Epoch>,
}

/// What went wrong with the journal.
#[derive(Debug)]
pub enum JournalError {
    /// The database says no: disk full, locked, corrupt, away.
    Database {
        /// What was being done.
        operation: &'static str,
        /// Where the journal is.
        place: String,
        /// What the database said.
        cause: Trouble,
    },
    /// The lease is another's: nothing was written.
    Lost {
        /// Where the journal is.
        place: String,
    },
    /// It was written by a newer posthaste.
    Newer {
        /// Where the journal is.
        place: String,
        /// The schema it has.
        found: u32,
    },
    /// Bytes in it are no record.
    Malformed {
        /// Where the journal is.
        place: String,
        /// What was expected.
        cause: posthaste_types::Malformed,
    },
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database {
                operation,
                place,
                cause,
            } => write!(f, "can't {operation} the journal {place}: {cause}"),
            Self::Lost { place } => write!(
                f,
                "can't write the journal {place}: another service has the lease (start this one again: it waits)"
            ),
            Self::Newer { place, found } => write!(
                f,
                "can't open the journal {place}: its schema {found} is newer than this posthaste (install a newer one)"
            ),
            Self::Malformed { place, cause } => write!(
                f,
                "can't read the journal {place}: {cause} (restore it from a backup)"
            ),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database { cause, .. } => Some(cause),
            Self::Malformed { cause, .. } => Some(cause),
            Self::Lost { .. } | Self::Newer { .. } => None,
        }
    }
}

/// An error while this was done to the journal at this place.
fn failed(operation: &'static str, place: &str) -> impl Fn(Trouble) -> JournalError + use<> {
    let place = place.to_owned();
    move |cause| JournalError::Database {
        operation,
        place: place.clone(),
        cause,
    }
}

impl Journal {
    /// Opens the journal in the file `path`, creating or migrating it. Only one process may write it:
    /// there is one decision maker.
    ///
    /// # Errors
    /// [`JournalError::Database`] when the file can't be opened or another process holds it;
    /// [`JournalError::Newer`] when a newer posthaste wrote it.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let place = path.display().to_string();
        let database = Sqlite::open(path).map_err(failed("open", &place))?;
        Self::prepared(Box::new(database), place, None)
    }

    /// Opens the journal in a PostgreSQL database under a lease, creating or migrating it. Where its connection breaks
    /// between two transactions it makes another.
    ///
    /// # Errors
    /// [`JournalError::Database`] when it can't be reached or does not let us in, [`JournalError::Lost`] when the lease is
    /// another's, [`JournalError::Newer`] when a newer posthaste wrote it.
    pub fn open_database(address: &DatabaseUrl, epoch: Epoch) -> Result<Self, JournalError> {
        let place = address.to_string();
        let database = Postgres::connect(address, None, ANSWER_MAX);
        let database = database.map_err(failed("open", &place))?;
        Self::prepared(Box::new(database), place, Some(epoch))
    }

    fn prepared(
        database: Box<dyn Database>,
        place: String,
        epoch: Option<Epoch>,
    ) -> Result<Self, JournalError> {
        let journal = Self {
            database,
            place,
            epoch,
        };
        journal.transact("open", |database| schema::prepare(database, &journal.place))?;
        Ok(journal)
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Trouble) -> JournalError + use<> {
        failed(operation, &self.place)
    }

    fn malformed(&self) -> impl Fn(posthaste_types::Malformed) -> JournalError + use<> {
        let place = self.place.clone();
        move |cause| JournalError::Malformed {
            place: place.clone(),
            cause,
        }
    }

    /// Writes in one transaction, if the lease is still ours.
    fn write<T>(
        &self,
        work: impl FnOnce(&dyn Database) -> Result<T, Trouble>,
    ) -> Result<T, JournalError> {
        self.transact("append to", |database| {
            work(database).map_err(self.failed("append to"))
        })
    }

    /// Does something that only who leads may do, if the lease is still ours, and lets nobody have it until that is done: some
    /// milliseconds.
    ///
    /// # Errors
    /// [`JournalError::Lost`], [`JournalError::Database`]; then it was not done.
    pub fn while_leading<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, JournalError> {
        match self.epoch {
            None => Ok(work()),
            Some(_) => self.write(|_| Ok(work())),
        }
    }

    /// Writes as `write` does, by work that has errors of its own.
    fn transact<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&dyn Database) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let database = self.database.as_ref();
        database.begin().map_err(self.failed(operation))?;
        let done = self.check_lease(operation).and_then(|()| work(database));
        let done = done.and_then(|done| {
            database.commit().map_err(self.failed(operation))?;
            Ok(done)
        });
        if done.is_err() {
            // What can't be taken back now is so when the connection ends.
            let _ = database.rollback();
        }
        done
    }

    /// Holds the lease for the rest of the transaction: whoever wants it waits until that ends.
    fn check_lease(&self, operation: &'static str) -> Result<(), JournalError> {
        let Some(epoch) = self.epoch else {
            return Ok(());
        };
        let ours = self.database.query_row(
            "SELECT epoch FROM lease WHERE epoch = ?1 FOR SHARE",
            &params![epoch.number()],
        );
        match ours.map_err(self.failed(operation))? {
            Some(_) => Ok(()),
            None => Err(JournalError::Lost {
                place: self.place.clone(),
            }),
        }
    }
}

/// The integers of databases are signed; ids and times here never reach the sign.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
