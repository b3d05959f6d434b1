//! Jobs of batch systems. Requests of their scripts become ordinary requests, named after the job
//! and the directive. So data that is requested twice, after a crash of the plug-in or of the
//! service, moves once.

mod crowd;
pub(crate) mod forget;
pub(crate) mod held;
mod lent;
pub(crate) mod owner;
pub(crate) mod places;
pub(crate) mod room;
mod scontrol;
pub(crate) mod stage_in;
mod stage_out;
pub(crate) mod timing;
mod watch;

use std::{sync::Arc, time::Duration};

use jiff::tz::TimeZone;
use posthaste_api as api;
use posthaste_batch::script::{self, Deadline, Wanted};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{JobHold, JobPhase, JobRecord, PhaseName, RequestRecord};
use posthaste_types::Timestamp;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    http::{Answer, Desk},
    render,
};
use crowd::{Crowd, JOBS_MAX, keep_new, too_many};

/// Jobs in one listing, by default and at most: each costs some look-ups in the journal.
const LISTED: u32 = 100;
const LISTED_MAX: u32 = 1000;
/// Batch system whose own commands report its jobs' states.
const SLURM: &str = "slurm";
/// Longest name of a batch system or id of a job, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Attends to all jobs, including those that are gone, until the service ends.
pub(crate) fn look_after_all(
    running: &mut JoinSet<Result<()>>,
    desk: &Desk,
    forgotten: mpsc::Receiver<JobRecord>,
) {
    running.spawn(forget::give_up_all(Arc::clone(&desk.centre), forgotten));
    running.spawn(forget::forget_old(desk.clone()));
    running.spawn(held::look_after_all(desk.clone()));
    running.spawn(watch::look_on(desk.clone()));
}

/// Returns the job of that name.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it was never registered, and the journal's.
pub(crate) fn find(desk: &Desk, scheduler: &str, job: &str) -> Result<JobRecord> {
    let found = desk
        .centre
        .store
        .journal(|journal| journal.job(scheduler, job))?;
    found.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "find",
            format!("{scheduler} job {job}"),
        )
        .cause("nobody told of it")
        .hint("`PUT /v1/jobs/SCHEDULER/JOB` does")
    })
}

/// Checks a job that is to be submitted held, before the job exists.
///
/// # Errors
/// Errors of [`register`] that don't depend on its name.
pub(crate) fn check(desk: &Desk, new: &api::NewJob) -> Answer<()> {
    owner::check_user(&desk.centre, new.uid)?;
    owner::check_held(&desk.centre)?;
    let wanted = wanted("the job", &new.script)?;
    places::check_lent(desk, new.uid, &wanted)?;
    places::check(desk, new.uid, &wanted)?;
    let crowd = Crowd::of(desk);
    let store = &desk.centre.store;
    match store.journal(|journal| crowd.refuses(journal, new.uid))? {
        Some(why) => Err(too_many("the job", &why).into()),
        None => Ok(()),
    }
}

/// Registers a job. A known job stays as it is. A forgotten job begins anew, and reuses what was
/// staged in for it if that is still whole.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid name or directive, [`ErrorKind::NotFound`] for a lent
/// depot that is not registered, [`ErrorKind::PermissionDenied`] for another user's job and, for a
/// job submitted held, for places that are not on scratch, [`ErrorKind::Conflict`] if a job of that
/// name with another script is being staged, [`ErrorKind::Busy`] at the limit of known jobs, and
/// the journal's.
pub(crate) fn register(
    desk: &Desk,
    scheduler: &str,
    job: &str,
    new: api::NewJob,
) -> Answer<api::Job> {
    let subject = || format!("{scheduler} job {job}");
    check_name(scheduler, job, new.held)?;
    owner::check_user(&desk.centre, new.uid)?;
    let wanted = wanted(&subject(), &new.script)?;
    places::check_lent(desk, new.uid, &wanted)?;
    if new.held {
        owner::check_held(&desk.centre)?;
        places::check(desk, new.uid, &wanted)?;
    }
    let (known, first_round) = desk.centre.store.journal(|journal| {
        let known = journal.job(scheduler, job)?;
        Ok((known, journal.first_round(scheduler)?))
    })?;
    let fresh = |round| JobRecord {
        scheduler: scheduler.to_owned(),
        job: job.to_owned(),
        round,
        uid: new.uid,
        gid: new.gid,
        script: new.script.clone(),
        phase: JobPhase::Registered,
        created: desk.centre.clock.now(),
        hold: match &known {
            _ if new.held => JobHold::Held,
            // A batch system that holds jobs for their data releases none that the service attends
            // to.
            Some(known) if known.phase == JobPhase::Registered => known.hold,
            Some(_) | None => JobHold::None,
        },
    };
    let is_same = |known: &JobRecord| known.script == new.script && known.uid == new.uid;
    let record = match &known {
        None => fresh(first_round),
        Some(known) => match known.phase {
            JobPhase::Gone => fresh(known.round + 1),
            JobPhase::Registered => fresh(known.round),
            JobPhase::StagingIn | JobPhase::Ended { .. } if is_same(known) => {
                return Ok(show(desk, known)?);
            }
            JobPhase::StagingIn | JobPhase::Ended { .. } => {
                return Err(Error::new(ErrorKind::Conflict, "register", subject())
                    .cause("a job of that name with another script is being staged")
                    .hint("`DELETE /v1/jobs/SCHEDULER/JOB` forgets that one")
                    .into());
            }
        },
    };
    let store = &desk.centre.store;
    let crowd = Crowd::of(desk);
    if let Some(why) = store.journal(|journal| keep_new(journal, &record, &crowd))? {
        return Err(too_many(&subject(), &why).into());
    }
    desk.look_at_queue();
    Ok(show(desk, &record)?)
}

/// Checks the name of a job.
fn check_name(scheduler: &str, job: &str, is_held: bool) -> Result<()> {
    let name_ok = |name: &str| {
        let mut letters = name.bytes();
        !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"._-[]".contains(&byte))
    };
    let is_released = scheduler == SLURM && job.bytes().all(|byte| byte.is_ascii_digit());
    let why = if !name_ok(scheduler) || !name_ok(job) {
        "letters, digits and ._-[] make a name, 64 at most"
    } else if is_held && !is_released {
        "only jobs of Slurm are released, by their number"
    } else {
        return Ok(());
    };
    let subject = format!("{scheduler} job {job}").escape_debug().to_string();
    Err(Error::new(ErrorKind::Invalid, "register", subject).cause(why))
}

/// Requests the inputs of a job, and returns their progress.
///
/// # Errors
/// Refusals, the journal's errors, and those of handing files to their owner.
pub(crate) fn stage_in(desk: &Desk, mut record: JobRecord) -> Answer<api::Job> {
    if record.phase == JobPhase::Gone {
        return Err(over(&record, "stage in").into());
    }
    if record.phase == JobPhase::Registered {
        record.phase = JobPhase::StagingIn;
        desk.centre
            .store
            .journal(|journal| journal.keep_job(&record))?;
    }
    stage_in::ask(desk, &record)?;
    Ok(show(desk, &record)?)
}

/// Requests the stage-outs of a job, and returns their progress.
///
/// # Errors
/// Refusals, and the journal's errors.
pub(crate) fn ended(desk: &Desk, mut record: JobRecord, end: api::JobEnd) -> Answer<api::Job> {
    match record.phase {
        JobPhase::Gone => return Err(over(&record, "stage out").into()),
        JobPhase::Ended { .. } => {}
        JobPhase::Registered | JobPhase::StagingIn => {
            let (well, at) = (end.well, desk.centre.clock.now());
            record.phase = JobPhase::Ended { well, at };
            desk.centre
                .store
                .journal(|journal| journal.keep_job(&record))?;
            desk.look_at_queue();
        }
    }
    stage_out::ask(desk, &record)?;
    Ok(show(desk, &record)?)
}

/// Forgets a job. Its stage-outs continue.
///
/// # Errors
/// The journal's.
pub(crate) fn remove(desk: &Desk, mut record: JobRecord) -> Result<()> {
    let gives_up = record.phase == JobPhase::StagingIn;
    record.phase = JobPhase::Gone;
    desk.centre
        .store
        .journal(|journal| journal.keep_job(&record))?;
    desk.look_at_queue();
    if gives_up {
        forget::give_up_later(desk, record);
    }
    Ok(())
}

/// Lists jobs of one batch system or of all, in one phase or in all but `gone`, newest first.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown phase and for more than 1,000 jobs, and the journal's.
pub(crate) fn list(
    desk: &Desk,
    scheduler: Option<&str>,
    phase: Option<&str>,
    limit: Option<u32>,
) -> Result<Vec<api::Job>> {
    let one;
    let phases: &[PhaseName] = match phase {
        None => &PhaseName::NOT_GONE,
        Some(text) => {
            one = [read_phase(text)?];
            &one
        }
    };
    let limit = limit.unwrap_or(LISTED);
    if limit > LISTED_MAX {
        return Err(
            Error::new(ErrorKind::Invalid, "list", format!("{limit} jobs"))
                .cause(format!("{LISTED_MAX} are the most at once"))
                .hint("`GET /v1/jobs/names` names all that are not gone"),
        );
    }
    let records = desk
        .centre
        .store
        .journal(|journal| journal.jobs(scheduler, phases, Some(limit)))?;
    records.iter().map(|record| show(desk, record)).collect()
}

/// Lists all jobs that are not gone, of one batch system or of all, newest first, without their
/// requests.
///
/// # Errors
/// The journal's.
pub(crate) fn names(desk: &Desk, scheduler: Option<&str>) -> Result<Vec<api::JobName>> {
    let records = desk
        .centre
        .store
        .journal(|journal| journal.jobs(scheduler, &PhaseName::NOT_GONE, None))?;
    let named = records.into_iter().map(|record| api::JobName {
        phase: phase(record.phase.name()),
        scheduler: record.scheduler,
        job: record.job,
    });
    Ok(named.collect())
}

const fn phase(name: PhaseName) -> api::JobPhase {
    match name {
        PhaseName::Registered => api::JobPhase::Registered,
        PhaseName::StagingIn => api::JobPhase::StagingIn,
        PhaseName::Ended => api::JobPhase::Ended,
        PhaseName::Gone => api::JobPhase::Gone,
    }
}

fn read_phase(text: &str) -> Result<PhaseName> {
    let all = [
        PhaseName::Registered,
        PhaseName::StagingIn,
        PhaseName::Ended,
        PhaseName::Gone,
    ];
    let found = all.into_iter().find(|name| phase(*name).as_str() == text);
    found.ok_or_else(|| {
        let subject = format!("jobs that are `{text}`").escape_debug().to_string();
        Error::new(ErrorKind::Invalid, "list", subject)
            .cause("there is no such phase")
            .hint("write registered, staging-in, ended or gone")
    })
}

/// Returns the view of a job with its requests.
///
/// # Errors
/// The journal's.
pub(crate) fn show(desk: &Desk, record: &JobRecord) -> Result<api::Job> {
    let wanted = read_again(record);
    let stage_ins = stage_in::show(desk, record, &wanted)?;
    let stage_outs = stage_out::show(desk, record, &wanted)?;
    let needed = || stage_ins.iter().filter(|one| !one.optional);
    let ready = needed().all(|one| one.state == api::RequestState::Arrived)
        && stage_ins.iter().all(|one| stage_in::is_settled(one.state));
    let trouble = needed()
        .chain(&stage_outs)
        .find(|one| is_bad(one.state))
        .map(|one| {
            let why = one.reason.as_deref().unwrap_or(one.state.as_str());
            format!(
                "line {}: {} → {}: {why}",
                one.line, one.source, one.destination
            )
        });
    Ok(api::Job {
        scheduler: record.scheduler.clone(),
        job: record.job.clone(),
        uid: record.uid,
        phase: phase(record.phase.name()),
        hold: match record.hold {
            JobHold::None => api::JobHold::None,
            JobHold::Held => api::JobHold::Held,
            JobHold::Released | JobHold::Holding => api::JobHold::Released,
            JobHold::Freed => api::JobHold::Freed,
            JobHold::Kept => api::JobHold::Kept,
        },
        ready,
        safe: stage_outs.iter().all(|one| stage_out::is_safe(one.state)),
        trouble,
        stage_ins,
        stage_outs,
    })
}

/// Returns whether a request in that state will never serve its purpose.
const fn is_bad(state: api::RequestState) -> bool {
    use api::RequestState::{Cancelled, Failed, Refused};

    matches!(state, Refused | Failed | Cancelled)
}

/// Returns whether a request stages out what a job left.
pub(crate) fn is_of_job(record: &RequestRecord) -> bool {
    let submission = record.submission.as_deref();
    record.stage_in.is_none()
        && submission.is_some_and(|name| name.starts_with("job-") && name.contains("-out-"))
}

/// Returns one item of a script, with the request that moves it.
fn moved(
    desk: &Desk,
    line: usize,
    (source, destination): (&str, &str),
    request: Option<&RequestRecord>,
) -> api::Moved {
    let shown = request.map(|record| render::request(&desk.centre, &desk.centre.mind(), record));
    api::Moved {
        line,
        source: source.to_owned(),
        destination: destination.to_owned(),
        request: shown.as_ref().map(|shown| shown.id.clone()),
        state: shown
            .as_ref()
            .map_or(api::RequestState::Waiting, |shown| shown.state),
        reason: shown.and_then(|shown| shown.reason),
        optional: false,
    }
}

fn over(record: &JobRecord, what: &'static str) -> Error {
    let subject = format!("{} job {}", record.scheduler, record.job);
    Error::new(ErrorKind::Conflict, what, subject).cause("the batch system said that it is gone")
}

/// Parses the directives of a script.
///
/// # Errors
/// [`ErrorKind::Invalid`] with all its mistakes.
fn wanted(subject: &str, script: &str) -> Result<Wanted> {
    script::read(script).map_err(|complaints| {
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        Error::new(ErrorKind::Invalid, "register", subject).cause(lines.join("; "))
    })
}

/// Parses the directives of a script that was checked before it was recorded.
fn read_again(record: &JobRecord) -> Wanted {
    script::read(&record.script).unwrap_or_default()
}

/// Returns a deadline as the API writes it; its span begins at `from`.
fn deadline(deadline: Option<Deadline>, from: Timestamp, without: Duration) -> String {
    let fallback = from + without;
    let Some(deadline) = deadline else {
        return render::moment(fallback);
    };
    let from = i64::try_from(from.as_micros()).ok();
    let from = from.and_then(|from| jiff::Timestamp::from_microsecond(from).ok());
    let moment = from.and_then(|from| deadline.moment(from, &TimeZone::system()));
    moment.map_or_else(|| render::moment(fallback), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_read_as_it_is_shown() {
        for phase in PhaseName::NOT_GONE.into_iter().chain([PhaseName::Gone]) {
            assert_eq!(read_phase(super::phase(phase).as_str()).unwrap(), phase);
        }
        assert!(
            read_phase("over")
                .unwrap_err()
                .to_string()
                .contains("`over`")
        );
    }
}
