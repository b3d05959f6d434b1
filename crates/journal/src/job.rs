//! Batch jobs that asked for data: their scripts and their progress. The data moves in ordinary
//! requests.

use posthaste_types::Timestamp;

use crate::{
    Journal, JournalError,
    database::{Database, Row, Trouble, Value, params},
    from_sql, to_sql,
};

/// Most jobs kept after they are gone, the newest: some days of a large centre, for people who ask
/// about one.
const GONE_MAX: u32 = 10_000;
/// Most excess jobs removed whenever another one is gone: more than arrive, in a transaction of
/// milliseconds.
const FORGOTTEN_AT_ONCE: u32 = 100;

/// A job as its batch system reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Batch system: `slurm`.
    pub scheduler: String,
    /// Id in the batch system.
    pub job: String,
    /// Number of earlier jobs reported with this id: batch systems run jobs again, and restart
    /// their numbers.
    pub round: u32,
    /// User that it belongs to.
    pub uid: u32,
    /// Group of the files written for it.
    pub gid: u32,
    /// Script, or the part of it that has directives.
    pub script: String,
    /// Progress.
    pub phase: JobPhase,
    /// Time of the report.
    pub created: Timestamp,
    /// Hold that keeps it from starting.
    pub hold: JobHold,
}

/// State of a job's hold, and of the service's watch on it at its batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobHold {
    /// The batch system holds and watches the job, and reports to the service.
    None,
    /// The job was submitted held, and is to be released when its data is here.
    Held,
    /// The job was released, with its data here.
    Released,
    /// Another user released it before its data was here: the service no longer controls its start.
    Freed,
    /// The job was released, and is about to be held again, because its staged data disappeared.
    /// Recorded before the hold, as Slurm does not report the holder of a job.
    Holding,
    /// The job was released, and its user holds it; its staged data disappeared meanwhile, and is
    /// fetched again.
    Kept,
}

impl JobHold {
    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Held => 1,
            Self::Released => 2,
            Self::Freed => 3,
            Self::Holding => 4,
            Self::Kept => 5,
        }
    }

    /// Reads a hold; a later version's hold means that the service does not watch the job.
    fn read(number: u8) -> Self {
        match number {
            1 => Self::Held,
            2 => Self::Released,
            3 => Self::Freed,
            4 => Self::Holding,
            5 => Self::Kept,
            _ => Self::None,
        }
    }
}

/// Progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// Nothing has begun.
    Registered,
    /// Its input was requested.
    StagingIn,
    /// The job ended, well or not, and its output was requested at that moment.
    Ended {
        /// The job ended well.
        well: bool,
        /// Moment of its end.
        at: Timestamp,
    },
    /// The batch system no longer knows it.
    Gone,
}

/// Phases that a listing may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseName {
    /// Name of [`JobPhase::Registered`].
    Registered,
    /// Name of [`JobPhase::StagingIn`].
    StagingIn,
    /// Name of [`JobPhase::Ended`].
    Ended,
    /// Name of [`JobPhase::Gone`].
    Gone,
}

impl PhaseName {
    /// Phases of jobs that need their input.
    pub const BEFORE_THE_END: [Self; 2] = [Self::Registered, Self::StagingIn];
    /// Phases of jobs that their batch system knows.
    pub const NOT_GONE: [Self; 3] = [Self::Registered, Self::StagingIn, Self::Ended];

    fn numbers(self) -> &'static str {
        match self {
            Self::Registered => "0",
            Self::StagingIn => "1",
            Self::Ended => "2, 3",
            Self::Gone => "4",
        }
    }

    /// Returns the SQL condition for these phases.
    fn among(names: &[Self]) -> String {
        let numbers: Vec<&str> = names.iter().map(|name| name.numbers()).collect();
        format!("phase IN ({})", numbers.join(", "))
    }
}

impl JobPhase {
    /// Returns the name of the phase.
    #[must_use]
    pub fn name(self) -> PhaseName {
        match self {
            Self::Registered => PhaseName::Registered,
            Self::StagingIn => PhaseName::StagingIn,
            Self::Ended { .. } => PhaseName::Ended,
            Self::Gone => PhaseName::Gone,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Registered => 0,
            Self::StagingIn => 1,
            Self::Ended { well: true, .. } => 2,
            Self::Ended { well: false, .. } => 3,
            Self::Gone => 4,
        }
    }

    fn ended(self) -> Option<Timestamp> {
        match self {
            Self::Ended { at, .. } => Some(at),
            Self::Registered | Self::StagingIn | Self::Gone => None,
        }
    }

    /// Reads a phase; a later version's phase counts as over.
    fn read(number: u8, at: Option<Timestamp>) -> Self {
        match (number, at) {
            (0, _) => Self::Registered,
            (1, _) => Self::StagingIn,
            (2 | 3, Some(at)) => Self::Ended {
                well: number == 2,
                at,
            },
            _ => Self::Gone,
        }
    }
}

fn from_row(row: &Row) -> Result<JobRecord, Trouble> {
    let ended: Option<i64> = row.get("ended_micros")?;
    let ended = ended.map(|micros| Timestamp::from_micros(from_sql(micros)));
    Ok(JobRecord {
        scheduler: row.get("scheduler")?,
        job: row.get("job")?,
        round: row.get("round")?,
        uid: row.get("uid")?,
        gid: row.get("gid")?,
        script: row.get("script")?,
        phase: JobPhase::read(row.get("phase")?, ended),
        created: Timestamp::from_micros(from_sql(row.get("created_micros")?)),
        hold: JobHold::read(row.get("hold")?),
    })
}

/// Removes the oldest of the jobs that are gone, beyond those that are kept. Requests made for a
/// job carry its round in their name, so a job that reuses its id begins with a higher round.
fn forget_gone(database: &dyn Database) -> Result<(), Trouble> {
    let oldest = database.query(
        "SELECT scheduler, job, round FROM job WHERE phase = 4
         ORDER BY created_micros DESC, scheduler DESC, job DESC LIMIT ?1 OFFSET ?2",
        &params![FORGOTTEN_AT_ONCE, GONE_MAX],
    )?;
    for row in oldest {
        let (scheduler, job): (String, String) = (row.get(0)?, row.get(1)?);
        let round: u32 = row.get(2)?;
        database.execute(
            "INSERT INTO job_round (scheduler, next) VALUES (?1, ?2) ON CONFLICT (scheduler) DO UPDATE
             SET next = CASE WHEN job_round.next < ?2 THEN ?2 ELSE job_round.next END",
            &params![scheduler, round.saturating_add(1)],
        )?;
        database.execute(
            "DELETE FROM job WHERE scheduler = ?1 AND job = ?2",
            &params![scheduler, job],
        )?;
    }
    Ok(())
}

impl Journal {
    /// Keeps a job in its present state. Of jobs that are gone the oldest beyond 10,000 are
    /// removed.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_job(&mut self, job: &JobRecord) -> Result<(), JournalError> {
        let arguments = params![
            job.scheduler,
            job.job,
            job.round,
            job.uid,
            job.gid,
            job.script,
            job.phase.number(),
            job.phase.ended().map(|at| to_sql(at.as_micros())),
            to_sql(job.created.as_micros()),
            job.hold.number(),
        ];
        self.write(|database| {
            database.execute(
                "INSERT INTO job (scheduler, job, round, uid, gid, script, phase, ended_micros, created_micros,
                 hold)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (scheduler, job) DO UPDATE SET round = ?3, uid = ?4, gid = ?5, script = ?6,
                 phase = ?7, ended_micros = ?8, created_micros = ?9, hold = ?10",
                &arguments,
            )?;
            match job.phase {
                JobPhase::Gone => forget_gone(database),
                JobPhase::Registered | JobPhase::StagingIn | JobPhase::Ended { .. } => Ok(()),
            }
        })
    }

    /// Returns the round of an unknown job: higher than that of any removed one.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn first_round(&self, scheduler: &str) -> Result<u32, JournalError> {
        let read = || -> Result<u32, Trouble> {
            let row = self.database.query_row(
                "SELECT next FROM job_round WHERE scheduler = ?1",
                &params![scheduler],
            )?;
            row.map_or(Ok(0), |row| row.get(0))
        };
        read().map_err(self.failed("read"))
    }

    /// Returns a job.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn job(&self, scheduler: &str, job: &str) -> Result<Option<JobRecord>, JournalError> {
        let found = self.select_jobs(
            "SELECT * FROM job WHERE scheduler = ?1 AND job = ?2",
            &params![scheduler, job],
        )?;
        Ok(found.into_iter().next())
    }

    /// Returns jobs in these phases, of one batch system or of all, the newest first; `most` of
    /// them, or all without it.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn jobs(
        &self,
        scheduler: Option<&str>,
        phases: &[PhaseName],
        most: Option<u32>,
    ) -> Result<Vec<JobRecord>, JournalError> {
        let query = format!(
            "SELECT * FROM job WHERE {} AND (?1 = '' OR scheduler = ?1)
             ORDER BY created_micros DESC, scheduler DESC, job DESC LIMIT ?2",
            PhaseName::among(phases)
        );
        let most = most.map_or(i64::MAX, i64::from);
        self.select_jobs(&query, &params![scheduler.unwrap_or_default(), most])
    }

    /// Returns the number of jobs in these phases.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn count_jobs(&self, phases: &[PhaseName]) -> Result<u64, JournalError> {
        self.count(&PhaseName::among(phases), &[])
    }

    /// Returns the number of this user's jobs in these phases.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn count_jobs_of(&self, uid: u32, phases: &[PhaseName]) -> Result<u64, JournalError> {
        let which = format!("uid = ?1 AND {}", PhaseName::among(phases));
        self.count(&which, &params![uid])
    }

    fn count(&self, which: &str, arguments: &[Value]) -> Result<u64, JournalError> {
        let query = format!("SELECT COUNT(*) FROM job WHERE {which}");
        let read = || -> Result<i64, Trouble> {
            let row = self.database.query_row(&query, arguments)?;
            row.map_or(Ok(0), |row| row.get(0))
        };
        read().map(from_sql).map_err(self.failed("read"))
    }

    /// Returns `most` jobs that the service watches at their batch system and that are not gone,
    /// the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn jobs_watched(&self, most: u32) -> Result<Vec<JobRecord>, JournalError> {
        self.select_jobs(
            "SELECT * FROM job WHERE hold <> 0 AND phase <> 4 ORDER BY created_micros, scheduler, job LIMIT ?1",
            &params![most],
        )
    }

    fn select_jobs(
        &self,
        query: &str,
        arguments: &[Value],
    ) -> Result<Vec<JobRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self.database.query(query, arguments)?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_kept_as_it_was_last_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("journal")).unwrap();
        let mut job = JobRecord {
            scheduler: "slurm".into(),
            job: "12".into(),
            round: 0,
            uid: 1000,
            gid: 100,
            script: "#POSTHASTE stage_in source=a destination=/b\n".into(),
            phase: JobPhase::Registered,
            created: Timestamp::from_micros(7),
            hold: JobHold::None,
        };
        for hold in [
            JobHold::Held,
            JobHold::Released,
            JobHold::Freed,
            JobHold::Holding,
            JobHold::Kept,
            JobHold::None,
        ] {
            job.hold = hold;
            journal.keep_job(&job).unwrap();
            assert_eq!(journal.job("slurm", "12").unwrap().as_ref(), Some(&job));
            let watched = journal.jobs_watched(10).unwrap();
            assert_eq!(watched.len(), usize::from(hold != JobHold::None));
        }
        let at = Timestamp::from_micros(9);
        for phase in [
            JobPhase::Registered,
            JobPhase::StagingIn,
            JobPhase::Ended { well: true, at },
            JobPhase::Ended { well: false, at },
            JobPhase::Gone,
        ] {
            job.phase = phase;
            journal.keep_job(&job).unwrap();
            assert_eq!(journal.job("slurm", "12").unwrap().as_ref(), Some(&job));
        }
        assert_eq!(journal.job("pbs", "12").unwrap(), None);
        job.hold = JobHold::Held;
        journal.keep_job(&job).unwrap();
        assert_eq!(journal.jobs_watched(10).unwrap(), [], "it is gone");
    }
}
