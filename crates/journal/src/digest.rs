//! Digests that reveal damage. A step's digest covers its inputs and the digest of the step before,
//! so a missing step is found as well. Another row's digest covers its columns. Rows from before
//! there were digests have none, and are not checked.

use crate::database::{Database, Row, Trouble, TroubleKind, Value, params};

/// Bytes kept of a row's digest. They reveal errors of disks and memory, not an attacker with a
/// key.
const ROW_DIGEST_BYTES: usize = 8;
/// Column with the digest of a row, which the digest does not cover.
const DIGEST: &str = "digest";

/// An input as stored in its table, without its digest.
#[derive(Debug)]
pub(crate) struct InputRow {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) step: i64,
    pub(crate) bytes: Vec<u8>,
    /// Digest of its step, in the last row of that.
    pub(crate) digest: Option<Vec<u8>>,
}

/// Steps checked so far.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Number of the last one.
    pub(crate) step: i64,
    /// Digest of the last one; none if it was written before there were digests.
    pub(crate) digest: Option<Vec<u8>>,
}

impl Chain {
    /// Checks the next step.
    pub(crate) fn check(&mut self, rows: &[InputRow]) -> Result<(), Trouble> {
        self.step += 1;
        let Some((last, others)) = rows.split_last() else {
            return Ok(());
        };
        let is_whole = match (&self.digest, &last.digest) {
            (None, None) => true,
            (Some(_), None) => false,
            (before, Some(told)) => *told == of_step(before.as_deref(), rows),
        };
        if !is_whole || others.iter().any(|row| row.digest.is_some()) {
            return Err(damaged(&format!("step {}", self.step)));
        }
        self.digest.clone_from(&last.digest);
        Ok(())
    }
}

/// Returns the error that `what` is damaged.
pub(crate) fn damaged(what: &str) -> Trouble {
    let cause = format!("{what} is damaged: it is not as it was written");
    Trouble::new(TroubleKind::Damaged, cause)
}

/// Returns the digest of a step after one with the digest `before`.
pub(crate) fn of_step(before: Option<&[u8]>, rows: &[InputRow]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before.unwrap_or_default());
    for row in rows {
        for number in [row.seq, row.at, row.step] {
            hasher.update(&number.to_le_bytes());
        }
        add_bytes(&mut hasher, &row.bytes);
    }
    hasher.finalize().as_bytes().to_vec()
}

/// Returns the digest of a stored snapshot, of the mind after the step with the digest `after`.
pub(crate) fn of_snapshot(after: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    add_bytes(&mut hasher, after);
    hasher.update(kept).finalize().as_bytes().to_vec()
}

fn add_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// Returns the digest of a row. Null values are skipped, so that a later column that may be null
/// changes no digest.
fn of_row<'a>(columns: impl Iterator<Item = (&'a str, &'a Value)>) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    for (column, value) in columns.filter(|(column, _)| *column != DIGEST) {
        let (kind, bytes): (u8, &[u8]) = match value {
            Value::Null => continue,
            Value::Integer(number) => (0, &number.to_le_bytes()),
            Value::Text(text) => (1, text.as_bytes()),
            Value::Raw(bytes) => (2, bytes),
        };
        add_bytes(&mut hasher, column.as_bytes());
        hasher.update(&[kind]);
        add_bytes(&mut hasher, bytes);
    }
    hasher.finalize().as_bytes()[..ROW_DIGEST_BYTES].to_vec()
}

/// Returns the arguments of a row with these columns, all of them in order, followed by its digest.
pub(crate) fn with_digest(columns: &[&str], mut arguments: Vec<Value>) -> Vec<Value> {
    let digest = of_row(columns.iter().copied().zip(&arguments));
    arguments.push(Value::Raw(digest));
    arguments
}

/// Stores the digests of changed rows, given whole in their present state.
pub(crate) fn seal(
    database: &dyn Database,
    (table, key): (&str, &str),
    rows: &[Row],
) -> Result<(), Trouble> {
    let sealed = rows.iter().map(|row| {
        let key = row.get::<_, Value>(key)?;
        Ok(vec![key, Value::Raw(of_row(row.values()))])
    });
    database.execute_each(
        &format!("UPDATE {table} SET digest = ?2 WHERE {key} = ?1"),
        &sealed.collect::<Result<Vec<_>, Trouble>>()?,
    )
}

/// Checks a row that was read whole; `what` names it for people.
pub(crate) fn check_row(row: &Row, what: impl Fn() -> String) -> Result<(), Trouble> {
    match row.get::<_, Option<Vec<u8>>>(DIGEST)? {
        Some(told) if told != of_row(row.values()) => Err(damaged(&what())),
        Some(_) | None => Ok(()),
    }
}

/// Changes rows of a table by a statement that returns them whole, and stores their digests.
pub(crate) fn change(
    database: &dyn Database,
    table: (&str, &str),
    statement: &str,
    arguments: &[Value],
) -> Result<Vec<Row>, Trouble> {
    let rows = database.query(&format!("{statement} RETURNING *"), arguments)?;
    seal(database, table, &rows)?;
    Ok(rows)
}

/// Returns a digest of the table definitions, if they lie in the file: a changed letter may hide
/// columns.
fn of_tables(database: &dyn Database) -> Result<Option<i64>, Trouble> {
    let digest = |text: String| {
        let digest = blake3::hash(text.as_bytes());
        let (first, _) = digest.as_bytes().split_first_chunk()?;
        Some(i64::from_le_bytes(*first))
    };
    Ok(database.definitions()?.and_then(digest))
}

/// Checks the table definitions; without a stored digest they count as valid.
pub(crate) fn check_tables(database: &dyn Database) -> Result<(), Trouble> {
    let row = database.query_row("SELECT value FROM meta WHERE key = 'tables'", &[])?;
    let kept: Option<i64> = row.map(|row| row.get(0)).transpose()?;
    match kept.is_none() || kept == of_tables(database)? {
        true => Ok(()),
        false => Err(damaged("the list of tables")),
    }
}

/// Stores the digest of the table definitions.
pub(crate) fn seal_tables(database: &dyn Database) -> Result<(), Trouble> {
    let Some(digest) = of_tables(database)? else {
        return Ok(());
    };
    let kept = database.execute(
        "INSERT INTO meta (key, value) VALUES ('tables', ?1)
         ON CONFLICT (key) DO UPDATE SET value = ?1",
        &params![digest],
    );
    kept.map(|_| ())
}

/// Returns the number of the last input that must exist; none if there was none since there are
/// digests.
pub(crate) fn newest_input(database: &dyn Database) -> Result<Option<i64>, Trouble> {
    let row = database.query_row("SELECT value FROM meta WHERE key = 'input'", &params![])?;
    row.map(|row| row.get(0)).transpose()
}

/// Stores the number of the last input: nothing else reveals that the end of the table is missing.
pub(crate) fn keep_newest_input(database: &dyn Database, seq: i64) -> Result<(), Trouble> {
    let kept = database.execute(
        "INSERT INTO meta (key, value) VALUES ('input', ?1)
         ON CONFLICT (key) DO UPDATE SET value = ?1",
        &params![seq],
    );
    kept.map(|_| ())
}
