//! Explains why a request ended badly.

use posthaste_api as api;
use posthaste_core::{
    Mind,
    contract::{
        ArrivalState, Decision, Fault, Happening, Knowledge, Quantiles, Reason, RequestState,
        RequestView,
    },
};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{DepotId, RequestId};

use super::{reason, state};
use crate::driver::Centre;

/// Limit of named paths: more add nothing.
const ASSUMED_MAX: usize = 4;

/// Returns why it was refused or failed, and the error code.
pub(super) fn why(
    centre: &Centre,
    mind: &Mind,
    record: &RequestRecord,
    last: Option<&Decision>,
) -> Option<(String, Option<String>)> {
    if let Some(Scan::Failed { code, error }) = &record.scan {
        return Some((error.clone(), Some(code.clone())));
    }
    let last = last.filter(|_| ended_badly(mind, record))?;
    let code = (state(mind, record) == api::RequestState::Failed)
        .then(|| code_of(&last.reason).to_owned());
    let is_clash = matches!(
        &last.reason,
        Reason::GaveUp {
            fault: Fault::NamesMeet,
            ..
        }
    );
    // The mind does not know the file's name.
    let complaint = centre.outgoing.complaints.of(record.id);
    let complaint = complaint.map(|complaint| complaint.text);
    let decided = || reason(centre, &last.reason, centre.clock.now());
    let named = match complaint {
        Some(text) if is_clash => text,
        Some(text) if is_fault(&last.reason) => format!("{}: {text}", decided()),
        Some(_) | None => decided(),
    };
    Some((named, code))
}

/// Marks a forecast that counts on unmeasured paths. Returns these paths if the decision depends on
/// them.
pub(super) fn assumed(
    centre: &Centre,
    mind: &Mind,
    shown: &mut api::Request,
    id: RequestId,
) -> Vec<String> {
    use api::RequestState::{Moving, Paused, Refused, Waiting};
    let is_short = shown.slack_s.is_none_or(|slack| slack < 0.0);
    let is_forecast = matches!(shown.state, Moving | Paused | Waiting) && shown.finish.is_some();
    let is_decisive = is_short && (shown.at_risk || shown.state == Refused);
    if !is_forecast && !is_decisive {
        return Vec::new();
    }
    let paths = unmeasured(centre, mind, &shown.to, id);
    shown.assumed = is_forecast && !paths.is_empty();
    if is_decisive { paths } else { Vec::new() }
}

/// Returns the unmeasured paths that a request uses.
fn unmeasured(centre: &Centre, mind: &Mind, to: &str, id: RequestId) -> Vec<String> {
    let now = centre.clock.now();
    let said = |from: &str, to: &str, rates: &Quantiles, probe: &str| {
        let (least, most) = (rates.p10, rates.p90);
        format!(
            "nothing measured the path from {from} to {to} yet: {least} to {most} is assumed{probe}"
        )
    };
    if let Some(arrival) = mind.arrival(id) {
        let sources = mind.sources().filter(|view| {
            arrival.spec.sources.contains(&view.source) && view.knowledge == Knowledge::Assumed
        });
        return sources
            .map(|view| {
                let path = super::path_of_source(&view, now);
                let probe = match arrival.goes_out && arrival.of.is_none() {
                    true => format!(" (`posthaste paths --probe {to}` measures it)"),
                    false => String::new(),
                };
                said(&path.from, &path.to, &view.rates, &probe)
            })
            .collect();
    }
    let Some(view) = mind.request(id) else {
        return Vec::new();
    };
    let is_fed = view.shares.iter().any(|share| share.active);
    let is_wanted = |depot: DepotId| {
        let mut shares = view.shares.iter();
        shares.any(|share| share.depot == depot && (share.active || !is_fed))
    };
    let paths = mind.paths(now).into_iter();
    let paths = paths.filter(|path| path.knowledge == Knowledge::Assumed && is_wanted(path.depot));
    paths
        .take(ASSUMED_MAX)
        .map(|path| {
            let probe = format!(" (`posthaste paths --probe {}` measures it)", path.name);
            said("centre", &path.name, &path.rates, &probe)
        })
        .collect()
}

/// Returns the request's depots that are down or silent now: the forecast finish counts on them.
pub(super) fn away(shown: &api::Request) -> Vec<String> {
    let fed = shown.shares.iter().filter(|share| share.active);
    let said = fed.filter_map(|share| match share.state {
        api::DepotState::Down => Some(format!(
            "{} is down, and counted on to be back",
            share.depot
        )),
        api::DepotState::Unknown => Some(format!(
            "{} has not answered yet, and is counted on",
            share.depot
        )),
        api::DepotState::Up => None,
    });
    if shown.state != api::RequestState::Moving {
        return Vec::new();
    }
    said.take(ASSUMED_MAX).collect()
}

/// Returns the messages about files that come from one source each, while the stage-in runs.
pub(super) fn from_one(mind: &Mind, id: RequestId, decisions: &[Decision]) -> Vec<String> {
    let arrival = mind.arrival(id).filter(|arrival| arrival.state.is_live());
    let said = decisions.iter().filter(|_| arrival.is_some());
    let is_it = |reason: &&Reason| matches!(reason, Reason::FromOneSource { .. });
    let said = said.map(|decision| &decision.reason).filter(is_it);
    said.map(ToString::to_string).collect()
}

/// Returns the latest problems of a request, while it runs.
pub(super) fn warnings(centre: &Centre, mind: &Mind, record: &RequestRecord) -> Vec<String> {
    let is_open = |view: &ArrivalState| view.is_live();
    let going = match (mind.arrival(record.id), mind.request(record.id)) {
        (Some(view), _) => is_open(&view.state),
        (None, Some(view)) => view.state == RequestState::Moving,
        (None, None) => false,
    };
    let complaint = centre.outgoing.complaints.of(record.id);
    let complaint = complaint.filter(|_| going);
    let complaint = complaint.map(|complaint| complaint.text);
    let view = mind.request(record.id);
    let lost = view.as_ref().and_then(|view| lost(centre, mind, view));
    lost.into_iter().chain(complaint).collect()
}

/// Returns that chunks are lost, and which depots would have to come back.
fn lost(centre: &Centre, mind: &Mind, view: &RequestView) -> Option<String> {
    let (lost, all) = (view.chunks_out_of_reach, view.spec.chunks());
    if lost == 0 {
        return None;
    }
    let shares = view.shares.iter().filter(|share| share.stored > 0);
    let away = shares.filter(|share| super::depot_state(mind, share.depot) != api::DepotState::Up);
    let known = away
        .clone()
        .filter_map(|share| centre.depots.get(share.depot));
    let known: Vec<String> = known.map(|depot| depot.record.name.clone()).collect();
    let unless = match (known.is_empty(), away.count() > known.len()) {
        (true, true) => "depots that held them were removed".to_owned(),
        (true, false) => "the depots that held them no longer do".to_owned(),
        (false, _) => format!("unless {} come back with what they held", known.join(", ")),
    };
    Some(format!(
        "OUT OF REACH: {lost} of {all} chunks can't be rebuilt, {unless}"
    ))
}

/// Returns what a budget does not pay of bringing it to its destination.
pub(super) fn unpaid(centre: &Centre, mind: &Mind, record: &RequestRecord) -> Option<String> {
    let view = mind.request(record.id)?;
    view.wishes.budget_micro_usd?;
    if let Some(undelivered) = view.delivery.and_then(|delivery| delivery.undelivered) {
        let name = centre.depots.name(undelivered.depot);
        let why = undelivered.hindrance;
        return Some(format!(
            "nothing is delivered to {name}: {why} (`posthaste pull` brings it; without --budget it is delivered)"
        ));
    }
    let onward = mind.goes_on_as(record.id).and_then(|id| mind.arrival(id))?;
    (onward.state.is_live() && view.cost.read_micro_usd > 0).then(|| {
        "its budget does not include what depots charge when its address reads from them".into()
    })
}

/// Returns that somebody else than its destination has all of it.
pub(super) fn pulled(shown: &api::Request) -> Option<String> {
    let is_elsewhere = shown.state == api::RequestState::Delivered
        && (shown.delivery.as_ref()).is_some_and(|delivery| delivery.delivered.is_none());
    is_elsewhere.then(|| {
        format!(
            "somebody pulled all of it and let depots forget it, so nothing more goes to {}, which does not have all of it",
            shown.to
        )
    })
}

/// Returns why its source stays, or why it is not removed yet, with the names of the files.
pub(super) fn why_kept(
    centre: &Centre,
    record: &RequestRecord,
    decisions: &[Decision],
    is_tried_again: bool,
) -> Option<String> {
    let is_failure = |of: &&Decision| of.happening == Some(Happening::ReleaseFailed);
    let is_named = |of: &&Decision| matches!(of.reason, Reason::SourceFile { .. });
    let is_other = |of: &&Decision| of.happening == Some(Happening::Purged) && is_named(of);
    let mut back = decisions.iter().rev();
    let last = back.find(|of| is_failure(of) || is_other(of))?;
    let mut named = None;
    if let Reason::SourceFile { what, .. } = &last.reason {
        named = Some(what.clone());
    }
    let complaint = || centre.outgoing.complaints.of(record.id);
    let named = named.or_else(|| complaint().map(|complaint| complaint.text));
    let why = named.unwrap_or_else(|| reason(centre, &last.reason, centre.clock.now()));
    Some(match is_tried_again {
        true => format!("scratch not released yet, and tried again: {why}"),
        false => format!("scratch not released: {why}"),
    })
}

/// Returns whether a named thing failed that the reason doesn't mention.
fn is_fault(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::GaveUp { .. }
            | Reason::Source { .. }
            | Reason::SourceLost { .. }
            | Reason::NoSourceLeft { .. }
    )
}

/// Returns the page under `docs/errors/` that explains a request's end.
fn code_of(reason: &Reason) -> &'static str {
    let (Reason::GaveUp { fault, .. }
    | Reason::Source { fault }
    | Reason::SourceFile { fault, .. }
    | Reason::SourceLost { fault, .. }
    | Reason::NoSourceLeft { fault }
    | Reason::HeldNowhere { fault, .. }) = reason
    else {
        return "other";
    };
    match fault {
        Fault::Unreachable => "unreachable",
        Fault::Full => "full",
        Fault::Unauthenticated => "unauthenticated",
        Fault::Corrupt => "corrupt",
        Fault::Busy | Fault::SourceBusy => "busy",
        Fault::SourceChanged | Fault::SourcesDiffer => "changed",
        Fault::SourceVanished => "not-found",
        Fault::NamesMeet => "conflict",
        Fault::SourceUnreadable | Fault::Unremovable | Fault::Unwritable => "permission-denied",
        Fault::SourceStalled | Fault::Other => "other",
    }
}

/// Returns whether there is a failure to explain.
fn ended_badly(mind: &Mind, record: &RequestRecord) -> bool {
    let stage_out = mind.request(record.id).map(|view| view.state);
    let stage_in = mind.arrival(record.id).map(|view| view.state);
    matches!(
        stage_out,
        Some(RequestState::Refused | RequestState::Failed)
    ) || matches!(stage_in, Some(ArrivalState::Refused | ArrivalState::Failed))
}
