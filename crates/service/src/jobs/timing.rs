//! Just-in-time data: when jobs' data is wanted, as the queue moves.

use std::{collections::BTreeMap, time::Duration};

use posthaste_batch::script::StageIn;
use posthaste_core::contract::{ArrivalView, Input};
use posthaste_endpoint::Result;
use posthaste_forecast::queue::Data;
use posthaste_journal::{JobRecord, PhaseName};
use posthaste_types::{RequestId, Timestamp};

use super::{
    read_again,
    stage_in::{self, WANTED_WITHIN},
};
use crate::{driver::Centre, http::Desk, queue::Outlook};

/// Longest delay of data. Slurm ends a stage-in after `StageInTimeout`, a day if `posthaste slurm
/// install` wrote it: half of it remains for the transfer.
const DELAY_MAX: Duration = Duration::from_secs(12 * 3600);
/// A start time is reported again only if it moves closer by more than this, or away by more than
/// this plus an eighth of the remaining time. Each report is a line of the journal, and the queue
/// is read every half minute.
const MOVE_LEAST: Duration = Duration::from_secs(60);
const MOVE_SHARE: u32 = 8;

/// Returns when the data of a directive is first wanted, if data comes just in time and the script
/// names no time.
pub(super) fn wanted_at(
    desk: &Desk,
    record: &JobRecord,
    one: &StageIn,
    now: Timestamp,
) -> Option<Timestamp> {
    let outlook = desk.outlook.as_ref().filter(|_| one.deadline.is_none())?;
    let at = outlook.wanted_at(record, now)?;
    Some(at.min(now + DELAY_MAX))
}

/// Reports anew when delayed data is wanted, by the current queue.
///
/// # Errors
/// The journal's, and that the service is ending.
pub(crate) async fn retime(centre: &Centre, outlook: &Outlook) -> Result<()> {
    for input in tokio::task::block_in_place(|| moves(centre, outlook))? {
        centre.tell(input).await?;
    }
    Ok(())
}

fn moves(centre: &Centre, outlook: &Outlook) -> Result<Vec<Input>> {
    let now = centre.clock.now();
    let mut wanted: BTreeMap<RequestId, Timestamp> = BTreeMap::new();
    let store = &centre.store;
    for record in store.journal(|journal| journal.jobs(None, &[PhaseName::StagingIn], None))? {
        let start = outlook.wanted_at(&record, now).unwrap_or(now);
        for one in &read_again(&record).stage_ins {
            let known = stage_in::known(centre, &record, one)?;
            let Some(request) = known.filter(stage_in::is_of_job) else {
                continue;
            };
            let at = if one.deadline.is_some() { now } else { start };
            let at = at.min(request.created + DELAY_MAX);
            // If jobs share a stage-in, the first to start decides.
            let first = wanted.entry(request.id).or_insert(at);
            *first = at.min(*first);
        }
    }
    let mind = centre.mind();
    let views = wanted
        .into_iter()
        .filter_map(|(request, at)| Some((mind.arrival(request)?, at)));
    Ok(views
        .filter_map(|(view, at)| move_of(&view, at, now))
        .collect())
}

/// Returns the input that moves the wanted time of a held-back stage-in, if the change is worth
/// reporting.
fn move_of(view: &ArrivalView, at: Timestamp, now: Timestamp) -> Option<Input> {
    let (request, from) = (view.request, view.spec.deadline);
    let not_before = view.spec.not_before?;
    if !view.state.is_live() || view.begun_at.is_some() || not_before <= now {
        return None;
    }
    if at <= now {
        return Some(Input::ArrivalMoved {
            request,
            not_before: now,
            deadline: now + WANTED_WITHIN,
        });
    }
    let much = MOVE_LEAST.max(at.since(now) / MOVE_SHARE);
    let is_moved = from.since(at) > MOVE_LEAST || at.since(from) > much;
    is_moved.then_some(Input::ArrivalMoved {
        request,
        not_before: at,
        deadline: at,
    })
}

/// Returns when the data of a job arrived, if all of it came through this service.
///
/// # Errors
/// The journal's.
pub(crate) fn data_of(centre: &Centre, scheduler: &str, job: &str) -> Result<Option<Data>> {
    let record = centre
        .store
        .journal(|journal| journal.job(scheduler, job))?;
    let Some(record) = record else {
        return Ok(None);
    };
    let mut data: Option<Data> = None;
    for one in &read_again(&record).stage_ins {
        let Some(request) = stage_in::known(centre, &record, one)? else {
            return Ok(None);
        };
        let view = centre.mind().arrival(request.id);
        let Some((begun, ready)) = view.and_then(|view| view.begun_at.zip(view.arrived_at)) else {
            return Ok(None);
        };
        let all = data.unwrap_or(Data { begun, ready });
        data = Some(Data {
            begun: all.begun.min(begun),
            ready: all.ready.max(ready),
        });
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::{
        Mind, Settings,
        contract::{ArrivalSpec, Outbox, Priority},
    };
    use posthaste_types::{Bytes, SourceId};

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    /// Returns a stage-in that is delayed until then.
    fn held_back(until_s: u64) -> ArrivalView {
        let (request, source) = (RequestId::new(1), SourceId::new(1));
        let spec = ArrivalSpec {
            bytes: Bytes::mebi(1),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: at(until_s),
            not_before: Some(at(until_s)),
            sources: vec![source],
            priority: Priority::default(),
            rate_max: None,
            best_effort: true,
        };
        let found = Input::SourceFound {
            source,
            name: "archive".into(),
            rate_max: None,
        };
        let mut mind = Mind::new(Settings::default());
        let inputs = vec![found, Input::ArrivalAsked { request, spec }];
        mind.step(at(0), inputs, &mut Outbox::default());
        mind.arrival(request).unwrap()
    }

    #[test]
    fn a_moment_is_told_anew_when_that_is_worth_it() {
        let view = held_back(8000);
        let moved = |secs| {
            let Some(Input::ArrivalMoved { deadline, .. }) = move_of(&view, at(secs), at(0)) else {
                return None;
            };
            Some(deadline)
        };
        for same in [7940, 8000, 8900] {
            assert_eq!(moved(same), None, "{same}");
        }
        for other in [7939, 9200, 100_000] {
            assert_eq!(moved(other), Some(at(other)));
        }
        assert_eq!(moved(0), Some(at(0) + WANTED_WITHIN), "it is wanted now");
    }

    #[test]
    fn what_is_held_back_no_longer_stays_as_it_is() {
        let view = held_back(8000);
        assert_eq!(move_of(&view, at(20_000), at(8000)), None);
        let begun = ArrivalView {
            begun_at: Some(at(10)),
            ..view
        };
        assert_eq!(move_of(&begun, at(20_000), at(20)), None);
    }
}
