//! Paths: their forecasts, and the resulting order of depots.

use std::time::Duration;

use posthaste_api as api;
use posthaste_core::contract::{
    Knowledge, PathView, Quantiles, RankView, Score, SourceView, WayView,
};
use posthaste_types::{ByteRate, Timestamp};

use super::{moment, ratio, seconds};
use crate::outbound::way::ends_of;

/// Name of the centre as the end of a path.
const CENTRE: &str = "centre";

pub(crate) fn path(view: &PathView, now: Timestamp) -> api::Path {
    api::Path {
        from: view.from.clone().unwrap_or_else(|| CENTRE.to_owned()),
        to: view.name.clone(),
        transfers: view.transfers,
        probes: view.probes,
        probed: view.probed_at.map(moment),
        round_trip_ms: view.round_trip.map(millis),
        ways: view.ways.iter().map(|way| path_way(way, now)).collect(),
        ..known(
            &view.rates,
            view.knowledge,
            (view.measured_at, now),
            view.score,
        )
    }
}

/// Returns the path from a source to the centre, or from the centre or depots to an address.
pub(crate) fn path_of_source(view: &SourceView, now: Timestamp) -> api::Path {
    let (from, to) = ends_of(&view.name);
    let end = |end: Option<String>| end.unwrap_or_else(|| CENTRE.to_owned());
    api::Path {
        from: end(from),
        to: end(to),
        transfers: view.transfers,
        ..known(
            &view.rates,
            view.knowledge,
            (view.measured_at, now),
            view.score,
        )
    }
}

/// Returns the known facts of any path.
fn known(
    rates: &Quantiles,
    knowledge: Knowledge,
    (measured_at, now): (Option<Timestamp>, Timestamp),
    score: Score,
) -> api::Path {
    let of_judged = |count: u64| (score.samples > 0).then(|| ratio(count, score.samples));
    let age = measured_at.map(|at| now.since(at).as_micros());
    api::Path {
        from: String::new(),
        to: String::new(),
        rate_p10_bytes_per_s: rates.p10.get(),
        rate_p50_bytes_per_s: rates.p50.get(),
        rate_p90_bytes_per_s: rates.p90.get(),
        known_by: knowledge.name().to_owned(),
        measured: measured_at.map(moment),
        age_s: age.map(|micros| seconds(i64::try_from(micros).unwrap_or(i64::MAX))),
        transfers: 0,
        probes: 0,
        probed: None,
        error: score.error_permille().map(|permille| ratio(permille, 1000)),
        judged: score.samples,
        below_p10: of_judged(score.under_p10),
        above_p90: of_judged(score.over_p90),
        round_trip_ms: None,
        ways: Vec::new(),
    }
}

pub(crate) fn ranked(view: &RankView, now: Timestamp) -> api::Ranked {
    let age_s = |at: Option<Timestamp>| {
        let age = at.map(|at| now.since(at).as_micros());
        age.map(|micros| seconds(i64::try_from(micros).unwrap_or(i64::MAX)))
    };
    api::Ranked {
        name: view.name.clone(),
        from_centre_ms: view.from_centre.map(millis),
        to_destination_ms: view.to_destination.map(millis),
        level: view.level,
        landmark: view.is_landmark,
        rate_p50_bytes_per_s: view.carries.get(),
        age_s: age_s(view.measured_at),
        onward_p50_bytes_per_s: view.onward.map(ByteRate::get),
        onward_age_s: age_s(view.onward_at),
    }
}

/// Converts to milliseconds, to the thousandth.
fn millis(span: Duration) -> f64 {
    seconds(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

fn path_way(view: &WayView, now: Timestamp) -> api::PathWay {
    let age = view.measured_at.map(|at| now.since(at).as_micros());
    let rate = |of: fn(&Quantiles) -> ByteRate| view.rates.as_ref().map(|rates| of(rates).get());
    api::PathWay {
        name: view.name.clone(),
        taken: view.is_taken,
        rate_p10_bytes_per_s: rate(|rates| rates.p10),
        rate_p50_bytes_per_s: rate(|rates| rates.p50),
        rate_p90_bytes_per_s: rate(|rates| rates.p90),
        measured: view.measured_at.map(moment),
        age_s: age.map(|micros| seconds(i64::try_from(micros).unwrap_or(i64::MAX))),
    }
}
