//! Inputs of jobs: staged in whole before the jobs start. Jobs that want the same data at the same
//! place share one stage-in.

use std::{
    path::Path,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_api as api;
use posthaste_batch::script::{StageIn, Wanted};
use posthaste_core::contract::ArrivalState;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{JobPhase, JobRecord, PhaseName, RequestRecord, Scan};

use super::{deadline, is_bad, moved, owner, read_again, timing};
use crate::{
    credentials::unclaimed,
    driver::Centre,
    http::{Answer, Desk},
    inbound::{
        landed::{self, Landed},
        submit,
    },
    render,
};

/// Default deadline of a stage-in, for which the batch system waits.
pub(super) const WANTED_WITHIN: Duration = Duration::from_secs(3600);
/// A just-in-time stage-in may start this long before its deadline: the API requires some time
/// between the two.
const WELCOME_BEFORE: Duration = Duration::from_secs(1);
/// Stage-ins to one place that are searched, newest first: more sources alternate there only by
/// mistake.
const LOOKED_THROUGH_MAX: u32 = 16;
/// Prefix of the names of jobs' requests.
const NAME_BEGINS: &str = "job-";

/// Returns the name of the request for the directive of that number.
fn name(record: &JobRecord, number: usize) -> String {
    let JobRecord {
        scheduler,
        job,
        round,
        ..
    } = record;
    format!("{NAME_BEGINS}{scheduler}-{job}.{round}-in-{number}")
}

/// Returns whether a job made this request.
pub(crate) fn is_of_job(request: &RequestRecord) -> bool {
    let name = request.submission.as_deref();
    name.is_some_and(|name| name.starts_with(NAME_BEGINS))
}

/// Returns the newest request that stages in what a job's directive names, by any caller. If files
/// belong to each request's owner, only requests of the job's user count; none if that user is no
/// longer known.
///
/// # Errors
/// The journal's.
pub(super) fn newest(
    centre: &Centre,
    record: &JobRecord,
    one: &StageIn,
) -> Result<Option<RequestRecord>> {
    let Ok(behalf) = owner::behalf(centre, record.uid) else {
        return Ok(None);
    };
    let owners_count = centre.store.actors.are_owners();
    let destination = owner::without_links(Path::new(&one.destination));
    let Some(destination) = destination.to_str() else {
        return Ok(None);
    };
    let found = centre
        .store
        .journal(|journal| journal.stage_ins_to(destination, LOOKED_THROUGH_MAX))?;
    let is_it = |request: &RequestRecord| {
        let wanted = request.stage_in.as_ref();
        let is_same = |source: &String| unclaimed(source) == unclaimed(&one.source);
        wanted.is_some_and(|wanted| wanted.sources.len() == 1 && is_same(&wanted.sources[0]))
            && (!owners_count || request.wishes.owner == behalf.owner())
    };
    Ok(found.into_iter().find(is_it))
}

/// Returns the request that stages in what a job's directive names. A failed request counts only if
/// it was made since the job was registered: a job that tries again gets a new one.
///
/// # Errors
/// The journal's.
pub(super) fn known(
    centre: &Centre,
    record: &JobRecord,
    one: &StageIn,
) -> Result<Option<RequestRecord>> {
    let is_of_use = |found: &RequestRecord| {
        let ended = found.ended.as_deref().and_then(api::RequestState::named);
        let went_wrong =
            ended.is_some_and(is_bad) || matches!(found.scan, Some(Scan::Failed { .. }));
        found.created >= record.created || !went_wrong
    };
    Ok(newest(centre, record, one)?.filter(is_of_use))
}

/// Returns whether data that arrived before the job was registered has gone.
fn is_gone(centre: &Centre, record: &JobRecord, found: &RequestRecord) -> Result<bool> {
    let is_from_before = found.created < record.created;
    Ok(is_from_before && has_arrived(centre, found) && !is_whole(centre, found)?)
}

/// Requests everything not yet requested, and checks that arrived data is still there.
pub(super) fn ask(desk: &Desk, record: &JobRecord) -> Answer<()> {
    let mut here = Vec::new();
    let wanted = read_again(record).stage_ins;
    for one in wanted.iter().zip(1..) {
        // Two jobs that want the same data must not both request it.
        let asking = asking(desk);
        let asked = match known(&desk.centre, record, one.0)? {
            Some(request) if !is_gone(&desk.centre, record, &request)? => {
                if has_arrived(&desk.centre, &request) {
                    here.push((request, one.0.is_optional));
                }
                Ok(())
            }
            Some(_) | None => ask_one(desk, record, one),
        };
        drop(asking);
        if !one.0.is_optional {
            asked?;
        }
    }
    // No job starts while data is under way.
    if here.len() == wanted.len() {
        for (request, is_optional) in here {
            if !is_optional {
                check_whole(&desk.centre, &request)?;
            }
        }
    }
    Ok(())
}

/// Held during a request for inputs: two jobs that want the same data must not both request it.
pub(super) fn asking(desk: &Desk) -> MutexGuard<'_, ()> {
    tokio::task::block_in_place(|| desk.asking.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn has_arrived(centre: &Centre, request: &RequestRecord) -> bool {
    let view = centre.mind().arrival(request.id);
    view.map_or(request.ended.as_deref() == Some("arrived"), |view| {
        view.state == ArrivalState::Arrived
    })
}

fn ask_one(desk: &Desk, record: &JobRecord, (one, number): (&StageIn, usize)) -> Answer<()> {
    let behalf = owner::behalf(&desk.centre, record.uid)?;
    let destination = behalf.run(|| owner::on_scratch(desk, Path::new(&one.destination)))?;
    let mut source = one.source.clone();
    owner::reads(desk, &behalf, &mut source)?;
    make_way(desk, record, one)?;
    let now = desk.centre.clock.now();
    let just_in_time = timing::wanted_at(desk, record, one, now);
    let permit = desk.reserve_scan(owner::of_requests(&behalf).as_ref(), &destination)?;
    let (request, fresh) = submit::accept(
        &desk.centre,
        &api::NewStageIn {
            owner: owner::of_requests(&behalf),
            project: None,
            sources: vec![source],
            to: destination,
            deadline: just_in_time.map_or_else(
                || deadline(one.deadline, now, WANTED_WITHIN),
                render::moment,
            ),
            // Latest start that its deadline allows.
            not_before: just_in_time.map(|at| render::moment(at - WELCOME_BEFORE)),
            via: one.via.clone(),
            // The job waits for it anyway.
            best_effort: true,
            submission_id: Some(name(record, number)),
            ..api::NewStageIn::default()
        },
    )?;
    if fresh {
        desk.centre.traced.begin(request.id);
        permit.send(request.id);
        desk.look_at_queue();
    }
    Ok(())
}

/// Removes what a purge left of an earlier stage-in, unless another job may be reading it: it is
/// staged in again, whole.
fn make_way(desk: &Desk, record: &JobRecord, one: &StageIn) -> Result<()> {
    let Some(before) = newest(&desk.centre, record, one)? else {
        return Ok(());
    };
    if !is_of_job(&before) || !has_arrived(&desk.centre, &before) {
        return Ok(());
    }
    let store = &desk.centre.store;
    tokio::task::block_in_place(|| {
        let has_left = match landed::look(store, &before)? {
            Landed::Gone => true,
            Landed::Partly if !is_wanted_elsewhere(&desk.centre, record, one)? => {
                landed::evict(store, &before)?;
                true
            }
            Landed::Partly | Landed::Whole | Landed::Changed | Landed::Unknown => false,
        };
        if has_left {
            store.forget_list(before.id);
        }
        Ok(())
    })
}

/// Returns whether another job that has not ended wants the same data at the same place.
///
/// # Errors
/// The journal's.
pub(super) fn is_wanted_elsewhere(
    centre: &Centre,
    record: &JobRecord,
    one: &StageIn,
) -> Result<bool> {
    let store = &centre.store;
    let jobs = store.journal(|journal| journal.jobs(None, &PhaseName::BEFORE_THE_END, None))?;
    let destination = owner::without_links(Path::new(&one.destination));
    let is_same = |other: &StageIn| {
        other.source == one.source
            && owner::without_links(Path::new(&other.destination)) == destination
    };
    Ok(jobs.iter().any(|job| {
        let is_other = (&job.scheduler, &job.job) != (&record.scheduler, &record.job);
        // Most scripts need not be parsed for that.
        is_other
            && job.script.contains(&one.source)
            && read_again(job).stage_ins.iter().any(is_same)
    }))
}

/// Returns whether the staged-in data is still there, judged by sizes.
fn is_whole(centre: &Centre, request: &RequestRecord) -> Result<bool> {
    let Some(Scan::Sealed { bytes, .. }) = request.scan else {
        return Ok(false);
    };
    tokio::task::block_in_place(|| match landed::look(&centre.store, request)? {
        Landed::Whole => Ok(true),
        Landed::Partly | Landed::Changed | Landed::Gone => Ok(false),
        Landed::Unknown => {
            let behalf = centre.store.actors.of(request)?;
            let there = behalf.run(|| owner::bytes_below(Path::new(&request.destination)))?;
            Ok(there == bytes.get())
        }
    })
}

/// Checks that arrived data is still there: a purge, or another job, may have removed it.
fn check_whole(centre: &Centre, request: &RequestRecord) -> Result<()> {
    if is_whole(centre, request)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Changed, "use", &request.destination)
        .cause("what was brought there is gone or changed")
        .hint("release the job: what is missing is brought again, unless files there were changed"))
}

/// Returns the progress of all inputs.
pub(super) fn show(desk: &Desk, record: &JobRecord, wanted: &Wanted) -> Result<Vec<api::Moved>> {
    let mut shown = Vec::new();
    for one in &wanted.stage_ins {
        let request = known(&desk.centre, record, one)?;
        let ways = (one.source.as_str(), one.destination.as_str());
        let mut moved = moved(desk, one.line, ways, request.as_ref());
        moved.optional = one.is_optional;
        if request.is_none() && one.is_optional && record.phase == JobPhase::StagingIn {
            // All were requested: this one was refused, and the job runs without it.
            moved.state = api::RequestState::Refused;
        }
        shown.push(moved);
    }
    Ok(shown)
}

/// Returns whether nothing more is to be waited for.
pub(super) fn is_settled(state: api::RequestState) -> bool {
    state == api::RequestState::Arrived || is_bad(state)
}
