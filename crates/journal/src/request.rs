//! Requests of people, with facts that the mind doesn't need: source and destination.

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

/// Most requests that one statement asks for: all of a page, and far fewer arguments than databases
/// accept (SQLite 32,766, PostgreSQL 65,535).
const ASKED_TOGETHER_MAX: usize = 1024;
/// Name of the table and its key.
pub(crate) const REQUEST: (&str, &str) = ("request", "id");
/// Number that no request has.
const NO_REQUEST: i64 = 0;

/// A request as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Number; 0 before it is inserted.
    pub id: RequestId,
    /// Id that the submitter gave, so that a repeated submission makes no second request.
    pub submission: Option<String>,
    /// Id of the dataset at depots.
    pub dataset: String,
    /// Source directory, as the bytes of its absolute path.
    pub source: Vec<u8>,
    /// Names of the selected files in it; empty for everything below it.
    pub only: Vec<String>,
    /// Digest of the list of selected files, if a separate list names them.
    pub named: Option<Digest>,
    /// Further selection among these files.
    pub patterns: Patterns,
    /// Names of its destinations, separated by commas; a path for a stage-in.
    pub destination: String,
    /// Code of its chunks.
    pub code: Code,
    /// Names of the depots that may hold it.
    pub via: Vec<String>,
    /// Names of depots that must hold their share of it; they may hold it too.
    pub pinned: Vec<String>,
    /// Recipients it is encrypted for, as public keys; empty without encryption.
    pub recipients: Vec<String>,
    /// Remove the source once the dataset is safe.
    pub release: bool,
    /// Remove the source even if some of its files' extra attributes can't be kept.
    pub drops_extras: bool,
    /// Run even if the deadline can't be met.
    pub best_effort: bool,
    /// Optimizer of the number of fragments sent to a depot at once.
    pub optimizer: Method,
    /// Wishes beyond the deadline.
    pub wishes: Wishes,
    /// Sources and earliest start of a stage-in: its destination is a path here then, and its
    /// source the first of these.
    pub stage_in: Option<StageIn>,
    /// Options of a single file that goes to an address, which includes its name.
    pub one_file: Option<OneFile>,
    /// Terms of depots that are lent for it alone.
    pub lent: Vec<LentFor>,
    /// Submission time.
    pub created: Timestamp,
    /// Deadline by which it must be safe.
    pub deadline: Timestamp,
    /// Purge of the first file of its source, if known.
    pub purge_at: Option<Timestamp>,
    /// Moment from which depots may drop it.
    pub expires: Timestamp,
    /// Result of the scan of the source, once it is done.
    pub scan: Option<Scan>,
    /// The mind knows the request.
    pub submitted: bool,
    /// Word for how it ended, once it did: the mind forgets old requests.
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
            // Without it, the whole directory would be selected.
            .map_err(|cause| Trouble::new(TroubleKind::Other, cause))?,
        patterns: row
            .get::<_, Option<Vec<u8>>>("patterns")?
            .map(|bytes| Patterns::from_bytes(&bytes))
            .transpose()
            // Without them, more files would be selected.
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

/// Value of the column `release` for a release with lost extras, beside 0 for none and 1.
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
    /// Keeps a new request and returns its number.
    ///
    /// # Errors
    /// [`JournalError::Database`], also if the submission id is in use.
    pub fn insert_request(&mut self, request: &RequestRecord) -> Result<RequestId, JournalError> {
        self.write(|database| insert(database, request))
    }

    /// Keeps new requests together, or none of them; returns their numbers in their order.
    ///
    /// # Errors
    /// See [`Journal::insert_request`], for any of them.
    pub fn insert_requests(
        &mut self,
        requests: &[RequestRecord],
    ) -> Result<Vec<RequestId>, JournalError> {
        self.write(|database| {
            let inserted = requests.iter().map(|request| insert(database, request));
            inserted.collect()
        })
    }

    /// Keeps a new request and its continuation, whose source is the number of the first. Returns
    /// both numbers.
    ///
    /// # Errors
    /// See [`Journal::insert_request`].
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

    /// Keeps the results of scans of requests' sources together.
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

    /// Returns the list of a request's files, if it is kept here.
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

    /// Keeps the result of the scan of the request's source.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_scan(&mut self, request: RequestId, scan: &Scan) -> Result<(), JournalError> {
        self.write(|database| keep_scan(database, request, scan))
    }

    /// Returns all requests, newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        self.select_requests("SELECT * FROM request ORDER BY id DESC", &[])
    }

    /// Returns requests that have not ended and that the mind does not know yet, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn untold_requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let untold = "SELECT * FROM request WHERE submitted = 0 AND ended IS NULL ORDER BY id";
        self.select_requests(untold, &[])
    }

    /// Returns all stage-ins, and stage-outs to addresses, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn stage_ins(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let all = "SELECT * FROM request WHERE stage_in IS NOT NULL ORDER BY id";
        self.select_requests(all, &[])
    }

    /// Returns all encrypted requests, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn encrypted_requests(&self) -> Result<Vec<RequestRecord>, JournalError> {
        let all = "SELECT * FROM request WHERE recipients <> '' ORDER BY id";
        self.select_requests(all, &[])
    }

    /// Returns `most` of the requests that were submitted before `before`, or of all, the newest
    /// first.
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

    /// Returns the request that a dataset belongs to, if any.
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

    /// Returns `most` of the stage-ins to a path, the newest first.
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

    /// Returns a request.
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

    /// Returns the existing ones of these requests, the newest first, with one statement for up to
    /// 1,024.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn requests_among(&self, ids: &[RequestId]) -> Result<Vec<RequestRecord>, JournalError> {
        let mut found = Vec::new();
        for ids in ids.chunks(ASKED_TOGETHER_MAX) {
            // Prepared statements are kept by their text, so the number of arguments is always a
            // power of two.
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

    /// Returns the request with this submission id.
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

    /// Returns the number of the source of that name; a new source gets its number.
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

    /// An empty database that counts its statements.
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
