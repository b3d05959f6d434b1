//! Digests that show damage. A step's is of its inputs and of the digest of the step before, so a step that is gone shows as well; another
//! row's is of what its columns hold. What was written before there were digests has none, and is not looked at.

use crate::database::{Database, Row, Trouble, TroubleKind, Value, params};

/// Bytes kept of a row's digest. It shows what disks and memory do, not what somebody with a key does.
const ROW_DIGEST_BYTES: usize = 8;
/// The column with the digest of a row, which is not in that digest.
const DIGEST: &str = "digest";

/// An input as it lies in its table, but for its digest.
#[derive(Debug)]
pub(crate) struct InputRow {
    pub(crate) seq: i64,
    pub(crate) at: i64,
    pub(crate) step: i64,
    pub(crate) bytes: Vec<u8>,
    /// The digest of its step, in the last row of that.
    pub(crate) digest: Option<Vec<u8>>,
}

/// The steps that were looked at so far.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The number of the last of them.
    pub(crate) step: i64,
    /// Its digest; none where it was written before there were digests.
    pub(crate) digest: Option<Vec<u8>>,
}

impl Chain {
    /// Looks at the next step.
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

/// What says that something is not as it was written.
pub(crate) fn damaged(what: &str) -> Trouble {
    let cause = format!("{what} is damaged: it is not as it was written");
    Trouble::new(TroubleKind::Damaged, cause)
}

/// The digest of a step, after one with the digest `before`.
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

/// The digest of a snapshot as it is kept, of the mind after the step with the digest `after`.
pub(crate) fn of_snapshot(after: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    add_bytes(&mut hasher, after);
    hasher.update(kept).finalize().as_bytes().to_vec()
}

fn add_bytes(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// What is of no value says nothing, so that a column that comes later, and may hold nothing, changes no digest.
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

/// The arguments of a row with these columns, all there are in their order, with its digest behind them.
pub(crate) fn with_digest(columns: &[&str], mut arguments: Vec<Value>) -> Vec<Value> {
    let digest = of_row(columns.iter().copied().zip(&arguments));
    arguments.push(Value::Raw(digest));
    arguments
}

/// Keeps the digests of rows that were changed, whole as they are now.
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

/// Looks at a row that was read whole; `what` is what people call it.
pub(crate) fn check_row(row: &Row, what: impl Fn() -> String) -> Result<(), Trouble> {
    match row.get::<_, Option<Vec<u8>>>(DIGEST)? {
        Some(told) if told != of_row(row.values()) => Err(damaged(&what())),
        Some(_) | None => Ok(()),
    }
}

/// Changes rows of a table by a statement that gives them back whole, and keeps their digests.
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

/// A digest of what the tables are, where that lies in the file: a letter of it that changed may make columns of nothing.
fn of_tables(database: &dyn Database) -> Result<Option<i64>, Trouble> {
    let digest = |text: String| {
        let digest = blake3::hash(text.as_bytes());
        let (first, _) = digest.as_bytes().split_first_chunk()?;
        Some(i64::from_le_bytes(*first))
    };
    Ok(database.definitions()?.and_then(digest))
}

/// Looks whether the tables are what they were made; where nobody kept that yet they count as such.
pub(crate) fn check_tables(database: &dyn Database) -> Result<(), Trouble> {
    let row = database.query_row("SELECT value FROM meta WHERE key = 'tables'", &[])?;
    let kept: Option<i64> = row.map(|row| row.get(0)).transpose()?;
    match kept.is_none() || kept == of_tables(database)? {
        true => Ok(()),
        false => Err(damaged("the list of tables")),
    }
}

/// Keeps what the tables are.
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

/// The number of the last input there should be; none where nobody wrote one since there are digests.
pub(crate) fn newest_input(database: &dyn Database) -> Result<Option<i64>, Trouble> {
    let row = database.query_row("SELECT value FROM meta WHERE key = 'input'", &params![])?;
    row.map(|row| row.get(0)).transpose()
}

/// Keeps the number of the last input: that the end of the table is gone shows in no other way.
pub(crate) fn keep_newest_input(database: &dyn Database, seq: i64) -> Result<(), Trouble> {
    let kept = database.execute(
        "INSERT INTO meta (key, value) VALUES ('input', ?1)
         ON CONFLICT (key) DO UPDATE SET value = ?1",
        &params![seq],
    );
    kept.map(|_| ())
}
