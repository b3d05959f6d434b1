//! The only durable truth: the mind's inputs and commands, in order.
//!
//! A [`Journal`] is one SQLite file, or one PostgreSQL database. [`Journal::append`] writes a step
//! of the mind (inputs, commands, events, and the digests learnt on the way) in one transaction,
//! before the commands are carried out. So after `kill -9` a restart is [`Journal::replay`]: the
//! newest snapshot, then every input since.
//!
//! The other tables hold facts that the mind doesn't know and people ask for, such as the place of
//! a source or a depot's address. No secret is ever written here in the clear, so that a day can be
//! given away for replay in the simulator.
//!
//! There is one decision maker. A file is locked by the process that writes it; [`back_up`] reads
//! it meanwhile. A database is written under a [`Lease`], whose epoch every writing transaction
//! checks: a process that lost it can change nothing any more.

extern crate alloc;

mod address;
mod backup;
mod begun;
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
    /// Its place, for people.
    place: String,
    /// Epoch of the lease under which it is written; none if a file lock has that role.
    epoch: Option<Epoch>,
}

/// Errors of the journal.
#[derive(Debug)]
pub enum JournalError {
    /// Failure of the database: disk full, locked, corrupt, unreachable.
    Database {
        /// Operation that failed.
        operation: &'static str,
        /// Place of the journal.
        place: String,
        /// Error of the database.
        cause: Trouble,
    },
    /// The lease belongs to another process: nothing was written.
    Lost {
        /// Place of the journal.
        place: String,
    },
    /// A newer posthaste wrote the journal.
    Newer {
        /// Place of the journal.
        place: String,
        /// Its schema.
        found: u32,
    },
    /// Some of its bytes are no record.
    Malformed {
        /// Place of the journal.
        place: String,
        /// Expected type.
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

/// Returns the error of an operation on the journal at this place.
fn failed(operation: &'static str, place: &str) -> impl Fn(Trouble) -> JournalError + use<> {
    let place = place.to_owned();
    move |cause| JournalError::Database {
        operation,
        place: place.clone(),
        cause,
    }
}

impl Journal {
    /// Opens the journal in the file `path`, creating or migrating it. Only one process may write
    /// it: there is one decision maker.
    ///
    /// # Errors
    /// [`JournalError::Database`] if the file can't be opened or another process holds it;
    /// [`JournalError::Newer`] if a newer posthaste wrote it.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let place = path.display().to_string();
        let database = Sqlite::open(path).map_err(failed("open", &place))?;
        Self::prepared(Box::new(database), place, None)
    }

    /// Opens the journal in a PostgreSQL database under a lease, creating or migrating it.
    /// Reconnects if its connection breaks between two transactions.
    ///
    /// # Errors
    /// [`JournalError::Database`] if it can't be reached or denies access, [`JournalError::Lost`]
    /// if the lease belongs to another process, [`JournalError::Newer`] if a newer posthaste wrote
    /// it.
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

    /// Does work that only the leader may do, if the lease is still ours, and blocks the lease
    /// until it is done: some milliseconds.
    ///
    /// # Errors
    /// [`JournalError::Lost`], [`JournalError::Database`]; then the work was not done.
    pub fn while_leading<T>(&mut self, work: impl FnOnce() -> T) -> Result<T, JournalError> {
        match self.epoch {
            None => Ok(work()),
            Some(_) => self.write(|_| Ok(work())),
        }
    }

    /// Writes as `write` does, by work that has its own errors.
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
            // If the rollback fails, the end of the connection undoes the transaction.
            let _ = database.rollback();
        }
        done
    }

    /// Holds the lease for the rest of the transaction: other processes wait for it until then.
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

/// Converts to the signed integers of databases; ids and times here never reach the sign.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
