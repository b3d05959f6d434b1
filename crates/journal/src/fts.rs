//! Jobs of the FTS interface: their clients' submissions, and the progress of each file. The bytes
//! move in ordinary requests, one for each attempt at a file.

use posthaste_types::{RequestId, Timestamp};

use crate::{
    Journal, JournalError,
    database::{Database, Row, Trouble, Value, params},
    from_sql, to_sql,
};

/// A job as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtsJob {
    /// Id, a UUID.
    pub id: String,
    /// Owner; empty for nobody in particular.
    pub owner: String,
    /// Project whose account it goes on; empty for none.
    pub project: String,
    /// Options for all of it, as JSON of the service.
    pub asked: String,
    /// Priority from 1 to 5, the most urgent.
    pub priority: u8,
    /// Submission time.
    pub created: Timestamp,
    /// End of the last of its files, once nothing more can happen to it.
    pub ended: Option<Timestamp>,
    /// The job was cancelled.
    pub is_cancelled: bool,
}

/// A file of a job, from one place to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtsFile {
    /// Number; 0 before it is kept.
    pub id: u64,
    /// Id of its job.
    pub job: String,
    /// Place among the job's files: entries with the same place are alternatives for the same file.
    pub place: u32,
    /// Options for it alone, as JSON of the service.
    pub asked: String,
    /// Deadline of its arrival.
    pub deadline: Timestamp,
    /// Priority of its job.
    pub priority: u8,
    /// Progress.
    pub state: FtsState,
    /// Nothing remains to be done about it.
    pub is_settled: bool,
    /// Request that moves it, or moved it last.
    pub request: Option<RequestId>,
    /// Number of requests that were made for it.
    pub attempts: u32,
    /// Moment before which it is not retried.
    pub not_before: Timestamp,
    /// Results of earlier attempts, as JSON of the service.
    pub tried: String,
    /// Reason of its end.
    pub reason: String,
    /// Size, once it is known.
    pub bytes: Option<u64>,
    /// Moment when its bytes began to move.
    pub begun: Option<Timestamp>,
    /// Moment of its end.
    pub ended: Option<Timestamp>,
}

/// Progress of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FtsState {
    /// Alternative to another one that may fail, or successor of one that must arrive first.
    NotUsed,
    /// No request exists yet.
    Waiting,
    /// A request moves it.
    Given,
    /// The file arrived.
    Finished,
    /// The file can't be transferred.
    Failed,
    /// The file was cancelled, or waited too long.
    Cancelled,
}

impl FtsState {
    fn number(self) -> u8 {
        match self {
            Self::NotUsed => 0,
            Self::Waiting => 1,
            Self::Given => 2,
            Self::Finished => 3,
            Self::Failed => 4,
            Self::Cancelled => 5,
        }
    }

    /// Reads a state; a later version's state needs nothing done.
    fn read(number: u8) -> Self {
        match number {
            0 => Self::NotUsed,
            1 => Self::Waiting,
            2 => Self::Given,
            3 => Self::Finished,
            4 => Self::Failed,
            _ => Self::Cancelled,
        }
    }
}

/// Filter of a listing of jobs.
#[derive(Debug, Clone, Copy, Default)]
pub struct FtsJobs {
    /// Only jobs that ended since then; without it, only those that have not ended.
    pub ended_since: Option<Timestamp>,
    /// All jobs, ended or not, instead.
    pub all: bool,
    /// Most jobs to list, the newest.
    pub most: u32,
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_micros(from_sql(micros))
}

fn micros(at: Timestamp) -> i64 {
    to_sql(at.as_micros())
}

fn job_of(row: &Row) -> Result<FtsJob, Trouble> {
    Ok(FtsJob {
        id: row.get("id")?,
        owner: row.get("owner")?,
        project: row.get("project")?,
        asked: row.get("asked")?,
        priority: row.get("priority")?,
        created: moment(row.get("created_micros")?),
        ended: row.get::<_, Option<i64>>("ended_micros")?.map(moment),
        is_cancelled: row.get("cancelled")?,
    })
}

fn file_of(row: &Row) -> Result<FtsFile, Trouble> {
    let request: Option<i64> = row.get("request")?;
    let bytes: Option<i64> = row.get("bytes")?;
    Ok(FtsFile {
        id: from_sql(row.get("id")?),
        job: row.get("job")?,
        place: row.get("place")?,
        asked: row.get("asked")?,
        deadline: moment(row.get("deadline_micros")?),
        priority: row.get("priority")?,
        state: FtsState::read(row.get("state")?),
        is_settled: row.get("settled")?,
        request: request.map(|id| RequestId::new(from_sql(id))),
        attempts: row.get("attempts")?,
        not_before: moment(row.get("not_before_micros")?),
        tried: row.get("tried")?,
        reason: row.get("reason")?,
        bytes: bytes.map(from_sql),
        begun: row.get::<_, Option<i64>>("begun_micros")?.map(moment),
        ended: row.get::<_, Option<i64>>("ended_micros")?.map(moment),
    })
}

fn write_job(database: &dyn Database, job: &FtsJob) -> Result<(), Trouble> {
    database.execute(
        "UPDATE fts_job SET priority = ?2, ended_micros = ?3, cancelled = ?4 WHERE id = ?1",
        &params![
            job.id,
            job.priority,
            job.ended.map(micros),
            job.is_cancelled
        ],
    )?;
    Ok(())
}

fn write_file(database: &dyn Database, file: &FtsFile) -> Result<(), Trouble> {
    database.execute(
        "UPDATE fts_file SET priority = ?2, state = ?3, settled = ?4, request = ?5, attempts = ?6,
         not_before_micros = ?7, tried = ?8, reason = ?9, bytes = ?10, begun_micros = ?11, ended_micros = ?12
         WHERE id = ?1",
        &params![
            to_sql(file.id),
            file.priority,
            file.state.number(),
            file.is_settled,
            file.request.map(|request| to_sql(request.get())),
            file.attempts,
            micros(file.not_before),
            file.tried,
            file.reason,
            file.bytes.map(to_sql),
            file.begun.map(micros),
            file.ended.map(micros),
        ],
    )?;
    Ok(())
}

impl Journal {
    /// Keeps a job and its files; returns false, and changes nothing, if its id is in use.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_fts_job(&mut self, job: &FtsJob, files: &[FtsFile]) -> Result<bool, JournalError> {
        let rows = files.iter().map(|file| {
            params![
                job.id,
                file.place,
                file.asked,
                micros(file.deadline),
                file.priority,
                file.state.number(),
                file.is_settled,
                micros(file.not_before),
            ]
        });
        self.write(|database| {
            let kept = database.query_row(
                "INSERT INTO fts_job (id, owner, project, asked, priority, created_micros)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO NOTHING RETURNING id",
                &params![
                    job.id,
                    job.owner,
                    job.project,
                    job.asked,
                    job.priority,
                    micros(job.created)
                ],
            )?;
            if kept.is_none() {
                return Ok(false);
            }
            for row in rows {
                // Inserted one by one, so that their numbers are in their order.
                database.execute(
                    "INSERT INTO fts_file (job, place, asked, deadline_micros, priority, state, settled,
                     not_before_micros) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    &row,
                )?;
            }
            Ok(true)
        })
    }

    /// Returns the job of that id.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_job(&self, id: &str) -> Result<Option<FtsJob>, JournalError> {
        let found = self.select_fts_jobs("SELECT * FROM fts_job WHERE id = ?1", &params![id])?;
        Ok(found.into_iter().next())
    }

    /// Returns jobs, the newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_jobs(&self, which: FtsJobs) -> Result<Vec<FtsJob>, JournalError> {
        // A moment after all ends, or one before any: the statement is always the same.
        let (since, open) = match (which.all, which.ended_since) {
            (true, _) => (0, true),
            (false, Some(since)) => (micros(since), false),
            (false, None) => (i64::MAX, true),
        };
        self.select_fts_jobs(
            "SELECT * FROM fts_job
             WHERE ended_micros >= ?1 OR (?2 = 1 AND ended_micros IS NULL)
             ORDER BY created_micros DESC, id LIMIT ?3",
            &params![since, open, which.most],
        )
    }

    /// Returns the files of a job, in their order.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_files(&self, job: &str) -> Result<Vec<FtsFile>, JournalError> {
        self.select_fts_files(
            "SELECT * FROM fts_file WHERE job = ?1 ORDER BY id",
            &params![job],
        )
    }

    /// Returns all unsettled files that have a request.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_files_given(&self) -> Result<Vec<FtsFile>, JournalError> {
        self.select_fts_files(
            "SELECT * FROM fts_file WHERE settled = 0 AND request IS NOT NULL AND state <> 1 ORDER BY id",
            &[],
        )
    }

    /// Returns `most` files that wait for a request and may have one now, the most urgent first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_files_waiting(
        &self,
        now: Timestamp,
        most: u32,
    ) -> Result<Vec<FtsFile>, JournalError> {
        self.select_fts_files(
            "SELECT * FROM fts_file WHERE settled = 0 AND state = 1 AND not_before_micros <= ?1
             ORDER BY deadline_micros, priority DESC, id LIMIT ?2",
            &params![micros(now), most],
        )
    }

    /// Stores the progress of jobs and files in one transaction.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn change_fts(&mut self, jobs: &[FtsJob], files: &[FtsFile]) -> Result<(), JournalError> {
        self.write(|database| {
            for job in jobs {
                write_job(database, job)?;
            }
            for file in files {
                write_file(database, file)?;
            }
            Ok(())
        })
    }

    /// Removes `most` of the jobs that ended before `before`; returns how many it removed.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn forget_fts_jobs(&mut self, before: Timestamp, most: u32) -> Result<u64, JournalError> {
        self.write(|database| {
            let old = database.query(
                "SELECT id FROM fts_job WHERE ended_micros < ?1 ORDER BY ended_micros LIMIT ?2",
                &params![micros(before), most],
            )?;
            for row in &old {
                let id: String = row.get(0)?;
                database.execute("DELETE FROM fts_file WHERE job = ?1", &params![id])?;
                database.execute("DELETE FROM fts_job WHERE id = ?1", &params![id])?;
            }
            Ok(old.len() as u64)
        })
    }

    fn select_fts_jobs(
        &self,
        query: &str,
        arguments: &[Value],
    ) -> Result<Vec<FtsJob>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self.database.query(query, arguments)?;
            rows.iter().map(job_of).collect()
        };
        read().map_err(self.failed("read"))
    }

    fn select_fts_files(
        &self,
        query: &str,
        arguments: &[Value],
    ) -> Result<Vec<FtsFile>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self.database.query(query, arguments)?;
            rows.iter().map(file_of).collect()
        };
        read().map_err(self.failed("read"))
    }
}
