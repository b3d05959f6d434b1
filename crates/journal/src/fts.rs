//! Jobs of FTS's interface: what their clients asked for, and how far each of their files is. The bytes themselves move in
//! ordinary requests, one for each attempt at a file.

use posthaste_types::{RequestId, Timestamp};

use crate::{
    Journal, JournalError,
    database::{Database, Row, Trouble, Value, params},
    from_sql, to_sql,
};

/// A job as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtsJob {
    /// A UUID.
    pub id: String,
    /// Whose it is; nobody's in particular where empty.
    pub owner: String,
    /// On whose account it goes; on nobody's where empty.
    pub project: String,
    /// What holds for all of it, as JSON of the service's.
    pub asked: String,
    /// From 1 to 5, the most urgent.
    pub priority: u8,
    /// When it was asked for.
    pub created: Timestamp,
    /// When the last of its files ended, once nothing more comes of it.
    pub ended: Option<Timestamp>,
    /// Whether somebody ended it.
    pub is_cancelled: bool,
}

/// A file of a job, from one place to one other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtsFile {
    /// Its number; 0 before it is kept.
    pub id: u64,
    /// Its job.
    pub job: String,
    /// Which of the job's files it is: those with the same one are ways to have the same file.
    pub place: u32,
    /// What holds for it alone, as JSON of the service's.
    pub asked: String,
    /// When it is to be there.
    pub deadline: Timestamp,
    /// Of its job.
    pub priority: u8,
    /// How far it is.
    pub state: FtsState,
    /// Whether nothing needs to be done about it any more.
    pub is_settled: bool,
    /// The request that moves it, or moved it last.
    pub request: Option<RequestId>,
    /// Requests that were made for it.
    pub attempts: u32,
    /// Before this nothing is tried again.
    pub not_before: Timestamp,
    /// What became of earlier attempts, as JSON of the service's.
    pub tried: String,
    /// Why it ended as it did.
    pub reason: String,
    /// Its size, once it is known.
    pub bytes: Option<u64>,
    /// When its bytes began to move.
    pub begun: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
}

/// How far a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FtsState {
    /// It stands in for another one that may fail, or comes after one that must be there first.
    NotUsed,
    /// It has no request yet.
    Waiting,
    /// A request moves it.
    Given,
    /// It is there.
    Finished,
    /// It can't be brought there.
    Failed,
    /// Somebody ended it, or it waited too long.
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

    /// What a later version wrote is nothing to be done about.
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

/// Which jobs a listing shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct FtsJobs {
    /// Only those that ended since then; those that have not ended where nothing is said.
    pub ended_since: Option<Timestamp>,
    /// Whichever ended or not, instead.
    pub all: bool,
    /// Most of them, the newest.
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
    /// Keeps a job and its files; false where one has its id, and nothing changes.
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
                // One by one, so that their numbers are in their order.
                database.execute(
                    "INSERT INTO fts_file (job, place, asked, deadline_micros, priority, state, settled,
                     not_before_micros) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    &row,
                )?;
            }
            Ok(true)
        })
    }

    /// A job of that id.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_job(&self, id: &str) -> Result<Option<FtsJob>, JournalError> {
        let found = self.select_fts_jobs("SELECT * FROM fts_job WHERE id = ?1", &params![id])?;
        Ok(found.into_iter().next())
    }

    /// Jobs, the newest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_jobs(&self, which: FtsJobs) -> Result<Vec<FtsJob>, JournalError> {
        // A moment that all are behind, and one that none is: the same statement for all.
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

    /// The files of a job, in their order.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_files(&self, job: &str) -> Result<Vec<FtsFile>, JournalError> {
        self.select_fts_files(
            "SELECT * FROM fts_file WHERE job = ?1 ORDER BY id",
            &params![job],
        )
    }

    /// Files about which something is to be done and that have a request: all of them.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn fts_files_given(&self) -> Result<Vec<FtsFile>, JournalError> {
        self.select_fts_files(
            "SELECT * FROM fts_file WHERE settled = 0 AND request IS NOT NULL AND state <> 1 ORDER BY id",
            &[],
        )
    }

    /// Files that wait for a request and may have one now: `most` of them, the most urgent first.
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

    /// Writes down how far jobs and files are, together.
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

    /// Forgets jobs that ended before `before`, `most` of them; how many.
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
