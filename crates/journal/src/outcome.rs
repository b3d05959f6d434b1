//! Outcomes of queue forecasts, kept so that a restarted service knows them.

use std::time::Duration;

use posthaste_types::Timestamp;

use crate::{
    Journal, JournalError, Trouble,
    database::{Row, params},
    from_sql, to_sql,
};

/// Most outcomes that are kept, the newest: some weeks of a large centre, a few MiB.
const OUTCOMES_MAX: u32 = 50_000;

/// A forecast whose job has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRecord {
    /// Name of the forecaster.
    pub forecaster: String,
    /// Processors that the job requested.
    pub procs: u32,
    /// Time that the job requested.
    pub walltime: Duration,
    /// Submission of the job.
    pub submitted: Timestamp,
    /// Time of the forecast.
    pub said: Timestamp,
    /// Forecast starts: p10, p50 and p90.
    pub starts: [Timestamp; 3],
    /// Start of the job.
    pub started: Timestamp,
}

fn from_row(row: &Row) -> Result<OutcomeRecord, Trouble> {
    let moment = |column: &str| -> Result<Timestamp, Trouble> {
        Ok(Timestamp::from_micros(from_sql(row.get(column)?)))
    };
    Ok(OutcomeRecord {
        forecaster: row.get("forecaster")?,
        procs: row.get("procs")?,
        walltime: Duration::from_secs(from_sql(row.get("walltime_s")?)),
        submitted: moment("submitted_micros")?,
        said: moment("said_micros")?,
        starts: [
            moment("p10_micros")?,
            moment("p50_micros")?,
            moment("p90_micros")?,
        ],
        started: moment("started_micros")?,
    })
}

impl Journal {
    /// Keeps outcomes, and removes the oldest beyond 50,000, in one transaction.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_outcomes(&mut self, outcomes: &[OutcomeRecord]) -> Result<(), JournalError> {
        self.write(|database| {
            // Inserted one after the other: the order of their numbers is that of their removal.
            for one in outcomes {
                let [p10, p50, p90] = one.starts.map(|at| to_sql(at.as_micros()));
                database.execute(
                    "INSERT INTO outcome (forecaster, procs, walltime_s, submitted_micros, said_micros, p10_micros,
                     p50_micros, p90_micros, started_micros) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    &params![
                        one.forecaster,
                        one.procs,
                        to_sql(one.walltime.as_secs()),
                        to_sql(one.submitted.as_micros()),
                        to_sql(one.said.as_micros()),
                        p10,
                        p50,
                        p90,
                        to_sql(one.started.as_micros()),
                    ],
                )?;
            }
            database.execute(
                "DELETE FROM outcome WHERE seq <= (SELECT MAX(seq) FROM outcome) - ?1",
                &params![OUTCOMES_MAX],
            )?;
            Ok(())
        })
    }

    /// Returns the outcomes, the oldest first.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn outcomes(&self) -> Result<Vec<OutcomeRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self
                .database
                .query("SELECT * FROM outcome ORDER BY seq", &[])?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back_in_order_and_the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        let at = Timestamp::from_secs;
        let outcome = |walltime_s| OutcomeRecord {
            forecaster: "simulated".into(),
            procs: 4,
            walltime: Duration::from_secs(walltime_s),
            submitted: at(1),
            said: at(2),
            starts: [at(3), at(4), at(5)],
            started: at(6),
        };
        journal.keep_outcomes(&[outcome(60), outcome(61)]).unwrap();
        journal.keep_outcomes(&[outcome(62)]).unwrap();
        drop(journal);
        let mut journal = Journal::open(&path).unwrap();
        let all = [outcome(60), outcome(61), outcome(62)];
        assert_eq!(journal.outcomes().unwrap(), all);
        // Simulates 49,997 others that came and went: the next one is the 50,001st.
        let others = "UPDATE sqlite_sequence SET seq = seq + 49997 WHERE name = 'outcome'";
        journal.database.run(others).unwrap();
        journal.keep_outcomes(&[outcome(63)]).unwrap();
        let newest = [outcome(61), outcome(62), outcome(63)];
        assert_eq!(journal.outcomes().unwrap(), newest);
    }
}
