//! Steps of the mind: appended whole, replayed in order.

mod beside;
mod chain;

use posthaste_core::contract::{Command, Event, Happening, Input};
use posthaste_types::{ChunkIndex, Digest, Record, RequestId, Timestamp};

use crate::{
    Journal, JournalError,
    database::{Database, Row, Trouble, TroubleKind, Value, number_of, params},
    digest::{self, InputRow},
    from_sql,
    request::REQUEST,
    snapshot, to_sql,
};
use beside::{CHUNKS, LEFT_OUT, Rows};
pub(crate) use chain::check_all;
use chain::{Since, each_step, newest_snapshot};

/// Events kept for people to read; older ones are removed. About 200 bytes each.
const EVENTS_MAX: i64 = 1_000_000;
/// Inputs read at once in a replay: limits the rows in memory beside the inputs themselves.
const REPLAYED_AT_ONCE: i64 = 8192;

const EVENT_COLUMNS: [&str; 4] = ["seq", "at_micros", "request", "record"];

/// Input row of a step taken because time passed, so that a replay takes it too.
const WAKEUP: &[u8] = &[];

/// Digests of a chunk and of its fragments, learnt when it was first read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Request of its dataset.
    pub request: RequestId,
    /// Place of the chunk.
    pub chunk: ChunkIndex,
    /// Digest of the chunk, then one for each fragment. A stage-in's chunk is here if there is no
    /// other digest; otherwise it lies at a depot near the centre.
    pub digests: Vec<Digest>,
}

/// A step of the mind with everything that must survive with it.
#[derive(Debug, Default)]
pub struct Step<'a> {
    /// Time of the step.
    pub at: Timestamp,
    /// Inputs of the step.
    pub inputs: &'a [Input],
    /// Commands of the mind.
    pub commands: &'a [Command],
    /// Events for people.
    pub events: &'a [Event],
    /// Digests without which a stored fragment could not be used.
    pub chunks: &'a [ChunkRecord],
    /// State of the mind after the step, if it is time to keep one.
    pub snapshot: Option<Vec<u8>>,
}

/// State and steps that a restart needs.
#[derive(Debug, Default)]
pub struct Replay {
    /// Newest snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// Steps since then, in order.
    pub steps: Vec<(Timestamp, Vec<Input>)>,
}

/// An event with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Number: it grows by one and is never reused.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

impl Journal {
    /// Appends a step durably, in one transaction; returns the number of its first event.
    ///
    /// # Errors
    /// [`JournalError::Database`]; then nothing of the step was kept.
    pub fn append(&mut self, step: &Step<'_>) -> Result<u64, JournalError> {
        let first_event = self.write(|database| {
            let last = Last::of(database)?;
            let at = to_sql(step.at.as_micros());
            let bytes = step.inputs.iter().map(Record::to_bytes);
            let mut inputs: Vec<Vec<u8>> = bytes.collect();
            if inputs.is_empty() {
                inputs.push(WAKEUP.to_vec());
            }
            let last_input = last.input + to_sql(inputs.len() as u64);
            let inputs = (last.input + 1..).zip(inputs);
            let inputs = inputs.map(|(seq, bytes)| InputRow {
                seq,
                at,
                step: last.step + 1,
                bytes,
                digest: None,
            });
            let digest = keep_inputs(database, last.digest.as_deref(), inputs.collect())?;
            digest::keep_newest_input(database, last_input)?;
            keep_course(database, step)?;
            let commands = (last.command + 1..).zip(step.commands);
            let commands = commands.map(|(seq, one)| params![seq, at, one.to_bytes()].to_vec());
            database.execute_each(
                "INSERT INTO command (seq, at_micros, record) VALUES (?1, ?2, ?3)",
                &commands.collect::<Vec<_>>(),
            )?;
            keep_events(database, last.event, step.events)?;
            keep_chunks(database, step.chunks)?;
            keep_left_out(database, step.commands)?;
            if let Some(snapshot) = &step.snapshot {
                keep_snapshot(database, (last_input, &digest), snapshot)?;
            }
            Ok(last.event + 1)
        })?;
        Ok(from_sql(first_event))
    }

    /// Keeps digests of read chunks of which nothing is stored yet, without a step of the mind.
    ///
    /// # Errors
    /// [`JournalError::Database`]; then none was kept.
    pub fn keep_chunks(&mut self, chunks: &[ChunkRecord]) -> Result<(), JournalError> {
        self.write(|database| keep_chunks(database, chunks))
    }

    /// Returns the files left out of the dataset of a request, by their places in its list.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn left_out(&self, request: RequestId) -> Result<Vec<u64>, JournalError> {
        let rows = self.database.query(
            "SELECT * FROM left_out WHERE request = ?1 ORDER BY file",
            &params![to_sql(request.get())],
        );
        let read = |row: &Row| {
            digest::check_row(row, || format!("what was left out of {request}"))?;
            row.get("file").map(from_sql)
        };
        let files = rows.and_then(|rows| {
            let files = rows.iter().map(read).collect::<Result<_, _>>()?;
            LEFT_OUT.check(self.database.as_ref(), request, &rows)?;
            Ok(files)
        });
        files.map_err(self.failed("read"))
    }

    /// Records that these files were left out of a request's copy, by their places in its list.
    ///
    /// # Errors
    /// [`JournalError::Database`]; then none was recorded.
    pub fn leave_out(&mut self, request: RequestId, files: &[u64]) -> Result<(), JournalError> {
        let files = files.iter().map(|file| (to_sql(*file), Vec::new()));
        let rows = Rows::from([(to_sql(request.get()), files.collect())]);
        self.write(|database| LEFT_OUT.keep(database, rows))
    }

    /// Returns the number of chunks of a request that were read so far.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn chunks_read(&self, request: RequestId) -> Result<u64, JournalError> {
        let count = self.database.query_row(
            "SELECT count(*) FROM chunk WHERE request = ?1",
            &params![to_sql(request.get())],
        );
        let count = count.and_then(number_of::<i64>).and_then(|count| {
            CHUNKS.check_count(self.database.as_ref(), request, count)?;
            Ok(count)
        });
        count.map(from_sql).map_err(self.failed("read"))
    }

    /// Returns the state and steps that restore the mind after a restart.
    ///
    /// # Errors
    /// [`JournalError::Database`] or [`JournalError::Malformed`].
    pub fn replay(&self) -> Result<Replay, JournalError> {
        let (since, snapshot) = newest_snapshot(self.database.as_ref())
            .map_err(self.failed("replay"))?
            .unzip();
        Ok(Replay {
            snapshot,
            steps: self.steps_since(since.unwrap_or(Since::BEGINNING))?,
        })
    }

    /// Returns all steps ever, for a restart whose snapshot has an older layout.
    ///
    /// # Errors
    /// [`JournalError::Database`] or [`JournalError::Malformed`].
    pub fn replay_all(&self) -> Result<Replay, JournalError> {
        Ok(Replay {
            snapshot: None,
            steps: self.steps_since(Since::BEGINNING)?,
        })
    }

    fn steps_since(&self, since: Since) -> Result<Vec<(Timestamp, Vec<Input>)>, JournalError> {
        let mut steps: Vec<(Timestamp, Vec<Input>)> = Vec::new();
        let mut malformed = None;
        let read = each_step(self.database.as_ref(), since, |rows| {
            let at = rows.first().map_or(0, |row| row.at);
            let inputs = rows.iter().filter(|row| row.bytes != WAKEUP);
            match inputs.map(|row| Input::from_bytes(&row.bytes)).collect() {
                Ok(inputs) => steps.push((Timestamp::from_micros(from_sql(at)), inputs)),
                Err(cause) => {
                    malformed.get_or_insert(cause);
                }
            }
        });
        read.map_err(self.failed("replay"))?;
        match malformed {
            None => Ok(steps),
            Some(cause) => Err(self.malformed()(cause)),
        }
    }

    /// Returns the number of the newest event; 0 before the first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn newest_event(&self) -> Result<u64, JournalError> {
        let failed = self.failed("read");
        let rows = self
            .database
            .query("SELECT COALESCE(MAX(seq), 0) FROM event", &params![]);
        let rows = rows.map_err(&failed)?;
        let newest = rows.first().map(|row| row.get(0).map_err(&failed));
        newest
            .transpose()
            .map(|newest| from_sql(newest.unwrap_or(0)))
    }

    /// Returns up to `limit` events after `after`, oldest first; of one request: with general ones.
    ///
    /// # Errors
    /// [`JournalError::Database`] or [`JournalError::Malformed`].
    pub fn events(
        &self,
        request: Option<RequestId>,
        after: u64,
        limit: u32,
    ) -> Result<Vec<EventRecord>, JournalError> {
        let failed = self.failed("read");
        let request = request.map(|request| to_sql(request.get()));
        // PostgreSQL knows the type of an argument that may be null only from its cast.
        let rows = self.database.query(
            "SELECT * FROM event
             WHERE seq > ?1 AND (CAST(?2 AS BIGINT) IS NULL OR request = ?2 OR request IS NULL)
             ORDER BY seq LIMIT ?3",
            &params![to_sql(after), request, limit],
        );
        let read = |row: &Row| {
            let seq: i64 = row.get("seq").map_err(&failed)?;
            digest::check_row(row, || format!("event {seq}")).map_err(&failed)?;
            let bytes: Vec<u8> = row.get("record").map_err(&failed)?;
            let event = Event::from_bytes(&bytes).map_err(self.malformed())?;
            Ok(EventRecord {
                seq: from_sql(seq),
                event,
            })
        };
        rows.map_err(&failed)?.iter().map(read).collect()
    }

    /// Returns the digests of one chunk; none before it was read. A row that a damaged key hides is
    /// found by [`Self::chunks`] alone: nothing else looks at all of them.
    ///
    /// # Errors
    /// [`JournalError::Database`], [`JournalError::Malformed`].
    pub fn chunk(
        &self,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Result<Option<ChunkRecord>, JournalError> {
        let found = self.select_chunks(
            request,
            "SELECT * FROM chunk WHERE request = ?1 AND chunk = ?2",
            &params![to_sql(request.get()), chunk.get()],
        )?;
        Ok(found.0.into_iter().next())
    }

    /// Returns the digests of every chunk read so far, in chunk order.
    ///
    /// # Errors
    /// [`JournalError::Database`] or [`JournalError::Malformed`].
    pub fn chunks(&self, request: RequestId) -> Result<Vec<ChunkRecord>, JournalError> {
        let (chunks, rows) = self.select_chunks(
            request,
            "SELECT * FROM chunk WHERE request = ?1 ORDER BY chunk",
            &params![to_sql(request.get())],
        )?;
        let checked = CHUNKS.check(self.database.as_ref(), request, &rows);
        checked.map_err(self.failed("read")).map(|()| chunks)
    }

    fn select_chunks(
        &self,
        request: RequestId,
        query: &str,
        arguments: &[Value],
    ) -> Result<(Vec<ChunkRecord>, Vec<Row>), JournalError> {
        let failed = self.failed("read");
        let read = |row: &Row| {
            let chunk: u32 = row.get("chunk").map_err(&failed)?;
            let what = || format!("what is kept of chunk {chunk} of {request}");
            digest::check_row(row, what).map_err(&failed)?;
            let bytes: Vec<u8> = row.get("digests").map_err(&failed)?;
            let digests = Vec::from_bytes(&bytes).map_err(self.malformed())?;
            Ok(ChunkRecord {
                request,
                chunk: ChunkIndex::new(chunk),
                digests,
            })
        };
        let rows = self.database.query(query, arguments).map_err(&failed)?;
        let chunks = rows.iter().map(read).collect::<Result<_, _>>()?;
        Ok((chunks, rows))
    }
}

/// Keeps the inputs of a step, with its digest in the last of them; returns that digest.
fn keep_inputs(
    database: &dyn Database,
    before: Option<&[u8]>,
    mut inputs: Vec<InputRow>,
) -> Result<Vec<u8>, Trouble> {
    let digest = digest::of_step(before, &inputs);
    if let Some(last) = inputs.last_mut() {
        last.digest = Some(digest.clone());
    }
    let rows = inputs.into_iter();
    let rows = rows.map(|row| params![row.seq, row.at, row.step, row.bytes, row.digest].to_vec());
    database.execute_each(
        "INSERT INTO input (seq, at_micros, step, record, digest) VALUES (?1, ?2, ?3, ?4, ?5)",
        &rows.collect::<Vec<_>>(),
    )?;
    Ok(digest)
}

struct Last {
    input: i64,
    step: i64,
    /// Digest of that step; none if it was written before there were digests.
    digest: Option<Vec<u8>>,
    command: i64,
    event: i64,
}

impl Last {
    fn of(database: &dyn Database) -> Result<Self, Trouble> {
        let row = database.query_row(
            "SELECT (SELECT coalesce(max(seq), 0) FROM input),
             (SELECT coalesce(max(step), 0) FROM input WHERE seq = (SELECT max(seq) FROM input)),
             (SELECT coalesce(max(seq), 0) FROM command),
             (SELECT coalesce(max(seq), 0) FROM event),
             (SELECT digest FROM input WHERE seq = (SELECT max(seq) FROM input))",
            &[],
        )?;
        let row = row.ok_or_else(|| Trouble::new(TroubleKind::Other, "there are no numbers"))?;
        Ok(Self {
            input: row.get(0)?,
            step: row.get(1)?,
            command: row.get(2)?,
            event: row.get(3)?,
            digest: row.get(4)?,
        })
    }
}

fn keep_events(database: &dyn Database, last: i64, events: &[Event]) -> Result<(), Trouble> {
    let events = (last + 1..).zip(events).map(|(seq, event)| {
        let request = event.request.map(|request| to_sql(request.get()));
        let arguments = params![seq, to_sql(event.at.as_micros()), request, event.to_bytes()];
        digest::with_digest(&EVENT_COLUMNS, arguments.to_vec())
    });
    database.execute_each(
        "INSERT INTO event (seq, at_micros, request, record, digest) VALUES (?1, ?2, ?3, ?4, ?5)",
        &events.collect::<Vec<_>>(),
    )
}

/// Keeps events that are of no step.
pub(crate) fn keep_more_events(database: &dyn Database, events: &[Event]) -> Result<(), Trouble> {
    if events.is_empty() {
        return Ok(());
    }
    keep_events(database, Last::of(database)?.event, events)
}

fn keep_chunks(database: &dyn Database, chunks: &[ChunkRecord]) -> Result<(), Trouble> {
    let mut rows = Rows::new();
    for one in chunks {
        let row = params![one.digests.to_bytes()].to_vec();
        let of_request = rows.entry(to_sql(one.request.get())).or_default();
        of_request.insert(i64::from(one.chunk.get()), row);
    }
    CHUNKS.keep(database, rows)
}

/// Records which files are left out: lists of files outlive the mind's knowledge of requests.
fn keep_left_out(database: &dyn Database, commands: &[Command]) -> Result<(), Trouble> {
    let mut rows = Rows::new();
    for command in commands {
        if let Command::LeaveOut { request, file, .. } = command {
            let of_request = rows.entry(to_sql(request.get())).or_default();
            of_request.insert(to_sql(*file), Vec::new());
        }
    }
    LEFT_OUT.keep(database, rows)
}

/// Records a step's progress in the requests' table, which outlives the mind's memory.
fn keep_course(database: &dyn Database, step: &Step<'_>) -> Result<(), Trouble> {
    let mut submitted = Vec::new();
    for input in step.inputs {
        if let Input::RequestSubmitted { request, .. }
        | Input::RequestSubmittedWith { request, .. }
        | Input::RequestAsked { request, .. }
        | Input::RequestAskedBy { request, .. }
        | Input::RequestPinned { request, .. }
        | Input::ArrivalAsked { request, .. }
        | Input::ArrivalGathered { request, .. } = input
        {
            submitted.push(params![to_sql(request.get())].to_vec());
        }
    }
    for request in &submitted {
        let told = "UPDATE request SET submitted = 1 WHERE id = ?1";
        digest::change(database, REQUEST, told, request)?;
    }
    for event in step.events {
        let Some(request) = event.request.map(|request| to_sql(request.get())) else {
            continue;
        };
        if let Happening::CodeChosen { code } = &event.happening {
            digest::change(
                database,
                REQUEST,
                "UPDATE request SET code = ?2 WHERE id = ?1",
                &params![request, code.to_string()],
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
        if is_end {
            digest::change(
                database,
                REQUEST,
                "UPDATE request SET ended = ?2 WHERE id = ?1",
                &params![request, event.happening.name()],
            )?;
        }
    }
    Ok(())
}

/// Keeps two snapshots and recent events. Inputs stay: a new snapshot layout is rebuilt from them.
fn keep_snapshot(
    database: &dyn Database,
    (input_seq, after): (i64, &[u8]),
    record: &[u8],
) -> Result<(), Trouble> {
    let kept = snapshot::pack(record).into_owned();
    let digest = digest::of_snapshot(after, &kept);
    database.execute(
        "INSERT INTO snapshot (input_seq, record, digest) VALUES (?1, ?2, ?3)
         ON CONFLICT (input_seq) DO UPDATE SET record = ?2, digest = ?3",
        &params![input_seq, kept, digest],
    )?;
    database.execute(
        "DELETE FROM snapshot WHERE input_seq NOT IN
         (SELECT input_seq FROM snapshot ORDER BY input_seq DESC LIMIT 2)",
        &[],
    )?;
    database.execute(
        "DELETE FROM event WHERE seq <= (SELECT max(seq) FROM event) - ?1",
        &params![EVENTS_MAX],
    )?;
    Ok(())
}
