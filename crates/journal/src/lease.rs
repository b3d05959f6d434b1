//! Lease of the only decision maker: a row in the database, by the clock of the database.

use std::time::Duration;

use crate::{
    DatabaseUrl, JournalError,
    database::{Database, params, postgres::Postgres},
    failed, from_sql,
};

/// Lifetime of a lease without renewal. Together with a standby's look and start it is well below
/// the 10 s of a takeover. If it were shorter, a busy moment would cost the lead.
pub const LEASE_LASTS: Duration = Duration::from_secs(6);
/// Time between two renewals: two of them may fail.
pub const LEASE_RENEWED_EVERY: Duration = Duration::from_secs(2);

/// Longest wait for the database's answer about the lease: a renewal that fails leaves time for
/// another.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// Channel on which a release is announced, and on which standbys listen.
const CHANNEL: &str = "posthaste_lease";

/// Statements that make the table. Their lock, any number of our own, keeps two processes that
/// start at once from making it twice.
const TABLE: &str = "BEGIN;
    SELECT pg_advisory_xact_lock(7420);
    CREATE TABLE IF NOT EXISTS lease (
        id BIGINT PRIMARY KEY CHECK (id = 1),
        epoch BIGINT NOT NULL,
        holder TEXT NOT NULL,
        expires TIMESTAMPTZ NOT NULL,
        life TEXT NOT NULL DEFAULT ''
    );
    DO $$ BEGIN
        -- Not always, for that waits for whoever leads.
        IF NOT EXISTS (SELECT FROM information_schema.columns
            WHERE table_schema = current_schema() AND table_name = 'lease' AND column_name = 'life')
        THEN ALTER TABLE lease ADD COLUMN life TEXT NOT NULL DEFAULT ''; END IF;
    END $$;
    COMMIT;";

/// Number of a lease: each lease has a greater one than those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(i64);

impl Epoch {
    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u64 {
        from_sql(self.0)
    }

    pub(crate) fn number(self) -> i64 {
        self.0
    }
}

/// The lease in a database, as one process sees it: wanted, then held. It has its own connection,
/// so that slow work in the journal prevents no renewal.
#[derive(Debug)]
pub struct Lease {
    database: Postgres,
    place: String,
    holder: String,
    life: String,
    lasts: Duration,
    epoch: Option<Epoch>,
}

impl Lease {
    /// Connects to the database to request its lease. `holder` names the process for people;
    /// `lasts` is the lifetime of the lease without renewal.
    ///
    /// # Errors
    /// [`JournalError::Database`] if the database can't be reached or denies access.
    pub fn want(
        address: &DatabaseUrl,
        holder: &str,
        lasts: Duration,
    ) -> Result<Self, JournalError> {
        let place = address.to_string();
        let connect = || {
            let database = Postgres::connect(address, Some(CHANNEL), ANSWER_MAX)?;
            database.run(TABLE)?;
            Ok(database)
        };
        let database = connect().map_err(failed("open", &place))?;
        Ok(Self {
            database,
            place,
            holder: holder.to_owned(),
            life: String::new(),
            lasts,
            epoch: None,
        })
    }

    /// Sets the life by which other processes can tell that this one is over.
    #[must_use]
    pub fn living(self, life: String) -> Self {
        Self { life, ..self }
    }

    /// Takes the lease, unless another process holds it.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn acquire(&mut self) -> Result<Option<Epoch>, JournalError> {
        self.acquire_after("")
    }

    /// Takes the lease, also if its holder has this life, which is known to be over.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn acquire_after(&mut self, over: &str) -> Result<Option<Epoch>, JournalError> {
        let row = self.database.query_row(
            "INSERT INTO lease (id, epoch, holder, expires, life)
             VALUES (1, 1, ?1, clock_timestamp() + CAST(?2 AS BIGINT) * interval '1 microsecond', ?3)
             ON CONFLICT (id) DO UPDATE SET epoch = lease.epoch + 1, holder = ?1, life = ?3,
             expires = clock_timestamp() + CAST(?2 AS BIGINT) * interval '1 microsecond'
             WHERE lease.expires <= clock_timestamp() OR (lease.life <> '' AND lease.life = ?4)
             RETURNING epoch",
            &params![self.holder, self.micros(), self.life, over],
        );
        let row = row.map_err(failed("lead", &self.place))?;
        let epoch = row.map(|row| row.get(0)).transpose();
        self.epoch = epoch.map_err(failed("lead", &self.place))?.map(Epoch);
        Ok(self.epoch)
    }

    /// Returns the present or last holder of the lease: its name for people, and its life.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn holder(&self) -> Result<Option<(String, String)>, JournalError> {
        let row = self
            .database
            .query_row("SELECT holder, life FROM lease", &[])
            .and_then(|row| row.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose());
        row.map_err(failed("read", &self.place))
    }

    /// Waits until the lease may be free: until its holder releases it, at most for `longest`.
    pub fn wait(&self, longest: Duration) {
        self.database.wait(longest);
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// [`JournalError::Lost`] if it belongs to another process, or was never ours;
    /// [`JournalError::Database`].
    pub fn renew(&self) -> Result<(), JournalError> {
        let lost = || JournalError::Lost {
            place: self.place.clone(),
        };
        let epoch = self.epoch.ok_or_else(lost)?;
        let renewed = self.database.execute(
            "UPDATE lease SET expires = clock_timestamp() + CAST(?2 AS BIGINT) * interval '1 microsecond'
             WHERE epoch = ?1",
            &params![epoch.number(), self.micros()],
        );
        match renewed.map_err(failed("hold the lease of", &self.place))? {
            0 => Err(lost()),
            _ => Ok(()),
        }
    }

    /// Releases the lease, so that a waiting process gets it at once. A lease that is no longer
    /// ours stays as it is.
    ///
    /// # Errors
    /// [`JournalError::Database`]; then it expires.
    pub fn release(&mut self) -> Result<(), JournalError> {
        let Some(epoch) = self.epoch.take() else {
            return Ok(());
        };
        let released = self.database.execute(
            "UPDATE lease SET expires = clock_timestamp() WHERE epoch = ?1",
            &params![epoch.number()],
        );
        let told = released.and_then(|_| self.database.run(&format!("NOTIFY {CHANNEL}")));
        told.map_err(failed("give back the lease of", &self.place))
    }

    fn micros(&self) -> i64 {
        i64::try_from(self.lasts.as_micros()).unwrap_or(i64::MAX)
    }
}
