//! Registered depots: names and addresses. Their secrets lie elsewhere.

use posthaste_core::contract::{DepotPrices, DepotTerms};
use posthaste_types::{ByteRate, Bytes, DepotId, Record};

use crate::{
    Journal, JournalError,
    database::{Row, Trouble, TroubleKind, params},
    digest, from_sql, to_sql,
};

/// A depot as it was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepotRecord {
    /// Number; 0 before it is inserted.
    pub id: DepotId,
    /// Name for people.
    pub name: String,
    /// Address where it listens: `https://host:port`.
    pub url: String,
    /// Fingerprint of the key that it must show.
    pub fingerprint: String,
    /// Most bytes that the service may keep there.
    pub capacity: Bytes,
    /// Rate that its owner lends, if stated.
    pub rate_max: Option<ByteRate>,
    /// Terms on which it is lent; its hours are those of the centre's clock.
    pub terms: DepotTerms,
    /// Prices beyond those terms.
    pub prices: DepotPrices,
    /// Hops from the centre: others push to those of a higher level.
    pub level: u8,
    /// Load of its machine from which nothing is sent there, in thousandths of a core for each
    /// core.
    pub load_max_permille: Option<u32>,
    /// Owner whose requests alone use it; none if all do. Set once, with the name.
    pub owner: Option<String>,
}

impl DepotRecord {
    /// Returns whether requests of this owner may use it; an empty owner is nobody in particular.
    #[must_use]
    pub fn is_for(&self, owner: &str) -> bool {
        self.owner.as_ref().is_none_or(|whose| whose == owner)
    }
}

fn from_row(row: &Row) -> Result<DepotRecord, Trouble> {
    let name: String = row.get("name")?;
    digest::check_row(row, || format!("what is kept of depot {name}"))?;
    Ok(DepotRecord {
        id: DepotId::new(row.get("id")?),
        name,
        url: row.get("url")?,
        fingerprint: row.get("fingerprint")?,
        capacity: Bytes::new(from_sql(row.get("capacity")?)),
        rate_max: row
            .get::<_, Option<i64>>("rate_max")?
            .map(from_sql)
            .map(ByteRate::new),
        terms: row
            .get::<_, Option<Vec<u8>>>("terms")?
            .and_then(|bytes| DepotTerms::from_bytes(&bytes).ok())
            .unwrap_or_default(),
        prices: row
            .get::<_, Option<Vec<u8>>>("prices")?
            .and_then(|bytes| DepotPrices::from_bytes(&bytes).ok())
            .unwrap_or_default(),
        level: row.get("level")?,
        load_max_permille: row.get("load_max_permille")?,
        owner: row.get("owner")?,
    })
}

impl Journal {
    /// Keeps a depot and returns its number; a depot of the same name keeps its number and its owner
    /// and gets the new facts.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_depot(&mut self, depot: &DepotRecord) -> Result<DepotId, JournalError> {
        let arguments = params![
            depot.name,
            depot.url,
            depot.fingerprint,
            to_sql(depot.capacity.get()),
            depot.rate_max.map(|rate| to_sql(rate.get())),
            depot.terms.to_bytes(),
            depot.level,
            depot.prices.to_bytes(),
            depot.load_max_permille,
            depot.owner.clone(),
        ];
        let id = self.write(|database| {
            let rows = digest::change(
                database,
                ("depot", "id"),
                "INSERT INTO depot (name, url, fingerprint, capacity, rate_max, terms, level, prices,
                 load_max_permille, owner)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (name) DO UPDATE SET url = ?2, fingerprint = ?3, capacity = ?4,
                 rate_max = ?5, terms = ?6, level = ?7, prices = ?8, load_max_permille = ?9",
                &arguments,
            )?;
            let none = || Trouble::new(TroubleKind::Other, "the database gave no row");
            rows.first().ok_or_else(none)?.get("id")
        })?;
        Ok(DepotId::new(id))
    }

    /// Removes a depot from the register.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn remove_depot(&mut self, depot: DepotId) -> Result<(), JournalError> {
        self.write(|database| {
            database.execute("DELETE FROM depot WHERE id = ?1", &params![depot.get()])?;
            Ok(())
        })
    }

    /// Returns all depots, in the order of registration.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn depots(&self) -> Result<Vec<DepotRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self
                .database
                .query("SELECT * FROM depot ORDER BY id", &[])?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}
