//! PostgreSQL, over one connection that is replaced if it breaks between two transactions.
//!
//! The journal waits for its database, so the asynchronous client runs here on its own runtime.
//! Callers may be on any thread but that of a single-threaded runtime.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use futures_util::future::try_join_all;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Runtime,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Connection, NoTls, Socket, Statement,
    error::SqlState,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use super::{Database, Row, Trouble, TroubleKind, Value, tls::Tls};
use crate::DatabaseUrl;

/// Longest wait for any answer to the journal. The largest answer, all requests ever made, takes
/// seconds. A server that takes longer hangs, and an error is better.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Statements sent before the first answer is awaited: limits the data in buffers.
const SENT_AHEAD_MAX: usize = 512;
/// Wake-ups that may be pending; a single one says as much as several.
const WAKEUPS_MAX: usize = 1;

/// First statements of each session.
///
/// A transaction whose process was stopped in its middle would block the lease for everybody else:
/// the server ends it after 4 s, less than a lease lasts. A session that waits for this lock gets
/// an error before its client gives up: otherwise the server would grant the lock when nobody
/// listens any more. Appended data must survive a power loss, whatever the database does for
/// others.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '4s';
    SET lock_timeout = '2s';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';";

pub(crate) struct Postgres {
    session: RefCell<Session>,
    address: DatabaseUrl,
    /// Channel to listen to.
    channel: Option<&'static str>,
    /// Longest wait for an answer.
    answer_max: Duration,
    waiting: Waiting,
}

/// Runtime that waits for asynchronous work on behalf of all callers of a database.
struct Waiting(Option<Runtime>);

struct Session {
    client: Client,
    /// Task that transfers its bytes, while a caller waits for an answer.
    _connection: JoinSet<()>,
    wakeups: mpsc::Receiver<()>,
    statements: HashMap<String, Statement>,
    is_in_transaction: bool,
    /// An answer did not come: later ones could be mistaken for it.
    is_stuck: bool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A plain drop would wait, which asynchronous code may not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Waiting {
    fn new() -> Result<Self, Trouble> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build();
        let runtime = runtime.map_err(|cause| Trouble::new(TroubleKind::Other, cause))?;
        Ok(Self(Some(runtime)))
    }

    /// Waits for an answer, up to a limit.
    fn answer<T>(&self, longest: Duration, work: impl Future<Output = T>) -> Result<T, Trouble> {
        let no_answer = || {
            let cause = format!("no answer within {} s", longest.as_secs());
            Trouble::new(TroubleKind::Unreachable, cause)
        };
        let runtime = self.0.as_ref().ok_or_else(no_answer)?;
        let answer = async { timeout(longest, work).await };
        tokio::task::block_in_place(|| runtime.block_on(answer)).map_err(|_| no_answer())
    }
}

impl Postgres {
    /// Connects, and listens to `channel`.
    pub(crate) fn connect(
        address: &DatabaseUrl,
        channel: Option<&'static str>,
        answer_max: Duration,
    ) -> Result<Self, Trouble> {
        let waiting = Waiting::new()?;
        let session = waiting.answer(answer_max, Session::open(address, channel))??;
        Ok(Self {
            session: RefCell::new(session),
            address: address.clone(),
            channel,
            answer_max,
            waiting,
        })
    }

    /// Waits for a notification on its channel, at most for `longest`.
    pub(crate) fn wait(&self, longest: Duration) {
        let mut session = self.session.borrow_mut();
        let woken = self.waiting.answer(longest, session.wakeups.recv());
        // Woken or not, the caller looks again. If the connection is gone, nothing else would make
        // a pause.
        if let Ok(None) = woken {
            std::thread::sleep(longest);
        }
    }

    /// Runs `work` with the session; once more with a new one if the old one is gone and no
    /// transaction was begun.
    fn with_session<T>(
        &self,
        work: impl AsyncFn(&mut Session) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Trouble> {
        let mut session = self.session.borrow_mut();
        let is_free = !session.is_in_transaction;
        if is_free && (session.is_stuck || session.client.is_closed()) {
            *session = self.reopen()?;
        }
        match self.attempt(&mut session, &work) {
            Err(trouble) if is_free && session.client.is_closed() => {
                *session = self.reopen().map_err(|_| trouble)?;
                self.attempt(&mut session, &work)
            }
            done => done,
        }
    }

    fn reopen(&self) -> Result<Session, Trouble> {
        let opening = Session::open(&self.address, self.channel);
        self.waiting.answer(self.answer_max, opening)?
    }

    fn attempt<T>(
        &self,
        session: &mut Session,
        work: &impl AsyncFn(&mut Session) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Trouble> {
        match self.waiting.answer(self.answer_max, work(session)) {
            Ok(done) => Ok(done?),
            Err(no_answer) => {
                session.is_stuck = true;
                Err(no_answer)
            }
        }
    }

    /// Ends the transaction by `COMMIT` or `ROLLBACK`.
    fn end(&self, statement: &str) -> Result<(), Trouble> {
        let ended =
            self.with_session(async |session| session.client.batch_execute(statement).await);
        self.session.borrow_mut().is_in_transaction = false;
        ended
    }
}

/// Transfers the bytes of a session until it ends, and reports notifications of the server.
async fn carry<S>(mut connection: Connection<Socket, S>, woken: mpsc::Sender<()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(_) = message {
            // A full queue has a pending wake-up already.
            let _ = woken.try_send(());
        }
    }
}

impl Session {
    async fn open(address: &DatabaseUrl, channel: Option<&str>) -> Result<Self, Trouble> {
        let (woken, wakeups) = mpsc::channel(WAKEUPS_MAX);
        let mut carrying = JoinSet::new();
        let connected = match address.tls() {
            None => address
                .config()
                .connect(NoTls)
                .await
                .map(|(client, connection)| {
                    carrying.spawn(carry(connection, woken));
                    client
                }),
            Some(tls) => address
                .config()
                .connect(Tls(tls))
                .await
                .map(|(client, connection)| {
                    carrying.spawn(carry(connection, woken));
                    client
                }),
        };
        let client = connected.map_err(|cause| {
            let trouble = Trouble::from(cause);
            match trouble.kind() {
                // The client reports this if a server asks for a password that it was not given.
                TroubleKind::Other if address.config().get_password().is_none() => {
                    Trouble::new(TroubleKind::Denied, trouble)
                }
                TroubleKind::Full
                | TroubleKind::InUse
                | TroubleKind::Unreachable
                | TroubleKind::Denied
                | TroubleKind::Damaged
                | TroubleKind::Other => trouble,
            }
        })?;
        client.batch_execute(SESSION).await?;
        if let Some(channel) = channel {
            client.batch_execute(&format!("LISTEN {channel}")).await?;
        }
        Ok(Self {
            client,
            _connection: carrying,
            wakeups,
            statements: HashMap::new(),
            is_in_transaction: false,
            is_stuck: false,
        })
    }

    /// Returns the prepared statement. There are as many as are written in this crate.
    async fn prepared(&mut self, statement: &str) -> Result<Statement, tokio_postgres::Error> {
        if let Some(known) = self.statements.get(statement) {
            return Ok(known.clone());
        }
        let prepared = self.client.prepare(&statement.replace('?', "$")).await?;
        self.statements
            .insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    async fn rows(
        &mut self,
        statement: &str,
        arguments: &[Value],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let prepared = self.prepared(statement).await?;
        let arguments: Vec<&(dyn ToSql + Sync)> = arguments
            .iter()
            .map(|value| value as &(dyn ToSql + Sync))
            .collect();
        let rows = self.client.query(&prepared, &arguments).await?;
        let names = prepared.columns().iter();
        let columns: Arc<[String]> = names.map(|column| column.name().to_owned()).collect();
        let rows = rows.iter().map(|row| {
            let values = (0..row.len()).map(|place| row.try_get::<_, Value>(place));
            let values: Result<Vec<Value>, tokio_postgres::Error> = values.collect();
            values.map(|values| Row::new(Arc::clone(&columns), values))
        });
        rows.collect()
    }
}

impl Database for Postgres {
    fn run(&self, statements: &str) -> Result<(), Trouble> {
        self.with_session(async |session| session.client.batch_execute(statements).await)
    }

    fn execute(&self, statement: &str, arguments: &[Value]) -> Result<u64, Trouble> {
        self.with_session(async |session| {
            let prepared = session.prepared(statement).await?;
            session.client.execute_raw(&prepared, arguments).await
        })
    }

    fn execute_each(&self, statement: &str, rows: &[Vec<Value>]) -> Result<(), Trouble> {
        self.with_session(async |session| {
            let prepared = session.prepared(statement).await?;
            for rows in rows.chunks(SENT_AHEAD_MAX) {
                let changes = rows
                    .iter()
                    .map(|row| session.client.execute_raw(&prepared, row));
                try_join_all(changes).await?;
            }
            Ok(())
        })
    }

    fn query(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, Trouble> {
        self.with_session(async |session| session.rows(statement, arguments).await)
    }

    fn begin(&self) -> Result<(), Trouble> {
        self.run("BEGIN")?;
        self.session.borrow_mut().is_in_transaction = true;
        Ok(())
    }

    fn commit(&self) -> Result<(), Trouble> {
        self.end("COMMIT")
    }

    fn rollback(&self) -> Result<(), Trouble> {
        self.end("ROLLBACK")
    }

    fn definition(&self, migration: &str) -> String {
        // SQLite's integers have eight bytes, and a key of them numbers itself.
        migration
            .replace(
                "INTEGER PRIMARY KEY AUTOINCREMENT",
                "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
            )
            .replace(" INTEGER", " BIGINT")
            .replace(" BLOB", " BYTEA")
            .replace(" WITHOUT ROWID", "")
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        wanted: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match (self, wanted) {
            (Self::Null, _) => return Ok(IsNull::Yes),
            (Self::Integer(number), &Type::INT8) => out.put_i64(*number),
            (Self::Integer(number), &Type::INT4) => out.put_i32((*number).try_into()?),
            (Self::Text(text), &Type::TEXT | &Type::VARCHAR | &Type::NAME) => {
                out.put_slice(text.as_bytes());
            }
            (Self::Raw(bytes), &Type::BYTEA) => out.put_slice(bytes),
            (Self::Integer(_) | Self::Text(_) | Self::Raw(_), _) => {
                return Err(format!("the argument is no {wanted}").into());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        // Reading the value reports a wrong type, with the value at hand.
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(
        found: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(match *found {
            Type::INT8 => Self::Integer(i64::from_sql(found, raw)?),
            Type::INT4 => Self::Integer(i32::from_sql(found, raw)?.into()),
            Type::BYTEA => Self::Raw(raw.to_vec()),
            _ => Self::Text(String::from_sql(found, raw)?),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(found: &Type) -> bool {
        matches!(
            *found,
            Type::INT8 | Type::INT4 | Type::BYTEA | Type::TEXT | Type::VARCHAR | Type::NAME
        )
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(cause: tokio_postgres::Error) -> Self {
        // The server's own message, with its hint if any; the rest is for its log.
        let said = cause.as_db_error().map(|error| {
            let hint = error
                .hint()
                .map_or_else(String::new, |hint| format!(" ({hint})"));
            format!("{}{hint}", error.message())
        });
        let kind = cause.code().map(kind_of_state);
        let kind = kind.unwrap_or_else(|| kind_of_failure(&cause));
        match said {
            Some(said) => Self::new(kind, said),
            None => Self::new(kind, cause),
        }
    }
}

/// Returns the kind of a failure that the server did not report.
fn kind_of_failure(cause: &tokio_postgres::Error) -> TroubleKind {
    let mut source = std::error::Error::source(cause);
    let mut is_of_network = cause.is_closed();
    while let Some(error) = source {
        // A wrong certificate arrives as an error of the connection, and stays wrong on retries.
        is_of_network |= error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            !error
                .get_ref()
                .is_some_and(|inner| inner.is::<rustls::Error>())
        });
        source = error.source();
    }
    if is_of_network {
        TroubleKind::Unreachable
    } else {
        TroubleKind::Other
    }
}

fn kind_of_state(state: &SqlState) -> TroubleKind {
    // Classes of states: lacking resources, permissions, interference, the connection.
    match (state, state.code().get(..2)) {
        (&SqlState::DISK_FULL, _) => TroubleKind::Full,
        (&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED, _) => TroubleKind::Damaged,
        (&SqlState::LOCK_NOT_AVAILABLE, _) => TroubleKind::InUse,
        (&SqlState::INSUFFICIENT_PRIVILEGE, _) | (_, Some("28")) => TroubleKind::Denied,
        (&SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, _) | (_, Some("08" | "53" | "57")) => {
            TroubleKind::Unreachable
        }
        _ => TroubleKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_server_are_told_apart_by_what_to_do() {
        for (state, wanted) in [
            (SqlState::DISK_FULL, TroubleKind::Full),
            (SqlState::INVALID_PASSWORD, TroubleKind::Denied),
            (SqlState::INSUFFICIENT_PRIVILEGE, TroubleKind::Denied),
            (SqlState::ADMIN_SHUTDOWN, TroubleKind::Unreachable),
            (SqlState::CANNOT_CONNECT_NOW, TroubleKind::Unreachable),
            (SqlState::TOO_MANY_CONNECTIONS, TroubleKind::Unreachable),
            (SqlState::LOCK_NOT_AVAILABLE, TroubleKind::InUse),
            (SqlState::UNIQUE_VIOLATION, TroubleKind::Other),
        ] {
            assert_eq!(kind_of_state(&state), wanted, "{state:?}");
        }
    }
}
