//! What jobs read: brought to scratch before they start, whole.

use std::{path::Path, time::Duration};

use posthaste_api as api;
use posthaste_batch::script::{StageIn, Wanted};
use posthaste_core::contract::ArrivalState;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{JobPhase, JobRecord, RequestRecord, Scan};

use super::{deadline, is_bad, moved, owner, read_again};
use crate::{
    driver::Centre,
    http::{Answer, Desk},
    inbound::submit,
};

/// By when it is wanted where the script does not say: the batch system waits for it.
const WANTED_WITHIN: Duration = Duration::from_secs(3600);

/// The name of the request that brings the directive of that number.
fn name(record: &JobRecord, round: u32, number: usize) -> String {
    let JobRecord { scheduler, job, .. } = record;
    format!("job-{scheduler}-{job}.{round}-in-{number}")
}

/// The newest request for a directive that did not go wrong, or the newest of all: what an earlier round of the
/// job brought need not come again.
///
/// # Errors
/// The journal's.
pub(super) fn known(
    centre: &Centre,
    record: &JobRecord,
    (one, number): (&StageIn, usize),
) -> Result<Option<RequestRecord>> {
    for round in (0..=record.round).rev() {
        let name = name(record, round, number);
        let found = centre.store.journal(|journal| journal.submission(&name))?;
        let Some(found) = found else {
            continue;
        };
        let is_it = Path::new(&found.destination)
            == owner::without_links(Path::new(&one.destination))
            && found
                .stage_in
                .as_ref()
                .is_some_and(|stage_in| stage_in.sources == [one.source.as_str()]);
        let is_over = found.ended.as_deref().is_some_and(is_bad)
            || matches!(found.scan, Some(Scan::Failed { .. }));
        let is_of_use = || -> Result<bool> {
            let is_gone = found.ended.as_deref() == Some("arrived")
                && !tokio::task::block_in_place(|| is_whole(&found))?;
            Ok(!is_over && !is_gone)
        };
        if is_it && (round == record.round || is_of_use()?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Asks for everything that was not asked for yet, and sees that what has arrived is still there.
pub(super) fn ask(desk: &Desk, record: &JobRecord) -> Answer<()> {
    for one in read_again(record).stage_ins.iter().zip(1..) {
        let asked = match known(&desk.centre, record, one)? {
            Some(request) if has_arrived(&desk.centre, &request) => {
                tokio::task::block_in_place(|| check_whole(&request)).map_err(Into::into)
            }
            Some(_) => Ok(()),
            None => ask_one(desk, record, one),
        };
        if !one.0.is_optional {
            asked?;
        }
    }
    Ok(())
}

fn has_arrived(centre: &Centre, request: &RequestRecord) -> bool {
    let view = centre.mind().arrival(request.id);
    view.map_or(request.ended.as_deref() == Some("arrived"), |view| {
        view.state == ArrivalState::Arrived
    })
}

fn ask_one(desk: &Desk, record: &JobRecord, (one, number): (&StageIn, usize)) -> Answer<()> {
    let destination = owner::on_scratch(desk, Path::new(&one.destination))?;
    let now = desk.centre.clock.now();
    let permit = desk.reserve_scan(&destination)?;
    let (request, fresh) = submit::accept(
        &desk.centre,
        &api::NewStageIn {
            sources: vec![one.source.clone()],
            to: destination,
            deadline: deadline(one.deadline, now, WANTED_WITHIN),
            // The job waits for it anyway.
            best_effort: true,
            submission_id: Some(name(record, record.round, number)),
            ..api::NewStageIn::default()
        },
    )?;
    if fresh {
        permit.send(request.id);
    }
    Ok(())
}

/// Whether what was brought is still there, as far as its size tells.
fn is_whole(request: &RequestRecord) -> Result<bool> {
    let Some(Scan::Sealed { bytes, .. }) = request.scan else {
        return Ok(false);
    };
    Ok(owner::bytes_below(Path::new(&request.destination))? == bytes.get())
}

/// Sees that what has arrived is still there: a purge, or another job, may have taken it.
fn check_whole(request: &RequestRecord) -> Result<()> {
    if is_whole(request)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Changed, "use", &request.destination)
        .cause("what was brought there is gone or changed")
        .hint("remove it and release the job: then it is brought again"))
}

/// How far everything is.
pub(super) fn show(desk: &Desk, record: &JobRecord, wanted: &Wanted) -> Result<Vec<api::Moved>> {
    let mut shown = Vec::new();
    for (one, number) in wanted.stage_ins.iter().zip(1..) {
        let request = known(&desk.centre, record, (one, number))?;
        let ways = (one.source.as_str(), one.destination.as_str());
        let mut moved = moved(desk, one.line, ways, request.as_ref());
        moved.optional = one.is_optional;
        if request.is_none() && one.is_optional && record.phase == JobPhase::StagingIn {
            // All were asked for: this one was not taken, and the job does without it.
            "refused".clone_into(&mut moved.state);
        }
        shown.push(moved);
    }
    Ok(shown)
}

/// Whether nothing more is to be waited for.
pub(super) fn is_settled(state: &str) -> bool {
    state == "arrived" || is_bad(state)
}
