//! Limits how many jobs may be known, in total and per user.

use posthaste_endpoint::{Error, ErrorKind};
use posthaste_journal::{JobPhase, JobRecord, Journal, JournalError, PhaseName};

use crate::http::Desk;

/// Limit of jobs that are not gone, all of which are searched whenever the queue moves. One more is
/// refused, because an overlooked job could lose its data. A centre of ten thousand nodes has this
/// many in its queue.
pub(super) const JOBS_MAX: u32 = 10_000;
/// Number of known jobs from which, on a service for all users, a user with more than
/// [`OF_ONE_MAX`] must wait, so that others find room. A user who submits only arrays with data for
/// each job has tens of thousands.
const SHARED_FROM: u32 = JOBS_MAX / 2;
const OF_ONE_MAX: u32 = JOBS_MAX / 8;
/// Keeps a newly registered job, or returns why there is no room for it.
///
/// # Errors
/// The journal's.
pub(super) fn keep_new(
    journal: &mut Journal,
    record: &JobRecord,
    crowd: &Crowd,
) -> Result<Option<String>, JournalError> {
    let known = journal.job(&record.scheduler, &record.job)?;
    if known.is_none_or(|known| known.phase == JobPhase::Gone)
        && let Some(why) = crowd.refuses(journal, record.uid)?
    {
        return Ok(Some(why));
    }
    journal.keep_job(record)?;
    Ok(None)
}

/// Limits of known jobs that are not gone.
pub(super) struct Crowd {
    /// Limit over all users.
    most: u32,
    /// Number of jobs from which one user is limited, and that limit; none if all jobs are one
    /// user's.
    shared: Option<(u32, u32)>,
}

impl Crowd {
    pub(super) fn of(desk: &Desk) -> Self {
        let is_for_all = desk.centre.store.actors.are_owners();
        Self {
            most: JOBS_MAX,
            shared: is_for_all.then_some((SHARED_FROM, OF_ONE_MAX)),
        }
    }

    /// Returns why there is no room for another job of a user.
    ///
    /// # Errors
    /// The journal's.
    pub(super) fn refuses(
        &self,
        journal: &Journal,
        uid: u32,
    ) -> Result<Option<String>, JournalError> {
        let (all, most) = (journal.count_jobs(&PhaseName::NOT_GONE)?, self.most);
        if all >= u64::from(most) {
            let why = "jobs are known that are not gone, the most there may be";
            return Ok(Some(format!("{most} {why}")));
        }
        let Some((_, most)) = self.shared.filter(|(from, _)| all >= u64::from(*from)) else {
            return Ok(None);
        };
        let own = journal.count_jobs_of(uid, &PhaseName::NOT_GONE)?;
        Ok((own >= u64::from(most)).then(|| {
            format!("{own} of the {all} jobs that are known and not gone are of this user, who may have {most} while there are so many")
        }))
    }
}

pub(super) fn too_many(subject: &str, why: &str) -> Error {
    Error::new(ErrorKind::Busy, "register", subject)
        .cause(why.to_owned())
        .hint("try again when some have gone; `DELETE /v1/jobs/SCHEDULER/JOB` forgets one that its batch system has forgotten")
}

#[cfg(test)]
mod tests {
    use posthaste_journal::JobHold;
    use posthaste_types::Timestamp;

    use super::*;

    fn job(job: &str, uid: u32, phase: JobPhase) -> JobRecord {
        JobRecord {
            scheduler: "slurm".into(),
            job: job.into(),
            round: 0,
            uid,
            gid: 100,
            script: String::new(),
            phase,
            created: Timestamp::from_secs(1),
            hold: JobHold::None,
        }
    }

    #[test]
    fn one_job_more_than_may_be_known_is_refused_and_none_that_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("journal")).unwrap();
        let crowd = Crowd {
            most: 2,
            shared: None,
        };
        let mut keeps = |name, phase| {
            let refused = keep_new(&mut journal, &job(name, 1000, phase), &crowd);
            refused.unwrap().is_none()
        };
        assert!(keeps("1", JobPhase::Registered));
        assert!(keeps("2", JobPhase::Registered));
        assert!(!keeps("3", JobPhase::Registered));
        assert!(keeps("2", JobPhase::StagingIn), "it is known");
        assert!(keeps("1", JobPhase::Gone));
        assert!(keeps("3", JobPhase::Registered));
        assert!(!keeps("1", JobPhase::Registered), "it went");
    }

    #[test]
    fn a_user_of_many_jobs_leaves_room_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join("journal")).unwrap();
        let crowd = Crowd {
            most: 8,
            shared: Some((4, 2)),
        };
        let mut keep = |name: u32, uid, phase| {
            let job = job(&name.to_string(), uid, phase);
            keep_new(&mut journal, &job, &crowd).unwrap()
        };
        for name in 0..4 {
            assert_eq!(keep(name, 1, JobPhase::Registered), None);
        }
        let why = "4 of the 4 jobs that are known and not gone are of this user, who may have 2 while there are so many";
        assert_eq!(keep(4, 1, JobPhase::Registered).as_deref(), Some(why));
        assert_eq!(keep(0, 1, JobPhase::StagingIn), None, "it is known");
        for name in 5..7 {
            assert_eq!(keep(name, 2, JobPhase::Registered), None);
        }
        assert!(keep(7, 2, JobPhase::Registered).is_some());
        assert_eq!(keep(7, 3, JobPhase::Registered), None);
        assert_eq!(keep(8, 4, JobPhase::Registered), None);
        let full = keep(9, 5, JobPhase::Registered).unwrap();
        assert!(full.starts_with("8 jobs are known"), "{full}");
        for name in 0..4 {
            keep(name, 1, JobPhase::Gone);
        }
        assert_eq!(keep(4, 1, JobPhase::Registered), None, "others have gone");
    }
}
