//! Places of a journal. Its promises hold in each of them.

use std::{
    ops::{Deref, DerefMut},
    path::PathBuf,
    time::Duration,
};

use posthaste_journal::{DatabaseUrl, Journal, JournalError, Lease, TroubleKind};
use posthaste_testbed::PostgresServer;
use tempfile::TempDir;

/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(3600);

/// A place without a journal yet.
pub enum Place {
    File(TempDir),
    Database(String),
}

impl Place {
    pub fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    pub fn database() -> Self {
        Self::Database(PostgresServer::shared().unwrap().new_database().unwrap())
    }

    pub fn path(&self) -> PathBuf {
        match self {
            Self::File(folder) => folder.path().join("journal.db"),
            Self::Database(_) => panic!("a database has no path"),
        }
    }

    pub fn address(&self) -> DatabaseUrl {
        match self {
            Self::File(_) => panic!("a file has no address"),
            Self::Database(name) => address(PostgresServer::shared().unwrap(), name),
        }
    }

    pub fn open(&self) -> Opened {
        match self {
            Self::File(_) => Opened {
                journal: Journal::open(&self.path()).unwrap(),
                lease: None,
            },
            Self::Database(_) => open_database(&self.address()),
        }
    }

    /// Runs SQL directly on the database; returns the answer in one column of one row.
    pub fn run(&self, sql: &str) -> String {
        match self {
            Self::File(_) => {
                let connection = rusqlite::Connection::open(self.path()).unwrap();
                if sql.starts_with("SELECT") {
                    let number = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
                    return number.unwrap().to_string();
                }
                connection.execute_batch(sql).unwrap();
                String::new()
            }
            Self::Database(name) => {
                let said = PostgresServer::shared().unwrap().ask(name, sql).unwrap();
                said.trim().to_owned()
            }
        }
    }
}

pub fn address(server: &PostgresServer, database: &str) -> DatabaseUrl {
    DatabaseUrl::parse(&server.url(database), None).unwrap()
}

/// Requests a lease, again if a server that stands still for a moment answers too late.
pub fn want(address: &DatabaseUrl, holder: &str, lasts: Duration) -> Lease {
    let mut tries = 0..100;
    loop {
        match Lease::want(address, holder, lasts) {
            Err(JournalError::Database { cause, .. })
                if cause.kind() == TroubleKind::Unreachable && tries.next().is_some() => {}
            wanted => return wanted.unwrap(),
        }
    }
}

pub fn open_database(address: &DatabaseUrl) -> Opened {
    let mut lease = want(address, "a test", LONG);
    let epoch = lease.acquire().unwrap().expect("the lease is another's");
    Opened {
        journal: Journal::open_database(address, epoch).unwrap(),
        lease: Some(lease),
    }
}

/// An open journal, with the lease that its place may need; a drop frees both.
pub struct Opened {
    journal: Journal,
    pub lease: Option<Lease>,
}

impl Deref for Opened {
    type Target = Journal;

    fn deref(&self) -> &Journal {
        &self.journal
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(lease) = &mut self.lease {
            // A test that removes the database can't release its lease.
            let _ = lease.release();
        }
    }
}

/// Runs the test in each place.
pub fn everywhere(test: impl Fn(&Place)) {
    eprintln!("in a file of SQLite");
    test(&Place::file());
    eprintln!("in a database of PostgreSQL");
    test(&Place::database());
}
