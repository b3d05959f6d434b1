//! Interface of the journal to a database: statements, rows, transactions. All statements are
//! written in the common language of SQLite and PostgreSQL, with `?1` for the first argument.

use std::{error::Error, fmt, sync::Arc};

pub(crate) mod lock;
pub(crate) mod postgres;
pub(crate) mod sqlite;
mod tls;

/// An open database.
pub(crate) trait Database: fmt::Debug + Send {
    /// Runs statements without arguments, separated by semicolons.
    fn run(&self, statements: &str) -> Result<(), Trouble>;

    /// Runs a statement; returns the number of changed rows.
    fn execute(&self, statement: &str, arguments: &[Value]) -> Result<u64, Trouble>;

    /// Runs a statement for each of many rows of arguments, in no reliable order.
    fn execute_each(&self, statement: &str, rows: &[Vec<Value>]) -> Result<(), Trouble>;

    /// Returns the rows of a statement.
    fn query(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, Trouble>;

    /// Begins a transaction, which has no concurrent writer.
    fn begin(&self) -> Result<(), Trouble>;

    /// Makes the transaction durable.
    fn commit(&self) -> Result<(), Trouble>;

    /// Drops the transaction.
    fn rollback(&self) -> Result<(), Trouble>;

    /// Returns the definition of tables in this database's own language.
    fn definition(&self, migration: &str) -> String;

    /// Returns the definitions of all its tables as stored in its file; none if a server keeps
    /// them.
    fn definitions(&self) -> Result<Option<String>, Trouble> {
        Ok(None)
    }

    /// Returns the first row of a statement.
    fn query_row(&self, statement: &str, arguments: &[Value]) -> Result<Option<Row>, Trouble> {
        Ok(self.query(statement, arguments)?.into_iter().next())
    }
}

/// Value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Raw(Vec<u8>),
}

/// Types that can be arguments of a statement.
pub(crate) trait ToValue {
    fn to_value(&self) -> Value;
}

/// Arguments of a statement, in their order.
macro_rules! params {
    ($($argument:expr),* $(,)?) => {
        [$($crate::database::ToValue::to_value(&$argument)),*]
    };
}
pub(crate) use params;

impl ToValue for i64 {
    fn to_value(&self) -> Value {
        Value::Integer(*self)
    }
}

impl ToValue for u32 {
    fn to_value(&self) -> Value {
        Value::Integer((*self).into())
    }
}

impl ToValue for u8 {
    fn to_value(&self) -> Value {
        Value::Integer((*self).into())
    }
}

impl ToValue for bool {
    fn to_value(&self) -> Value {
        Value::Integer((*self).into())
    }
}

impl ToValue for str {
    fn to_value(&self) -> Value {
        Value::Text(self.to_owned())
    }
}

impl ToValue for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl ToValue for [u8] {
    fn to_value(&self) -> Value {
        Value::Raw(self.to_vec())
    }
}

impl ToValue for Vec<u8> {
    fn to_value(&self) -> Value {
        Value::Raw(self.clone())
    }
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value {
        (**self).to_value()
    }
}

/// Types that a column can be read as.
pub(crate) trait FromValue: Sized {
    /// Returns none if the column holds another type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(*number),
            Value::Null | Value::Text(_) | Value::Raw(_) => None,
        }
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for u8 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        Some(i64::from_value(value)? != 0)
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            Value::Null | Value::Integer(_) | Value::Raw(_) => None,
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Raw(bytes) => Some(bytes.clone()),
            Value::Null | Value::Integer(_) | Value::Text(_) => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            Value::Integer(_) | Value::Text(_) | Value::Raw(_) => T::from_value(value).map(Some),
        }
    }
}

/// A row, with the names of its columns.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

/// Reference to a column: its place or its name.
pub(crate) trait Column: fmt::Display {
    fn place(&self, columns: &[String]) -> Option<usize>;
}

impl Column for usize {
    fn place(&self, columns: &[String]) -> Option<usize> {
        (*self < columns.len()).then_some(*self)
    }
}

impl Column for &str {
    fn place(&self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|column| column == self)
    }
}

impl Row {
    pub(crate) fn new(columns: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Iterates over its values, each with the name of its column.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.columns.iter().map(String::as_str).zip(&self.values)
    }

    pub(crate) fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// Returns the value of a column.
    pub(crate) fn get<C: Column, T: FromValue>(&self, column: C) -> Result<T, Trouble> {
        let value = column
            .place(&self.columns)
            .and_then(|place| self.values.get(place));
        value.and_then(T::from_value).ok_or_else(|| {
            let cause = format!("column {column} holds something unexpected");
            Trouble::new(TroubleKind::Other, cause)
        })
    }
}

/// Returns the number in the only column of the only row.
pub(crate) fn number_of<T: FromValue>(row: Option<Row>) -> Result<T, Trouble> {
    let none = || Trouble::new(TroubleKind::Other, "the database gave no row");
    row.ok_or_else(none)?.get(0)
}

/// Reason why a database failed.
#[derive(Debug)]
pub struct Trouble {
    kind: TroubleKind,
    cause: Box<dyn Error + Send + Sync>,
}

/// Kinds of [`Trouble`], one for each possible reaction of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// No space is left.
    Full,
    /// Another process has it open.
    InUse,
    /// Unreachable database, or a broken connection. May pass.
    Unreachable,
    /// Unknown user, or missing permission.
    Denied,
    /// Content that differs from the content written.
    Damaged,
    /// Anything else.
    Other,
}

impl Trouble {
    pub(crate) fn new(kind: TroubleKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> TroubleKind {
        self.kind
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Libraries report the server's message as the cause of their own. One line holds both.
        let mut said = self.cause.to_string();
        let mut source = self.cause.source();
        while let Some(cause) = source {
            let cause_said = cause.to_string();
            if !said.contains(&cause_said) && !cause_said.contains(&said) {
                said = format!("{said}: {cause_said}");
            }
            source = cause.source();
        }
        f.write_str(&said.replace('\n', "; "))
    }
}

impl Error for Trouble {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_found_by_place_and_by_name_and_only_as_what_it_is() {
        let columns: Arc<[String]> = ["id", "name", "rest"].map(str::to_owned).into();
        let row = Row::new(columns, params![7_i64, "seven", None::<i64>].to_vec());
        assert_eq!(row.get::<_, u32>("id").unwrap(), 7);
        assert_eq!(row.get::<_, String>(1).unwrap(), "seven");
        assert_eq!(row.get::<_, Option<i64>>("rest").unwrap(), None);
        assert!(row.get::<_, String>("id").is_err());
        assert!(row.get::<_, i64>("rest").is_err(), "nothing is no number");
        let error = row.get::<_, i64>("absent").unwrap_err();
        assert_eq!(
            error.to_string(),
            "column absent holds something unexpected"
        );
        assert!(row.get::<_, i64>(3).is_err());
    }
}
