//! Steps of the mind: appended whole, replayed in order.

use posthaste_core::contract::{Command, Event, Happening, Input};
use posthaste_types::{ChunkIndex, Digest, Record, RequestId, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::{Journal, JournalError, from_sql, to_sql};

/// Events kept for people to read; older ones are dropped. About 200 bytes each.
const EVENTS_MAX: i64 = 1_000_000;

/// A step taken because time passed: it has a row, so that a replay takes it too.
const WAKEUP: &[u8] = &[];

/// Digests of a chunk and of its fragments, learned when it was first read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    /// The request whose dataset it is of.
    pub request: RequestId,
    /// Its place.
    pub chunk: ChunkIndex,
    /// The chunk's own digest, then one for each fragment.
    pub digests: Vec<Digest>,
}

/// One step of the mind with all that must survive with it.
#[derive(Debug, Default)]
pub struct Step<'a> {
    /// When it was taken.
    pub at: Timestamp,
    /// What came in.
    pub inputs: &'a [Input],
    /// What the mind wants done.
    pub commands: &'a [Command],
    /// What people may want to know.
    pub events: &'a [Event],
    /// Digests without which a stored fragment could not be used.
    pub chunks: &'a [ChunkRecord],
    /// The mind's state after the step, when it is time to keep one.
    pub snapshot: Option<Vec<u8>>,
}

/// What a restart needs: a state, and the steps after it.
#[derive(Debug, Default)]
pub struct Replay {
    /// The newest snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// The steps since, in order.
    pub steps: Vec<(Timestamp, Vec<Input>)>,
}

/// An event with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its number: grows by one, never reused.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

impl Journal {
    /// Appends a step in one transaction. After it returns, the step survives `kill -9` and power
    /// loss. Returns the number of the step's first event.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`]; then nothing of the step was kept.
    pub fn append(&mut self, step: &Step<'_>) -> Result<u64, JournalError> {
        let failed = self.failed("append to");
        let transaction = self.connection.transaction().map_err(&failed)?;
        let write = || -> rusqlite::Result<(i64, i64)> {
            let at = to_sql(step.at.as_micros());
            let next: i64 = transaction.query_row(
                "SELECT coalesce(max(step), 0) + 1 FROM input WHERE seq = (SELECT max(seq) FROM input)",
                [],
                |row| row.get(0),
            )?;
            let mut insert = transaction.prepare_cached(
                "INSERT INTO input (at_micros, step, record) VALUES (?1, ?2, ?3)",
            )?;
            if step.inputs.is_empty() {
                insert.execute(params![at, next, WAKEUP])?;
            }
            for input in step.inputs {
                insert.execute(params![at, next, input.to_bytes()])?;
            }
            keep_course(&transaction, step)?;
            let last_input: i64 =
                transaction.query_row("SELECT coalesce(max(seq), 0) FROM input", [], |row| {
                    row.get(0)
                })?;
            let mut insert = transaction
                .prepare_cached("INSERT INTO command (at_micros, record) VALUES (?1, ?2)")?;
            for command in step.commands {
                insert.execute(params![at, command.to_bytes()])?;
            }
            let first_event: i64 = transaction.query_row(
                "SELECT coalesce(max(seq), 0) + 1 FROM event",
                [],
                |row| row.get(0),
            )?;
            let mut insert = transaction.prepare_cached(
                "INSERT INTO event (seq, at_micros, request, record) VALUES (?1, ?2, ?3, ?4)",
            )?;
            for (seq, event) in (first_event..).zip(step.events) {
                let request = event.request.map(|request| to_sql(request.get()));
                insert.execute(params![
                    seq,
                    to_sql(event.at.as_micros()),
                    request,
                    event.to_bytes()
                ])?;
            }
            keep_chunks(&transaction, step.chunks)?;
            Ok((last_input, first_event))
        };
        let (last_input, first_event) = write().map_err(&failed)?;
        if let Some(snapshot) = &step.snapshot {
            keep_snapshot(&transaction, last_input, snapshot).map_err(&failed)?;
        }
        transaction.commit().map_err(&failed)?;
        Ok(from_sql(first_event))
    }

    /// Keeps digests of chunks that were read though nothing of them is stored yet: no step of the mind.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`]; then none was kept.
    pub fn keep_chunks(&mut self, chunks: &[ChunkRecord]) -> Result<(), JournalError> {
        let failed = self.failed("append to");
        let transaction = self.connection.transaction().map_err(&failed)?;
        keep_chunks(&transaction, chunks).map_err(&failed)?;
        transaction.commit().map_err(&failed)
    }

    /// How many chunks of a request were read so far.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`].
    pub fn chunks_read(&self, request: RequestId) -> Result<u64, JournalError> {
        let count = self.connection.query_row(
            "SELECT count(*) FROM chunk WHERE request = ?1",
            [to_sql(request.get())],
            |row| row.get(0),
        );
        count.map(from_sql).map_err(self.failed("read from"))
    }

    /// What a restart needs to bring the mind back to where it was.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`] or [`JournalError::Malformed`].
    pub fn replay(&self) -> Result<Replay, JournalError> {
        let failed = self.failed("replay");
        let snapshot: Option<(i64, Vec<u8>)> = self
            .connection
            .query_row(
                "SELECT input_seq, record FROM snapshot ORDER BY input_seq DESC LIMIT 1",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(&failed)?;
        let since = snapshot.as_ref().map_or(0, |(seq, _)| *seq);
        Ok(Replay {
            snapshot: snapshot.map(|(_, bytes)| bytes),
            steps: self.steps_since(since)?,
        })
    }

    /// Every step there ever was: what a restart needs when the snapshot is of an older layout.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`] or [`JournalError::Malformed`].
    pub fn replay_all(&self) -> Result<Replay, JournalError> {
        Ok(Replay {
            snapshot: None,
            steps: self.steps_since(0)?,
        })
    }

    fn steps_since(&self, since: i64) -> Result<Vec<(Timestamp, Vec<Input>)>, JournalError> {
        let failed = self.failed("replay");
        let mut select = self
            .connection
            .prepare("SELECT at_micros, step, record FROM input WHERE seq > ?1 ORDER BY seq")
            .map_err(&failed)?;
        let rows = select
            .query_map([since], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, Vec<u8>>(2)?,
                ))
            })
            .map_err(&failed)?;
        let mut steps: Vec<(Timestamp, Vec<Input>)> = Vec::new();
        let mut last_step = None;
        for row in rows {
            let (at, step, bytes) = row.map_err(&failed)?;
            if last_step != Some(step) {
                steps.push((Timestamp::from_micros(from_sql(at)), Vec::new()));
                last_step = Some(step);
            }
            if let Some((_, inputs)) = steps.last_mut()
                && bytes != WAKEUP
            {
                inputs.push(Input::from_bytes(&bytes).map_err(self.malformed())?);
            }
        }
        Ok(steps)
    }

    /// Events after number `after`, oldest first, at most `limit`. When a request is named: its own,
    /// and those about no request in particular, such as a depot that went down.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`] or [`JournalError::Malformed`].
    pub fn events(
        &self,
        request: Option<RequestId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRecord>, JournalError> {
        let failed = self.failed("read");
        let mut select = self
            .connection
            .prepare_cached(
                "SELECT seq, record FROM event
                 WHERE seq > ?1 AND (?2 IS NULL OR request = ?2 OR request IS NULL) ORDER BY seq LIMIT ?3",
            )
            .map_err(&failed)?;
        let request = request.map(|request| to_sql(request.get()));
        let rows = select
            .query_map(params![to_sql(after), request, limit], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .map_err(&failed)?;
        rows.map(|row| {
            let (seq, bytes) = row.map_err(&failed)?;
            let event = Event::from_bytes(&bytes).map_err(self.malformed())?;
            Ok(EventRecord {
                seq: from_sql(seq),
                event,
            })
        })
        .collect()
    }

    /// What is known of one chunk; none before it was read.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`], [`JournalError::Malformed`].
    pub fn chunk(
        &self,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Result<Option<ChunkRecord>, JournalError> {
        let failed = self.failed("read");
        let mut select = self
            .connection
            .prepare_cached("SELECT digests FROM chunk WHERE request = ?1 AND chunk = ?2")
            .map_err(&failed)?;
        let bytes: Option<Vec<u8>> = select
            .query_row(params![to_sql(request.get()), chunk.get()], |row| {
                row.get(0)
            })
            .optional()
            .map_err(&failed)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let digests = Vec::from_bytes(&bytes).map_err(self.malformed())?;
        Ok(Some(ChunkRecord {
            request,
            chunk,
            digests,
        }))
    }

    /// The digests of every chunk read so far, in chunk order.
    ///
    /// # Errors
    /// [`JournalError::Sqlite`] or [`JournalError::Malformed`].
    pub fn chunks(&self, request: RequestId) -> Result<Vec<ChunkRecord>, JournalError> {
        let failed = self.failed("read");
        let mut select = self
            .connection
            .prepare_cached("SELECT chunk, digests FROM chunk WHERE request = ?1 ORDER BY chunk")
            .map_err(&failed)?;
        let rows = select
            .query_map([to_sql(request.get())], |row| {
                Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?))
            })
            .map_err(&failed)?;
        rows.map(|row| {
            let (chunk, bytes) = row.map_err(&failed)?;
            let digests = Vec::from_bytes(&bytes).map_err(self.malformed())?;
            Ok(ChunkRecord {
                request,
                chunk: ChunkIndex::new(chunk),
                digests,
            })
        })
        .collect()
    }
}

fn keep_chunks(
    transaction: &rusqlite::Transaction<'_>,
    chunks: &[ChunkRecord],
) -> Result<(), rusqlite::Error> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO chunk (request, chunk, digests) VALUES (?1, ?2, ?3)",
    )?;
    for chunk in chunks {
        insert.execute(params![
            to_sql(chunk.request.get()),
            chunk.chunk.get(),
            chunk.digests.to_bytes()
        ])?;
    }
    Ok(())
}

/// Keeps in the requests' table what a step says of their course: the mind forgets old requests,
/// the table doesn't.
fn keep_course(
    transaction: &rusqlite::Transaction<'_>,
    step: &Step<'_>,
) -> Result<(), rusqlite::Error> {
    let mut submitted =
        transaction.prepare_cached("UPDATE request SET submitted = 1 WHERE id = ?1")?;
    for input in step.inputs {
        if let Input::RequestSubmitted { request, .. }
        | Input::RequestSubmittedWith { request, .. }
        | Input::RequestAsked { request, .. }
        | Input::RequestAskedBy { request, .. }
        | Input::ArrivalAsked { request, .. }
        | Input::ArrivalGathered { request, .. } = input
        {
            submitted.execute([to_sql(request.get())])?;
        }
    }
    let mut ended = transaction.prepare_cached("UPDATE request SET ended = ?2 WHERE id = ?1")?;
    for event in step.events {
        if let (Some(request), Happening::CodeChosen { code }) = (event.request, &event.happening) {
            transaction.execute(
                "UPDATE request SET code = ?2 WHERE id = ?1",
                params![to_sql(request.get()), code.to_string()],
            )?;
        }
        let is_end = matches!(
            event.happening,
            Happening::Refused
                | Happening::Released
                | Happening::Delivered
                | Happening::Arrived { .. }
                | Happening::Cancelled
                | Happening::Failed
        );
        if let Some(request) = event.request.filter(|_| is_end) {
            ended.execute(params![to_sql(request.get()), event.happening.name()])?;
        }
    }
    Ok(())
}

/// Keeps the snapshot, and drops what it makes unnecessary for a restart but one older snapshot,
/// its inputs with it, and all events people can still ask for.
fn keep_snapshot(
    transaction: &rusqlite::Transaction<'_>,
    input_seq: i64,
    record: &[u8],
) -> Result<(), rusqlite::Error> {
    transaction.execute(
        "INSERT OR REPLACE INTO snapshot (input_seq, record) VALUES (?1, ?2)",
        params![input_seq, record],
    )?;
    transaction.execute(
        "DELETE FROM snapshot WHERE input_seq NOT IN
         (SELECT input_seq FROM snapshot ORDER BY input_seq DESC LIMIT 2)",
        [],
    )?;
    transaction.execute(
        "DELETE FROM event WHERE seq <= (SELECT max(seq) FROM event) - ?1",
        [EVENTS_MAX],
    )?;
    Ok(())
}
