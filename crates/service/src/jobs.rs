//! The jobs of batch systems. What their scripts ask for becomes ordinary requests, named after the job and the directive:
//! asked for twice, after a crash of whoever asks or of the service itself, it is moved once.

pub(crate) mod held;
mod lent;
pub(crate) mod owner;
mod places;
pub(crate) mod room;
mod scontrol;
pub(crate) mod stage_in;
mod stage_out;
pub(crate) mod timing;

use std::{sync::Arc, time::Duration};

use jiff::tz::TimeZone;
use posthaste_api as api;
use posthaste_batch::script::{self, Deadline, Wanted};
use posthaste_core::contract::Input;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{JobHold, JobPhase, JobRecord, RequestRecord};
use posthaste_types::Timestamp;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    driver::Centre,
    http::{Answer, Desk},
    render,
};

/// Slurm forgets the jobs that are staging in whenever its controller starts again, and tells of them anew a
/// moment later: what is on its way to them goes on meanwhile.
const GRACE: Duration = Duration::from_secs(30);
/// Jobs that one listing gives back, and that are looked at when the service starts.
const JOBS_MAX: u32 = 10_000;
/// Forgotten jobs whose data may still be on its way.
pub(crate) const FORGOTTEN_MAX: usize = 10_000;
/// Bytes of the name of a batch system or of a job's id.
const NAME_BYTES_MAX: usize = 64;

/// The job of that name.
///
/// # Errors
/// [`ErrorKind::NotFound`] when nobody told of it, and the journal's.
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

/// Sees what would be refused of a job that is submitted held, before there is one.
///
/// # Errors
/// Those of [`register`] that don't depend on its name.
pub(crate) fn check(desk: &Desk, new: &api::NewJob) -> Answer<()> {
    owner::check_user(new.uid)?;
    let wanted = wanted("the job", &new.script)?;
    places::check_lent(desk, &wanted)?;
    Ok(places::check(desk, &wanted)?)
}

/// Writes a job down. One that is known stays as it is; one that was forgotten begins anew, and finds what was
/// brought for it before where that is still whole.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a name or a directive that makes no sense, [`ErrorKind::NotFound`] for a depot that is lent and
/// not in the books, [`ErrorKind::PermissionDenied`] for another's job and, of one that was submitted held, for places that
/// are not on scratch, [`ErrorKind::Conflict`] when a job of that name with another script is being staged, and the
/// journal's.
pub(crate) fn register(
    desk: &Desk,
    scheduler: &str,
    job: &str,
    new: api::NewJob,
) -> Answer<api::Job> {
    let subject = || format!("{scheduler} job {job}");
    check_name(scheduler, job, new.held)?;
    owner::check_user(new.uid)?;
    let wanted = wanted(&subject(), &new.script)?;
    places::check_lent(desk, &wanted)?;
    if new.held {
        places::check(desk, &wanted)?;
    }
    let known = desk
        .centre
        .store
        .journal(|journal| journal.job(scheduler, job))?;
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
            // A batch system that keeps jobs for their data too lets go of none that we look after.
            Some(known) if known.phase == JobPhase::Registered => known.hold,
            Some(_) | None => JobHold::None,
        },
    };
    let is_same = |known: &JobRecord| known.script == new.script && known.uid == new.uid;
    let record = match &known {
        None => fresh(0),
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
    desk.centre
        .store
        .journal(|journal| journal.keep_job(&record))?;
    desk.look_at_queue();
    Ok(show(desk, &record)?)
}

/// Sees that a job can have that name.
fn check_name(scheduler: &str, job: &str, is_held: bool) -> Result<()> {
    let name_ok = |name: &str| {
        let mut letters = name.bytes();
        !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"._-[]".contains(&byte))
    };
    let is_released = scheduler == "slurm" && job.bytes().all(|byte| byte.is_ascii_digit());
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

/// Asks for what a job reads, and says how far it is.
///
/// # Errors
/// Those of what is refused, of the journal and of handing files to their owner.
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

/// Asks for what a job leaves, and says how far it is.
///
/// # Errors
/// Those of what is refused, and the journal's.
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

/// Forgets a job. What leaves scratch for it goes on.
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
        give_up_later(desk, record);
    }
    Ok(())
}

/// Takes up what was left when the service ended.
///
/// # Errors
/// The journal's.
pub(crate) fn resume(desk: &Desk) -> Result<()> {
    let jobs = desk
        .centre
        .store
        .journal(|journal| journal.jobs(JOBS_MAX))?;
    for record in jobs {
        if record.phase == JobPhase::Gone {
            give_up_later(desk, record);
        }
    }
    Ok(())
}

/// Where as many are forgotten at once as wait already, what is on its way to one more arrives for nobody.
fn give_up_later(desk: &Desk, record: JobRecord) {
    let _ = desk.forgotten.try_send(record);
}

/// Gives up what is on its way to jobs that were forgotten and are not told of again soon.
///
/// # Errors
/// None: what can't be given up arrives for nobody.
pub(crate) async fn give_up_all(
    centre: Arc<Centre>,
    mut forgotten: mpsc::Receiver<JobRecord>,
) -> Result<()> {
    let mut waiting = JoinSet::new();
    while let Some(record) = forgotten.recv().await {
        while waiting.try_join_next().is_some() {}
        let centre = Arc::clone(&centre);
        waiting.spawn(async move {
            tokio::time::sleep(GRACE).await;
            if let Err(error) = give_up(&centre, &record).await {
                eprintln!(
                    "posthaste: {} job {}: {error}",
                    record.scheduler, record.job
                );
            }
        });
    }
    Ok(())
}

async fn give_up(centre: &Centre, record: &JobRecord) -> Result<()> {
    let now = centre
        .store
        .journal(|journal| journal.job(&record.scheduler, &record.job))?;
    if now.is_none_or(|now| now.phase != JobPhase::Gone) {
        return Ok(());
    }
    for one in &read_again(record).stage_ins {
        let Some(request) = stage_in::newest(centre, one)? else {
            continue;
        };
        let is_live = centre
            .mind()
            .arrival(request.id)
            .is_some_and(|view| view.state.is_live());
        let is_for_nobody = is_live
            && stage_in::is_of_job(&request)
            && !stage_in::is_wanted_elsewhere(centre, record, one)?;
        if is_for_nobody {
            let request = request.id;
            centre.tell(Input::RequestCancelled { request }).await?;
        }
    }
    Ok(())
}

/// Every job, newest first.
///
/// # Errors
/// The journal's.
pub(crate) fn list(desk: &Desk) -> Result<Vec<api::Job>> {
    let records = desk
        .centre
        .store
        .journal(|journal| journal.jobs(JOBS_MAX))?;
    records.iter().map(|record| show(desk, record)).collect()
}

/// A job and what is moved for it.
///
/// # Errors
/// The journal's.
pub(crate) fn show(desk: &Desk, record: &JobRecord) -> Result<api::Job> {
    let wanted = read_again(record);
    let stage_ins = stage_in::show(desk, record, &wanted)?;
    let stage_outs = stage_out::show(desk, record, &wanted)?;
    let needed = || stage_ins.iter().filter(|one| !one.optional);
    let ready = needed().all(|one| one.state == "arrived")
        && stage_ins.iter().all(|one| stage_in::is_settled(&one.state));
    let trouble = needed()
        .chain(&stage_outs)
        .find(|one| is_bad(&one.state))
        .map(|one| {
            let why = one.reason.as_deref().unwrap_or(&one.state);
            format!(
                "line {}: {} → {}: {why}",
                one.line, one.source, one.destination
            )
        });
    Ok(api::Job {
        scheduler: record.scheduler.clone(),
        job: record.job.clone(),
        uid: record.uid,
        phase: match record.phase {
            JobPhase::Registered => "registered",
            JobPhase::StagingIn => "staging-in",
            JobPhase::Ended { .. } => "ended",
            JobPhase::Gone => "gone",
        }
        .to_owned(),
        hold: match record.hold {
            JobHold::None => "none",
            JobHold::Held => "held",
            JobHold::Released => "released",
            JobHold::Freed => "freed",
        }
        .to_owned(),
        ready,
        safe: stage_outs.iter().all(|one| stage_out::is_safe(&one.state)),
        trouble,
        stage_ins,
        stage_outs,
    })
}

/// Whether a request of that state will never do what it was for.
fn is_bad(state: &str) -> bool {
    matches!(state, "refused" | "failed" | "cancelled")
}

/// One thing of a script, with the request that moves it.
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
            .map_or_else(|| "waiting".to_owned(), |shown| shown.state.clone()),
        reason: shown.and_then(|shown| shown.reason),
        optional: false,
    }
}

fn over(record: &JobRecord, what: &'static str) -> Error {
    let subject = format!("{} job {}", record.scheduler, record.job);
    Error::new(ErrorKind::Conflict, what, subject).cause("the batch system said that it is gone")
}

/// What a script asks for.
///
/// # Errors
/// [`ErrorKind::Invalid`] with all that is wrong in it.
fn wanted(subject: &str, script: &str) -> Result<Wanted> {
    script::read(script).map_err(|complaints| {
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        Error::new(ErrorKind::Invalid, "register", subject).cause(lines.join("; "))
    })
}

/// What a script asks for that was read before it was written down.
fn read_again(record: &JobRecord) -> Wanted {
    script::read(&record.script).unwrap_or_default()
}

/// The moment of a deadline whose span begins at `from`, as the API writes it.
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
