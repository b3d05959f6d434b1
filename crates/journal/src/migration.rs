//! Migration of a journal from a file into a PostgreSQL database: every row of every table, in one
//! transaction.

use std::path::Path;

use crate::{
    DatabaseUrl, Journal, JournalError, Trouble, TroubleKind,
    database::{
        Database, Value, params,
        postgres::{ANSWER_MAX, Postgres},
        sqlite::Sqlite,
    },
    failed, schema, step,
};

/// Rows sent at once: limits the memory, whatever the journal holds.
const ROWS_AT_ONCE: usize = 1024;

/// Number of rows of each table, in the order of their names.
pub type Counts = Vec<(String, u64)>;

/// A journal in a file, to be migrated, which no other process has open.
#[derive(Debug)]
pub struct SqliteFile {
    database: Sqlite,
    place: String,
}

impl SqliteFile {
    /// Opens an existing file, as it is.
    ///
    /// # Errors
    /// [`JournalError::Database`] if it can't be opened, is no journal or is in use;
    /// [`JournalError::Newer`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let place = path.display().to_string();
        let open = || {
            let database = Sqlite::open_existing(path)?;
            let found = schema::version(&database)?;
            Ok((database, found))
        };
        let (database, found) = open().map_err(failed("open", &place))?;
        if schema::is_newer(found) {
            return Err(JournalError::Newer { place, found });
        }
        Ok(Self { database, place })
    }

    /// Returns the number of rows of each table.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn counts(&self) -> Result<Counts, JournalError> {
        counts(&self.database).map_err(failed("read", &self.place))
    }

    /// Checks that a database has no rows in the tables of this file, and changes nothing there.
    ///
    /// # Errors
    /// [`JournalError::Database`], also if it has some.
    pub fn check_target(&self, address: &DatabaseUrl) -> Result<(), JournalError> {
        let check = || {
            let target = Postgres::connect(address, None, ANSWER_MAX)?;
            for table in tables(&self.database)? {
                let found = target.query_row(
                    "SELECT CAST(to_regclass(?1) AS TEXT) AS found",
                    &params![table],
                )?;
                let found: Option<String> = found.map_or(Ok(None), |row| row.get(0))?;
                if found.is_some() {
                    refuse_filled(&target, &table)?;
                }
            }
            Ok(())
        };
        check().map_err(failed("move to", &address.to_string()))
    }

    /// Copies every row into `target`, which must have none yet, and returns their numbers. The
    /// file stays as it is, but its schema is brought up to date.
    ///
    /// # Errors
    /// [`JournalError::Database`], also if the target holds something; [`JournalError::Lost`] if
    /// its lease belongs to another process. Then nothing was copied.
    pub fn copy_to(&self, target: &Journal) -> Result<Counts, JournalError> {
        self.database.begin().map_err(failed("open", &self.place))?;
        schema::prepare(&self.database, &self.place)?;
        self.database
            .commit()
            .map_err(failed("open", &self.place))?;
        target.write(|to| {
            step::check_all(&self.database)?;
            let counts = counts(&self.database)?;
            for (table, _) in &counts {
                refuse_filled(to, table)?;
            }
            for (table, _) in &counts {
                copy(&self.database, to, table)?;
            }
            go_on_counting(&self.database, to)?;
            Ok(counts)
        })
    }
}

/// Returns the tables of a journal in a file, without the one that names its schema.
fn tables(database: &Sqlite) -> Result<Vec<String>, Trouble> {
    let rows = database.query(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'meta'
         AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name",
        &[],
    )?;
    rows.iter().map(|row| row.get(0)).collect()
}

fn counts(database: &Sqlite) -> Result<Counts, Trouble> {
    let counted = tables(database)?.into_iter().map(|table| {
        let row = database.query_row(&format!("SELECT count(*) FROM {table}"), &[])?;
        let rows = row.map_or(Ok(0), |row| row.get::<_, i64>(0))?;
        Ok((table, crate::from_sql(rows)))
    });
    counted.collect()
}

fn refuse_filled(database: &dyn Database, table: &str) -> Result<(), Trouble> {
    let any = database.query_row(&format!("SELECT 1 AS any_row FROM {table} LIMIT 1"), &[])?;
    match any {
        None => Ok(()),
        Some(_) => Err(Trouble::new(
            TroubleKind::Other,
            format!("it is not empty: it has rows in `{table}`"),
        )),
    }
}

/// Copies one table.
fn copy(from: &Sqlite, to: &dyn Database, table: &str) -> Result<(), Trouble> {
    let mut insert = String::new();
    let mut rows: Vec<Vec<Value>> = Vec::new();
    from.each(&format!("SELECT * FROM {table}"), |row| {
        if insert.is_empty() {
            insert = insertion(table, row.columns());
        }
        rows.push(row.into_values());
        if rows.len() == ROWS_AT_ONCE {
            to.execute_each(&insert, &rows)?;
            rows.clear();
        }
        Ok(())
    })?;
    if rows.is_empty() {
        return Ok(());
    }
    to.execute_each(&insert, &rows)
}

fn insertion(table: &str, columns: &[String]) -> String {
    let places = (1..=columns.len()).map(|place| format!("?{place}"));
    format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        columns.join(", "),
        places.collect::<Vec<_>>().join(", ")
    )
}

/// Continues the numbering of the tables: numbers are never reused, not even those of removed rows.
fn go_on_counting(from: &Sqlite, to: &dyn Database) -> Result<(), Trouble> {
    for row in from.query("SELECT name, seq FROM sqlite_sequence", &[])? {
        let (table, last): (String, i64) = (row.get(0)?, row.get(1)?);
        if last > 0 {
            to.query(
                "SELECT setval(pg_get_serial_sequence(?1, CAST(attname AS TEXT)), ?2) FROM pg_attribute
                 WHERE attrelid = to_regclass(?1) AND attidentity <> ''",
                &params![table, last],
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent.db");
        let error = SqliteFile::open(&path).unwrap_err().to_string();
        assert!(error.starts_with("can't open the journal"), "{error}");
        assert!(!path.exists());
    }
}
