//! SQLite, in a file that one process writes.

use std::{path::Path, sync::Arc};

use rusqlite::{
    Connection, OpenFlags, params_from_iter,
    types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef},
};

use super::{
    Database, Row, Trouble, TroubleKind, Value,
    lock::{Lock, note_host},
};

/// Modes of the file: appended data counts before the main file has it, and survives a power loss.
/// Reading the first row shows whether that works.
const MODE: &str = "PRAGMA journal_mode = WAL;
     PRAGMA synchronous = FULL;
     PRAGMA foreign_keys = ON;
     SELECT 1 FROM sqlite_schema LIMIT 1;";

#[derive(Debug)]
pub(crate) struct Sqlite {
    connection: Connection,
    /// Write lock; none if the file is only read. Released after the file was closed.
    _lock: Option<Lock>,
}

impl Sqlite {
    /// Opens a file; creates it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, Trouble> {
        let opened = Self::opened(path, OpenFlags::default())?;
        opened.check("quick_check")?;
        Ok(opened)
    }

    /// Checks the file's integrity by one of SQLite's two checks. Reads all of it.
    pub(crate) fn check(&self, check: &str) -> Result<(), Trouble> {
        // Names that are no text would otherwise cause failures where no error can be reported.
        let schema = self.query("SELECT sql FROM sqlite_schema", &[]);
        schema.map_err(|cause| Trouble::new(TroubleKind::Damaged, cause))?;
        let row = self.query_row(&format!("PRAGMA {check}(1)"), &[])?;
        let said: Option<String> = row.map(|row| row.get(0)).transpose()?;
        match said.as_deref() {
            Some("ok") => Ok(()),
            other => Err(Trouble::new(
                TroubleKind::Damaged,
                other.unwrap_or_default(),
            )),
        }
    }

    /// Opens an existing file.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::opened(path, flags)
    }

    /// Opens an existing file for reading, even while another process writes it.
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Ok(Self {
            connection: Connection::open_with_flags(path, flags)?,
            _lock: None,
        })
    }

    /// Opens a copy, which nobody else uses yet, as it is.
    pub(crate) fn open_copy(path: &Path) -> Result<Self, Trouble> {
        Ok(Self {
            connection: Connection::open(path)?,
            _lock: None,
        })
    }

    fn opened(path: &Path, flags: OpenFlags) -> Result<Self, Trouble> {
        refuse_writable(path)?;
        let connect = || Connection::open_with_flags(path, flags);
        let mut connection = connect()?;
        let lock = Lock::take(path)?;
        note_host(path)?;
        if connection.execute_batch(MODE).is_err() {
            // Some file systems can't share memory between processes. There the file is locked as
            // well, and can't be copied while it is open.
            connection = connect()?;
            connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE")?;
            connection.execute_batch(MODE)?;
        }
        Ok(Self {
            connection,
            _lock: Some(lock),
        })
    }

    /// Calls `look` for every row of a statement, without holding all of them in memory.
    pub(crate) fn each(
        &self,
        statement: &str,
        mut look: impl FnMut(Row) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        let mut select = self.connection.prepare(statement)?;
        let columns = columns(&select);
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            look(read(&columns, row)?)?;
        }
        Ok(())
    }
}

/// Fails where anybody can write to the file: whoever does decides what the service does.
fn refuse_writable(path: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    match mode & 0o002 {
        0 => Ok(()),
        _ => {
            let why = format!(
                "others can write to it (mode {:04o}): see that it is as it was, then chmod o-w",
                mode & 0o7777
            );
            Err(Trouble::new(TroubleKind::Denied, why))
        }
    }
}

fn columns(statement: &rusqlite::Statement<'_>) -> Arc<[String]> {
    let names = statement.column_names();
    names.into_iter().map(str::to_owned).collect()
}

fn read(columns: &Arc<[String]>, row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let values: rusqlite::Result<_> = (0..columns.len()).map(|place| row.get(place)).collect();
    Ok(Row::new(Arc::clone(columns), values?))
}

impl Database for Sqlite {
    fn run(&self, statements: &str) -> Result<(), Trouble> {
        Ok(self.connection.execute_batch(statements)?)
    }

    fn execute(&self, statement: &str, arguments: &[Value]) -> Result<u64, Trouble> {
        let mut change = self.connection.prepare_cached(statement)?;
        Ok(change.execute(params_from_iter(arguments))? as u64)
    }

    fn execute_each(&self, statement: &str, rows: &[Vec<Value>]) -> Result<(), Trouble> {
        let mut change = self.connection.prepare_cached(statement)?;
        for arguments in rows {
            change.execute(params_from_iter(arguments))?;
        }
        Ok(())
    }

    fn query(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, Trouble> {
        let mut select = self.connection.prepare_cached(statement)?;
        let columns = columns(&select);
        let rows = select.query_map(params_from_iter(arguments), |row| read(&columns, row))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn begin(&self) -> Result<(), Trouble> {
        self.run("BEGIN IMMEDIATE")
    }

    fn commit(&self) -> Result<(), Trouble> {
        self.run("COMMIT")
    }

    fn rollback(&self) -> Result<(), Trouble> {
        self.run("ROLLBACK")
    }

    fn definition(&self, migration: &str) -> String {
        migration.to_owned()
    }

    fn definitions(&self) -> Result<Option<String>, Trouble> {
        let rows = self.query(
            "SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1",
            &[],
        )?;
        let all = rows.iter().map(|row| row.get::<_, String>(0));
        Ok(Some(all.collect::<Result<Vec<_>, _>>()?.join("\n")))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => text.as_str().into(),
            Self::Raw(bytes) => bytes.as_slice().into(),
        }))
    }
}

impl FromSql for Value {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        if value == ValueRef::Null {
            return Ok(Self::Null);
        }
        if let Ok(number) = value.as_i64() {
            return Ok(Self::Integer(number));
        }
        match value.as_str() {
            Ok(text) => Ok(Self::Text(text.to_owned())),
            // The remaining types are raw bytes, and fractions, which are no bytes.
            Err(FromSqlError::InvalidType) => Ok(Self::Raw(value.as_bytes()?.to_vec())),
            Err(not_text) => Err(not_text),
        }
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(cause: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            DatabaseBusy, DatabaseCorrupt, DatabaseLocked, DiskFull, NotADatabase, PermissionDenied,
        };
        let kind = match cause.sqlite_error_code() {
            Some(DiskFull) => TroubleKind::Full,
            Some(DatabaseBusy | DatabaseLocked) => TroubleKind::InUse,
            Some(PermissionDenied) => TroubleKind::Denied,
            Some(DatabaseCorrupt | NotADatabase) => TroubleKind::Damaged,
            _ => TroubleKind::Other,
        };
        Self::new(kind, cause)
    }
}
