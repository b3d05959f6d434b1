//! What people asked for, with what the mind doesn't need to know: where it lies, where it goes.

mod more;
mod purge;
mod scan;

use std::cmp::Reverse;

use posthaste_core::contract::{Happening, Method, Wishes};
use posthaste_types::{Bytes, Code, Digest, Record, RequestId, SourceId, Timestamp};

use crate::{
    Journal, JournalError,
    database::{Database, Row, ToValue, Trouble, TroubleKind, Value, number_of, params},
    digest, from_sql,
    step::keep_more_events,
    to_sql,
};
use more::id_of;
pub use more::{LentFor, OneFile, Patterns, StageIn};
pub use scan::{Scan, Scanned};

/// Requests that one statement asks for: all of a page, and far fewer arguments than databases take (SQLite 32,766, PostgreSQL 65,535).
const ASKED_TOGETHER_MAX: usize = 1024;
/// The table, with its key.
pub(crate) const REQUEST: (&str, &str) = ("request", "id");
/// A number that no request has.
const NO_REQUEST: i64 = 0;

/// A request as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Its number; 0 before it is inserted.
    pub id: RequestId,
    /// The id the submitter gave, so that submitting twice is submitting once.
    pub submission: Option<String>,
    /// The dataset's id at depots.
    pub dataset: String,
    /// The source directory, as the bytes of its absolute path.
    pub source: Vec<u8>,
    /// The names of the files in it that are meant; all that lies below it where none is named.
    pub only: Vec<String>,
    /// The digest of the list of the files below it that are meant, where they were named in a list of its own.
    pub named: Option<Digest>,
    /// Those of all these that are meant.
    pub patterns: Patterns,
    /// The names of where it goes, with commas between them; of a stage-in a path.
    pub destination: String,
    /// How chunks are coded.
    pub code: Code,
    /// Names of the depots that may hold it.
    pub via: Vec<String>,
    /// Names of those that must hold their share of it; they may hold it too.
    pub pinned: Vec<String>,
    /// For whom it is encrypted, as public keys; nobody when it is not.
    pub recipients: Vec<String>,
    /// Whether the source is removed once safe.
    pub release: bool,
    /// Its source is removed though something that a file of it has beyond its bytes can't be kept.
    pub drops_extras: bool,
    /// Whether it runs even if the deadline can't be met.
    pub best_effort: bool,
    /// What chooses how many fragments go to a depot at once.
    pub optimizer: Method,
    /// What is wished beyond the deadline.
    pub wishes: Wishes,
    /// Where it comes from and since when it is welcome, where it is a stage-in: its destination is a
    /// path here then, and its source the first of these.
    pub stage_in: Option<StageIn>,
    /// Where it is a single file that goes to an address under the name that the address has.
    pub one_file: Option<OneFile>,
    /// On which terms depots are lent for it alone.
    pub lent: Vec<LentFor>,
    /// When it was submitted.
    pub created: Timestamp,
    /// When it must be safe.
    pub deadline: Timestamp,
    /// When the first file of its source is to be purged, where that is known.
    pub purge_at: Option<Timestamp>,
    /// When depots may drop it.
    pub expires: Timestamp,
    /// What the scan of the source found, once it is done.
    pub scan: Option<Scan>,
    /// Whether the mind was told of it.
    pub submitted: bool,
    /// The word for how it ended, once it did: the mind forgets old requests.
    pub ended: Option<String>,
}

fn from_row(row: &Row) -> Result<RequestRecord, Trouble> {
    let moment = |column: &str| -> Result<Timestamp, Trouble> {
        Ok(Timestamp::from_micros(from_sql(row.get(column)?)))
    };
    let code: String = row.get("code")?;
    let bytes: Option<i64> = row.get("bytes")?;
    let error: Option<String> = row.get("scan_error")?;
    let optimizer: String = row.get("optimizer")?;
    let scan = match (bytes, error) {
        (_, Some(said)) => Some(scan::failed(&said)),
        (Some(bytes), None) => Some(Scan::Sealed {
            bytes: Bytes::new(from_sql(bytes)),
            files: from_sql(row.get("files")?),
            chunk_size: Bytes::new(from_sql(row.get("chunk_size")?)),
        }),
        (None, None) => None,
    };
    Ok(RequestRecord {
        id: id_of(row)?,
        submission: row.get("submission")?,
        dataset: row.get("dataset")?,
        source: row.get("source")?,
        only: row
            .get::<_, Option<Vec<u8>>>("only_files")?
            .and_then(|bytes| Record::from_bytes(&bytes).ok())
            .unwrap_or_default(),
        named: row
            .get::<_, Option<Vec<u8>>>("named")?
            .map(|bytes| Digest::from_bytes(&bytes))
            .transpose()
            // Without it, all of its directory would be meant.
            .map_err(|cause| Trouble::new(TroubleKind::Other, cause))?,
        patterns: row
            .get::<_, Option<Vec<u8>>>("patterns")?
            .map(|bytes| Patterns::from_bytes(&bytes))
            .transpose()
            // Without them, more would be meant.
            .map_err(|cause| Trouble::new(TroubleKind::Other, cause))?
            .unwrap_or_default(),
        destination: row.get("destination")?,
        code: code.parse().unwrap_or(Code::NONE),
        via: names(&row.get::<_, String>("via")?),
        pinned: names(&row.get::<_, String>("pinned")?),
        recipients: names(&row.get::<_, String>("recipients")?),
        release: row.get::<_, i64>("release")? > 0,
        drops_extras: row.get::<_, i64>("release")? == ANYWAY,
        best_effort: row.get("best_effort")?,
        optimizer: optimizer.parse().unwrap_or_default(),
        wishes: row
            .get::<_, Option<Vec<u8>>>("wishes")?
            .and_then(|bytes| Wishes::from_bytes(&bytes).ok())
            .unwrap_or_default(),
        stage_in: kept(row, "stage_in")?,
        one_file: kept(row, "one_file")?,
        lent: row
            .get::<_, Option<Vec<u8>>>("lent")?
            .map(|bytes| Record::from_bytes(&bytes))
            .transpose()
            // Without it, more would be used than is lent.
            .map_err(|cause| Trouble::new(TroubleKind::Other, cause))?
            .unwrap_or_default(),
        created: moment("created_micros")?,
        deadline: moment("deadline_micros")?,
        purge_at: row
            .get::<_, Option<i64>>("purge_micros")?
            .map(|micros| Timestamp::from_micros(from_sql(micros))),
        expires: moment("expires_micros")?,
        scan,
        submitted: row.get("submitted")?,
        ended: row.get("ended")?,
    })
}

/// A release of the source whatever can't be kept, among those that are 0 for none and 1.
const ANYWAY: i64 = 2;

fn kept<T: Record>(row: &Row, column: &str) -> Result<Option<T>, Trouble> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    Ok(bytes.and_then(|bytes| T::from_bytes(&bytes).ok()))
}

fn names(joined: &str) -> Vec<String> {
    let names = joined.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn insert(database: &dyn Database, request: &RequestRecord) -> Result<RequestId, Trouble> {
    let arguments = params![
        request.submission,
        request.dataset,
        request.source,
        request.destination,
        request.code.to_string(),
        request.via.join(","),
        if request.drops_extras {
            ANYWAY
        } else {
            i64::from(request.release)
        },
        request.best_effort,
        to_sql(request.created.as_micros()),
        to_sql(request.deadline.as_micros()),
        to_sql(request.expires.as_micros()),
        request.recipients.join(","),
        request.optimizer.to_string(),
        request.wishes.to_bytes(),
        request.stage_in.as_ref().map(Record::to_bytes),
        request.purge_at.map(|at| to_sql(at.as_micros())),
        (!request.only.is_empty()).then(|| request.only.to_bytes()),
        request.pinned.join(","),
        request.one_file.as_ref().map(Record::to_bytes),
        request.named.as_ref().map(Record::to_bytes),
        (!request.lent.is_empty()).then(|| request.lent.to_bytes()),
        (!request.patterns.is_all()).then(|| request.patterns.to_bytes()),
    ];
    let rows = digest::change(
        database,
        REQUEST,
        "INSERT INTO request (submission, dataset, source, destination, code, via, release,
         best_effort, created_micros, deadline_micros, expires_micros, recipients, optimizer,
         wishes, stage_in, purge_micros, only_files, pinned, one_file,
         named, lent, patterns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
         ?19, ?20, ?21, ?22)",
        &arguments,
    )?;
    let row = rows.first();
    let row = row.ok_or_else(|| Trouble::new(TroubleKind::Other, "the database gave no row"))?;
    id_of(row)
}

fn keep_scan(database: &dyn Database, request: RequestId, scan: &Scan) -> Result<(), Trouble> {
    let (bytes, files, chunk_size, error) = match scan {
        Scan::Sealed {
            bytes,
            files,
            chunk_size,
        } => (
            Some(to_sql(bytes.get())),
            Some(to_sql(*files)),
            Some(to_sql(chunk_size.get())),
            None,
        ),
        Scan::Failed { code, error } => (None, None, None, Some(scan::said(code, error))),
    };
    digest::change(
        database,
        REQUEST,
        "UPDATE request SET bytes = ?2, files = ?3, chunk_size = ?4, scan_error = ?5
         WHERE id = ?1",
        &params![to_sql(request.get()), bytes, files, chunk_size, error],
    )?;
    if scan.is_cancelled() {
        digest::change(
            database,
            REQUEST,
            "UPDATE request SET ended = ?2 WHERE id = ?1",
            &params![to_sql(request.get()), Happening::Cancelled.name()],
        )?;
    }
    Ok(())
}

impl Journal {
    /// Keeps a new request and gives it its number.
    ///
    /// # Errors
    /// [`JournalError::Database`], also when the submission id is already taken.
    pub fn insert_request(&mut self, request: &RequestRecord) -> Result<RequestId, JournalError> {
        self.write(|database| insert(database, request))
    }

    /// Keeps new requests together, or none of them; their numbers in their order.
    ///
    /// # Errors
    /// As [`Journal::insert_request`], of any of them.
    pub fn insert_requests(
        &mut self,
        requests: &[RequestRecord],
    ) -> Result<Vec<RequestId>, JournalError> {
        self.write(|database| {
            let inserted = requests.iter().map(|request| insert(database, request));
            inserted.collect()
        })
    }

    /// Keeps a new request, and as what it goes on: of that, the source is the number of the first. Their numbers.
    ///
    /// # Errors
    /// As [`Journal::insert_request`].
    pub fn insert_with_onward(
        &mut self,
        request: &RequestRecord,
        onward: &RequestRecord,
    ) -> Result<(RequestId, RequestId), JournalError> {
        self.write(|database| {
            let id = insert(database, request)?;
            let mut onward = onward.clone();
            onward.source = id.to_string().into_bytes();
            if let Some(stage) = &mut onward.stage_in {
                stage.sources = vec![id.to_string()];
            }
            Ok((id, insert(database, &onward)?))
        })
    }

    /// Keeps how the scans of requests' sources ended, together.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_scans(&mut self, scans: &[Scanned]) -> Result<(), JournalError> {
        self.write(|database| {
            for scanned in scans {
                keep_scan(database, scanned.request, &scanned.scan)?;
                if let Some(list) = &scanned.list {
                    database.execute(
                        "INSERT INTO small_list (request, list) VALUES (?1, ?2)
                         ON CONFLICT (request) DO UPDATE SET list = ?2",
                        &params![to_sql(scanned.request.get()), list],
                    )?;
                }
            }
            let events = scans.iter().filter_map(|scanned| scanned.event.clone());
            keep_more_events(database, &events.collect::<Vec<_>>())
        })
    }

    /// The list of a request's files, where that is kept here.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn small_list(&self, request: RequestId) -> Result<Option<Vec<u8>>, JournalError> {
        let read = || {
            let row = self.database.query_row(
                "SELECT list FROM small_list WHERE request = ?1",
                &params![to_sql(request.get())],
            )?;
            row.map(|row| row.get(0)).transpose()
        };
        read().map_err(self.failed("read"))
    }

    /// Keeps how the scan of the request's source ended.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_scan(&mut self, request: RequestId, scan: &Scan) -> Result<(), JournalError> {
        self.write(|database| keep_scan(database, request, scan))
    }

    /// Every request, newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        self.select_requests("SELECT * FROM request ORDER BY id DESC", &[])
    }

    /// Requests that have not ended and that the mind was not told of yet, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn untold_requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let untold = "SELECT * FROM request WHERE submitted = 0 AND ended IS NULL ORDER BY id";
        self.select_requests(untold, &[])
    }

    /// All stage-ins, and stage-outs to addresses, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn stage_ins(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let all = "SELECT * FROM request WHERE stage_in IS NOT NULL ORDER BY id";
        self.select_requests(all, &[])
    }

    /// All requests that are encrypted for somebody, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn encrypted_requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let all = "SELECT * FROM request WHERE recipients <> '' ORDER BY id";
        self.select_requests(all, &[])
    }

    /// The newest requests of those that were submitted before `before`, or of all, `most` of them, the newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn requests_before(
        &self,
        before: Option<RequestId>,
        most: u32,
    ) -> Result<Vec<RequestRecord>, JournalError> {
        let before = before.map_or(u64::MAX, RequestId::get);
        self.select_requests(
            "SELECT * FROM request WHERE id < ?1 ORDER BY id DESC LIMIT ?2",
            &params![to_sql(before), most],
        )
    }

    /// The request that a dataset belongs to; none where there is none.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn request_of_dataset(&self, dataset: &str) -> Result<Option<RequestRecord>, JournalError> {
        let found = self.select_requests(
            "SELECT * FROM request WHERE dataset = ?1",
            &params![dataset],
        )?;
        Ok(found.into_iter().next())
    }

    /// The newest stage-ins to a path, `most` of them, the newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn stage_ins_to(
        &self,
        destination: &str,
        most: u32,
    ) -> Result<Vec<RequestRecord>, JournalError> {
        self.select_requests(
            "SELECT * FROM request WHERE destination = ?1 AND stage_in IS NOT NULL
             ORDER BY id DESC LIMIT ?2",
            &params![destination, most],
        )
    }

    /// One request.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn request(&self, request: RequestId) -> Result<Option<RequestRecord>, JournalError> {
        let found = self.select_requests(
            "SELECT * FROM request WHERE id = ?1",
            &params![to_sql(request.get())],
        )?;
        Ok(found.into_iter().next())
    }

    /// Those requests of these that there are, the newest first, asked for together: up to 1,024 with one question.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn requests_among(&self, ids: &[RequestId]) -> Result<Vec<RequestRecord>, JournalError> {
        let mut found = Vec::new();
        for ids in ids.chunks(ASKED_TOGETHER_MAX) {
            // Statements are kept by their text, so there are only as many as powers of two.
            let places = ids.len().next_power_of_two();
            let mut asked: Vec<Value> = ids.iter().map(|id| to_sql(id.get()).to_value()).collect();
            asked.resize(places, NO_REQUEST.to_value());
            let places: Vec<String> = (1..=places).map(|place| format!("?{place}")).collect();
            let places = places.join(", ");
            let among = format!("SELECT * FROM request WHERE id IN ({places})");
            found.extend(self.select_requests(&among, &asked)?);
        }
        found.sort_by_key(|request| Reverse(request.id));
        Ok(found)
    }

    /// The request with this submission id.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn submission(&self, submission: &str) -> Result<Option<RequestRecord>, JournalError> {
        let found = self.select_requests(
            "SELECT * FROM request WHERE submission = ?1",
            &params![submission],
        )?;
        Ok(found.into_iter().next())
    }

    fn select_requests(
        &self,
        query: &str,
        arguments: &[Value],
    ) -> Result<Vec<RequestRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self.database.query(query, arguments)?;
            for row in &rows {
                let id = id_of(row)?;
                digest::check_row(row, || format!("what is kept of {id}"))?;
            }
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }

    /// The number of the source of that name; one that is new gets its number.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn source(&mut self, name: &str) -> Result<SourceId, JournalError> {
        let id = self.write(|database| {
            database.execute(
                "INSERT INTO source (name) VALUES (?1) ON CONFLICT (name) DO NOTHING",
                &params![name],
            )?;
            number_of(database.query_row("SELECT id FROM source WHERE name = ?1", &params![name])?)
        })?;
        Ok(SourceId::new(id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    /// A database that is empty, and counts what it is asked.
    #[derive(Debug, Default)]
    struct Asked(Arc<AtomicUsize>);

    impl Database for Asked {
        fn query(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, Trouble> {
            assert_eq!(statement.matches('?').count(), arguments.len());
            self.0.fetch_add(1, Relaxed);
            Ok(Vec::new())
        }

        fn run(&self, _: &str) -> Result<(), Trouble> {
            unreachable!("it is only read")
        }

        fn execute(&self, _: &str, _: &[Value]) -> Result<u64, Trouble> {
            unreachable!("it is only read")
        }

        fn execute_each(&self, _: &str, _: &[Vec<Value>]) -> Result<(), Trouble> {
            unreachable!("it is only read")
        }

        fn begin(&self) -> Result<(), Trouble> {
            unreachable!("it is only read")
        }

        fn commit(&self) -> Result<(), Trouble> {
            unreachable!("it is only read")
        }

        fn rollback(&self) -> Result<(), Trouble> {
            unreachable!("it is only read")
        }

        fn definition(&self, _: &str) -> String {
            unreachable!("it is only read")
        }
    }

    #[test]
    fn the_requests_of_a_page_are_asked_for_once() {
        let asked = Arc::new(AtomicUsize::new(0));
        let journal = Journal {
            database: Box::new(Asked(Arc::clone(&asked))),
            place: "nowhere".into(),
            epoch: None,
        };
        for (requests, questions) in [(0, 0), (1, 1), (100, 1), (1000, 1), (1024, 1), (1025, 2)] {
            let ids: Vec<RequestId> = (1..=requests).map(RequestId::new).collect();
            assert_eq!(journal.requests_among(&ids).unwrap(), []);
            assert_eq!(asked.swap(0, Relaxed), questions, "{requests}");
        }
    }
}
