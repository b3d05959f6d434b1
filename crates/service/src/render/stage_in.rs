use posthaste_api as api;
use posthaste_core::{
    Mind,
    contract::{ArrivalState, ArrivalView, SourceShareView},
};
use posthaste_journal::RequestRecord;

use super::{finish, moment, seconds, usd, words};
use crate::{driver::Centre, outbound::goes_out};

/// Fills in the fields of a stage-in.
pub(super) fn fill(centre: &Centre, mind: &Mind, record: &RequestRecord, shown: &mut api::Request) {
    let Some(wanted) = &record.stage_in else {
        return;
    };
    let view = mind.arrival(record.id);
    if let Some(view) = &view {
        fill_from(view, record, shown);
    }
    let view = view.as_ref();
    shown.stage_in = Some(api::StageIn {
        goes_out: goes_out(record),
        releases: view.is_some_and(|view| view.releases),
        not_before: view
            .map_or(wanted.not_before, |view| view.spec.not_before)
            .map(moment),
        begin_by: view.and_then(|view| view.begin_by).map(moment),
        begun: view.and_then(|view| view.begun_at).map(moment),
        binding: view
            .and_then(|view| view.binding.as_ref())
            .map(|binding| api::Binding {
                sources: binding.names.clone(),
                missing_bytes: binding.bytes.get(),
            }),
        chunks_twice: view.map_or(0, |view| view.duplicates),
        sources: view.map_or_else(Vec::new, |view| {
            view.shares
                .iter()
                .map(|share| source(centre, share))
                .collect()
        }),
    });
}

/// Returns the files that are missing at the destination.
pub(super) fn left_out(view: &ArrivalView) -> Option<api::LeftOut> {
    let left_out = &view.left_out;
    (left_out.files > 0).then(|| api::LeftOut {
        files: left_out.files,
        bytes: left_out.bytes.get(),
        named: left_out.named.clone(),
    })
}

fn fill_from(view: &ArrivalView, record: &RequestRecord, shown: &mut api::Request) {
    let ended_badly = matches!(view.state, ArrivalState::Refused | ArrivalState::Failed);
    if !ended_badly {
        (shown.reason, shown.error_code) = (None, None);
    }
    shown.left_out = left_out(view);
    (shown.at_risk, shown.missed) = (view.at_risk, view.missed);
    shown.source_kept = view.source_kept;
    shown.paused = view.paused.as_ref().map(super::pause::pause);
    let deadline = view.spec.deadline;
    shown.deadline = moment(deadline);
    let end = view.arrived_at.or(view.finish.map(|finish| finish.p90));
    shown.slack_s = end.map(|end| seconds(deadline.slack_micros(end)));
    shown.finish = view.finish.map(finish);
    let after = view.arrived_at;
    shown.safe_after_s = after.map(|at| seconds(at.slack_micros(record.created)));
    shown.cost_usd = usd(view.cost_micro_usd);
    shown.spent_usd = usd(view.spent_micro_usd);
    shown.chunks = view.chunks;
    shown.chunks_safe = view.chunks_here;
}

fn source(centre: &Centre, share: &SourceShareView) -> api::Source {
    let state = if share.is_gone {
        api::SourceState::Gone
    } else {
        words::source_state(share.state)
    };
    api::Source {
        name: share.name.clone(),
        state,
        chunks: share.arrived,
        bytes: share.bytes.get(),
        near: share.near.is_some(),
        holds_bytes: share.holds.get(),
        alone_bytes: share.alone.get(),
        in_flight: share.in_flight,
        rate_bytes_per_s: centre.flows.of(share.source).latest().get(),
        rate_p10_bytes_per_s: share.rates.p10.get(),
        rate_p50_bytes_per_s: share.rates.p50.get(),
    }
}
