//! Rows of a request that are kept beside the steps. Their number and the sum of their digests are
//! kept too: they reveal a row that a damaged key hides.

use std::collections::BTreeMap;

use posthaste_types::RequestId;

use crate::{
    database::{Database, Row, Trouble, Value, params},
    digest, to_sql,
};

/// Keys asked for in one statement.
const ASKED_TOGETHER_MAX: usize = 500;
const SUM_COLUMNS: [&str; 4] = ["kind", "request", "held", "total"];

/// A table of such rows, each with a request and a key, the first two of its columns.
#[derive(Debug)]
pub(super) struct Beside {
    /// Number of the table in the table of sums.
    kind: i64,
    name: &'static str,
    key: &'static str,
    columns: &'static [&'static str],
    insertion: &'static str,
    /// Name for people.
    what: &'static str,
}

/// Digests of chunks.
pub(super) const CHUNKS: Beside = Beside {
    kind: 1,
    name: "chunk",
    key: "chunk",
    columns: &["request", "chunk", "digests"],
    insertion: "INSERT INTO chunk (request, chunk, digests, digest) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (request, chunk) DO UPDATE SET digests = ?3, digest = ?4",
    what: "the list of chunks",
};
/// Files left out.
pub(super) const LEFT_OUT: Beside = Beside {
    kind: 2,
    name: "left_out",
    key: "file",
    columns: &["request", "file"],
    insertion: "INSERT INTO left_out (request, file, digest) VALUES (?1, ?2, ?3)
         ON CONFLICT (request, file) DO UPDATE SET digest = ?3",
    what: "the list of what was left out",
};

/// Rows to keep: by request and key, with what else each has.
pub(super) type Rows = BTreeMap<i64, BTreeMap<i64, Vec<Value>>>;

/// Number of rows, and the sum of their digests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    held: i64,
    total: i64,
}

impl Sum {
    /// Returns that of rows with digests. Rows from before there were digests count only.
    fn of(rows: &[Row]) -> Result<Self, Trouble> {
        let mut sum = Self::default();
        for row in rows {
            let digest: Option<Vec<u8>> = row.get("digest")?;
            sum.held += 1;
            sum.total = sum.total.wrapping_add(number(digest.as_deref()));
        }
        Ok(sum)
    }

    /// Returns the kept one; none if nothing was added since there are sums.
    fn kept(
        database: &dyn Database,
        table: &Beside,
        request: i64,
    ) -> Result<Option<Self>, Trouble> {
        let row = database.query_row(
            "SELECT * FROM row_sum WHERE kind = ?1 AND request = ?2",
            &params![table.kind, request],
        )?;
        let Some(row) = row else {
            return Ok(None);
        };
        digest::check_row(&row, || table.of_request(request))?;
        Ok(Some(Self {
            held: row.get("held")?,
            total: row.get("total")?,
        }))
    }

    fn keep(&self, database: &dyn Database, table: &Beside, request: i64) -> Result<(), Trouble> {
        let arguments = params![table.kind, request, self.held, self.total];
        let kept = database.execute(
            "INSERT INTO row_sum (kind, request, held, total, digest) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (kind, request) DO UPDATE SET held = ?3, total = ?4, digest = ?5",
            &digest::with_digest(&SUM_COLUMNS, arguments.to_vec()),
        );
        kept.map(drop)
    }
}

impl Beside {
    fn of_request(&self, request: i64) -> String {
        format!("{} of r{request}", self.what)
    }

    /// Keeps rows; those with the same keys are replaced.
    pub(super) fn keep(&self, database: &dyn Database, rows: Rows) -> Result<(), Trouble> {
        for (request, rows) in rows {
            let kept = Sum::kept(database, self, request)?;
            let mut sum = kept.map_or_else(|| self.added_up(database, request), Ok)?;
            let keys: Vec<String> = rows.keys().map(i64::to_string).collect();
            for keys in keys.chunks(ASKED_TOGETHER_MAX) {
                let replaced = database.query(
                    &format!(
                        "SELECT digest FROM {} WHERE request = ?1 AND {} IN ({})",
                        self.name,
                        self.key,
                        keys.join(", ")
                    ),
                    &params![request],
                )?;
                let replaced = Sum::of(&replaced)?;
                sum.held -= replaced.held;
                sum.total = sum.total.wrapping_sub(replaced.total);
            }
            let rows = rows.into_iter().map(|(key, others)| {
                let mut row = params![request, key].to_vec();
                row.extend(others);
                digest::with_digest(self.columns, row)
            });
            let rows: Vec<Vec<Value>> = rows.collect();
            for row in &rows {
                sum.held += 1;
                if let Some(Value::Raw(digest)) = row.last() {
                    sum.total = sum.total.wrapping_add(number(Some(digest)));
                }
            }
            database.execute_each(self.insertion, &rows)?;
            sum.keep(database, self, request)?;
        }
        Ok(())
    }

    /// Returns the sum of all rows of a request.
    fn added_up(&self, database: &dyn Database, request: i64) -> Result<Sum, Trouble> {
        let rows = database.query(
            &format!("SELECT digest FROM {} WHERE request = ?1", self.name),
            &params![request],
        );
        Sum::of(&rows?)
    }

    /// Checks that these are all rows of a request.
    pub(super) fn check(
        &self,
        database: &dyn Database,
        request: RequestId,
        rows: &[Row],
    ) -> Result<(), Trouble> {
        let request = to_sql(request.get());
        match Sum::kept(database, self, request)? {
            Some(kept) if kept != Sum::of(rows)? => Err(digest::damaged(&self.of_request(request))),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that a request has this number of rows.
    pub(super) fn check_count(
        &self,
        database: &dyn Database,
        request: RequestId,
        count: i64,
    ) -> Result<(), Trouble> {
        let request = to_sql(request.get());
        match Sum::kept(database, self, request)? {
            Some(kept) if kept.held != count => Err(digest::damaged(&self.of_request(request))),
            Some(_) | None => Ok(()),
        }
    }
}

/// Returns the digest of a row as a number.
fn number(digest: Option<&[u8]>) -> i64 {
    let first = digest.and_then(<[u8]>::first_chunk);
    first.map_or(0, |first| i64::from_le_bytes(*first))
}
