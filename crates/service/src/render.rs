//! Converts the mind's state to the API's.

mod ending;
mod kept;
mod omitted;
mod onward;
mod path;
mod pause;
mod reservation;
mod stage_in;
mod transfer;
mod words;

use posthaste_api as api;
use posthaste_core::{
    Mind,
    contract::{
        Decision, DeliveryReason, DeliveryView, DepotState, Drain, DrainView, Forecast, Happening,
        Reason, RequestState, RequestView, ShareView, WouldBuy,
    },
};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{EventRecord, RequestRecord, Scan};
use posthaste_types::{DepotId, Timestamp};

use crate::{credentials, depots::Depot, driver::Centre};
pub(crate) use {
    kept::is_over as is_kept_no_longer,
    path::{path, path_of_source, ranked},
    reservation::reservation,
    transfer::transfer,
};

/// Formats a moment in RFC 3339, in UTC, to the millisecond.
pub(crate) fn moment(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| "far future".to_owned(), |at| format!("{at:.3}"))
}

/// Parses RFC 3339.
///
/// # Errors
/// [`ErrorKind::Invalid`], naming the field.
pub(crate) fn parse_moment(field: &'static str, text: &str) -> Result<Timestamp> {
    let at: jiff::Timestamp = text.parse().map_err(|cause: jiff::Error| {
        Error::new(ErrorKind::Invalid, "read", field)
            .cause(cause)
            .hint("write it like 2026-11-20T18:00:00Z")
    })?;
    Ok(Timestamp::from_micros(
        u64::try_from(at.as_microsecond()).unwrap_or(0),
    ))
}

pub(crate) fn seconds(micros: i64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people, to the millisecond"
    )]
    let seconds = micros as f64 / 1e6;
    (seconds * 1e3).round() / 1e3
}

pub(crate) fn depot(centre: &Centre, depot: &Depot) -> api::Depot {
    let view = centre.mind().depot(depot.record.id);
    let known = depot.acquaintance(crate::monotonic());
    let prices = &depot.record.prices;
    let state = view.as_ref().map_or(DepotState::Unknown, |view| view.state);
    api::Depot {
        id: depot.record.id.to_string(),
        name: depot.record.name.clone(),
        owner: depot.record.owner.clone(),
        url: depot.record.url.clone(),
        fingerprint: depot.record.fingerprint.clone(),
        state: words::depot_state(state),
        capacity_bytes: depot.record.capacity.get(),
        free_bytes: view.as_ref().map_or(0, |view| view.free.get()),
        rate_bytes_per_s: depot.meter.latest(crate::monotonic()).get(),
        rate_p10_bytes_per_s: view.as_ref().map_or(0, |view| view.rate_p10.get()),
        rate_p50_bytes_per_s: view.as_ref().map_or(0, |view| view.rate_p50.get()),
        rate_p90_bytes_per_s: view.as_ref().map_or(0, |view| view.rate_p90.get()),
        hours: depot.record.terms.windows.to_string(),
        own_hours: known.hours.map(|hours| api::OwnHours {
            open: hours.open,
            ahead_of_utc_min: hours.ahead_of_utc_min,
        }),
        load_max: depot.record.load_max_permille.map(crate::enlist::load),
        load: depot.load_permille().map(crate::enlist::load),
        domain: domains(depot),
        landmark: depot.record.terms.is_landmark,
        level: depot.record.level,
        usd_per_gb: usd(depot.record.terms.send_micro_usd),
        usd_per_gb_month: usd(depot.record.terms.keep_micro_usd),
        usd_per_1000_puts: usd(prices.put_micro_usd),
        usd_per_1000_gets: usd(prices.get_micro_usd),
        usd_per_gb_out: usd(prices.egress_micro_usd),
        usd_per_gb_out_to: prices
            .egress_to
            .iter()
            .map(|price| (price.to.clone(), usd(price.micro_usd)))
            .collect(),
        drain: view.as_ref().and_then(|view| view.drain).map(drain),
        joined: known.joined,
        version: known.version,
        connections: known.connections,
        heard_s_ago: known.heard_ago.map(|ago| ago.as_secs_f64()),
    }
}

/// Returns the failure domains of a depot, including its store's.
fn domains(depot: &Depot) -> String {
    let said = Some(depot.record.terms.domain.clone()).filter(|said| !said.is_empty());
    let all = said.into_iter().chain(depot.domain_of_store());
    all.collect::<Vec<_>>().join(",")
}

fn drain(view: DrainView) -> api::DepotDrain {
    api::DepotDrain {
        moves: view.drain == Drain::Move,
        says_itself: view.is_own,
        under_way: view.under_way,
        only_there: view.only_there,
        is_empty: view.is_empty(),
    }
}

/// Returns the ratio of two numbers, to the thousandth.
fn ratio(of: u64, to: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people, to the thousandth"
    )]
    let ratio = of as f64 / to as f64;
    (ratio * 1e3).round() / 1e3
}

pub(crate) fn event(centre: &Centre, record: &EventRecord) -> api::Event {
    let event = &record.event;
    api::Event {
        seq: record.seq,
        at: moment(event.at),
        request: event.request.map(|request| request.to_string()),
        depot: event.depot.map(|depot| centre.depots.name(depot)),
        name: event.happening.name().to_owned(),
        text: event.at.undate(&event.happening.to_string()),
        reason: reason(centre, &event.reason, event.at),
    }
}

/// Returns a reason in words, as read at that time: depots by name, moments of other days with
/// their date.
pub(crate) fn reason(centre: &Centre, reason: &Reason, at: Timestamp) -> String {
    if let Reason::Repair { lost } = reason {
        return format!("a fragment was lost with {}", centre.depots.name(*lost));
    }
    at.undate(&reason.to_string())
}

/// Returns the view of a request: its options, and its state in the mind.
pub(crate) fn request(centre: &Centre, mind: &Mind, record: &RequestRecord) -> api::Request {
    // A record that was read before its source was listed must not be shown with the later state:
    // the list is recorded first.
    let newer = (record.scan.is_none() && mind.state_of(record.id).is_some())
        .then(|| centre.store.request(record.id).ok())
        .flatten();
    let record = newer.as_ref().unwrap_or(record);
    let decisions = mind.explain(record.id).unwrap_or_default();
    let mut events = decisions.iter().rev();
    let last = events.find(|decision| decision.happening.is_some());
    let offers = offers(&decisions, centre.clock.now());
    let view = mind.request(record.id);
    let (bytes, files) = scanned(record);
    let (reason, error_code) = ending::why(centre, mind, record, last).unzip();
    let view = view.as_ref();
    let deadline = view.map_or(record.deadline, |view| view.spec.deadline);
    let purge_at = view.map_or(record.purge_at, |view| view.purge_at);
    let mut shown = api::Request {
        id: record.id.to_string(),
        dataset: record.dataset.clone(),
        source: credentials::shown(&String::from_utf8_lossy(&record.source)),
        only: record.only.clone(),
        to: credentials::shown(&record.destination),
        state: state(mind, record),
        reason,
        error_code: error_code.flatten(),
        warnings: ending::warnings(centre, mind, record),
        paused: view.and_then(|view| view.paused.as_ref()).map(pause::pause),
        at_risk: view.is_some_and(|view| view.at_risk),
        missed: view.is_some_and(|view| view.missed),
        source_kept: view.is_some_and(|view| view.source_kept),
        encrypt_for: record.recipients.clone(),
        code: view.map_or(record.code, |view| view.spec.code).to_string(),
        release: release(record),
        optimizer: record.optimizer.to_string(),
        wishes: crate::wishes::of(centre, view, record),
        submitted: moment(record.created),
        deadline: moment(deadline),
        purge_at: purge_at.map(moment),
        slack_s: view.and_then(|view| slack(view, deadline)),
        finish: view.and_then(|view| view.finish).map(finish),
        assumed: false,
        safe_after_s: (view.and_then(safe_at)).map(|at| seconds(at.slack_micros(record.created))),
        bytes,
        files,
        chunks: view.map_or(0, |view| view.spec.chunks()),
        chunks_safe: view.map_or(0, chunks_safe),
        chunks_out_of_reach: view.map_or(0, |view| view.chunks_out_of_reach),
        out_of_reach: false,
        kept_until: None,
        keep_ended: false,
        modes_not_kept: 0,
        times_not_kept: 0,
        chunks_repaired: view.map_or(0, |view| view.chunks_repaired),
        cost_usd: view.map_or(0.0, |view| usd(view.cost.send_micro_usd)),
        cost_usd_per_month: view.map_or(0.0, |view| usd(view.cost.month_micro_usd)),
        cost_usd_to_read: view.map_or(0.0, |view| usd(view.cost.read_micro_usd)),
        spent_usd: view.map_or(0.0, |view| usd(view.spent_micro_usd)),
        delivery: onward::delivery_of(mind, view, record.id),
        goes_on_as: mind.goes_on_as(record.id).map(|id| id.to_string()),
        exposure: view.and_then(|view| exposure(view, record)),
        offers,
        shares: view.map_or_else(Vec::new, |view| {
            let shown = |of: &ShareView| share(centre, of, depot_state(mind, of.depot));
            (view.shares.iter().map(shown)).collect()
        }),
        reservations: reservation::of(centre, mind, record.id),
        left_out: onward::with_left_out(view.and_then(omitted::left_out), mind, record.id),
        stage_in: None,
    };
    complete(centre, mind, record, &decisions, &mut shown);
    kept::fill(centre, mind, record, &mut shown);
    shown
}

/// Fills in the fields that follow from others.
fn complete(
    centre: &Centre,
    mind: &Mind,
    record: &RequestRecord,
    decisions: &[Decision],
    shown: &mut api::Request,
) {
    stage_in::fill(centre, mind, record, shown);
    let more = [
        ending::assumed(centre, mind, shown, record.id),
        ending::away(shown),
        ending::from_one(mind, record.id, decisions),
    ];
    shown.warnings.extend(more.into_iter().flatten());
    shown.warnings.extend(ending::pulled(shown));
    shown.warnings.extend(ending::unpaid(centre, mind, record));
    omitted::tell_unkept(shown, decisions);
    let is_there = matches!(
        shown.state,
        api::RequestState::Arrived | api::RequestState::Safe
    );
    let is_pending = record.release && is_there;
    if shown.source_kept && shown.reason.is_none() {
        shown.reason = ending::why_kept(centre, record, decisions, false);
    } else if is_pending && !shown.source_kept {
        let why = ending::why_kept(centre, record, decisions, true);
        shown.warnings.extend(why);
    }
}

/// Returns the state of a depot.
pub(crate) fn depot_state(mind: &Mind, depot: DepotId) -> api::DepotState {
    let view = mind.depot(depot);
    words::depot_state(view.map_or(DepotState::Unknown, |view| view.state))
}

/// Returns the state of a request.
pub(crate) fn state(mind: &Mind, record: &RequestRecord) -> api::RequestState {
    let failed = || matches!(record.scan, Some(Scan::Failed { .. })).then_some("failed");
    let ended = record.ended.as_deref().or_else(failed);
    words::request_state(mind.state_of(record.id).or(ended).unwrap_or("scanning"))
}

/// Returns the safe chunks. A destination with all of a dataset lacks nothing, whatever depots
/// hold.
pub(crate) fn chunks_safe(view: &RequestView) -> u32 {
    if view.state == RequestState::Delivered {
        view.spec.chunks()
    } else {
        view.chunks_safe
    }
}

pub(crate) fn finish(finish: Forecast) -> api::Finish {
    api::Finish {
        p10: moment(finish.p10),
        p50: moment(finish.p50),
        p90: moment(finish.p90),
    }
}

/// Returns the delivery state of a request.
fn delivery(view: DeliveryView) -> api::Delivery {
    let end = view.whole_at.or(view.finish.map(|finish| finish.p90));
    let slack = view
        .deliver_by
        .zip(end)
        .map(|(by, end)| by.slack_micros(end));
    api::Delivery {
        deliver_by: view.deliver_by.map(moment),
        finish: view.finish.map(finish),
        slack_s: slack.map(seconds),
        assumed: view.is_assumed,
        at_risk: view.at_risk,
        missed: view.missed,
        delivered: view.whole_at.map(moment),
    }
}

/// Returns the bytes and files that the scan found.
fn scanned(record: &RequestRecord) -> (u64, u64) {
    match &record.scan {
        Some(Scan::Sealed { bytes, files, .. }) => (bytes.get(), *files),
        Some(Scan::Failed { .. }) | None => (0, 0),
    }
}

fn release(record: &RequestRecord) -> api::Release {
    match (record.release, record.drops_extras) {
        (_, true) => api::Release::Anyway,
        (true, false) => api::Release::WhenSafe,
        (false, false) => api::Release::Never,
    }
}

/// Returns how long the dataset needs scratch. Once it is safe, both quantiles are the actual time.
fn exposure(view: &RequestView, record: &RequestRecord) -> Option<api::Exposure> {
    let (middle, late) = match (safe_at(view), view.finish) {
        (Some(at), _) => (at, at),
        (None, Some(finish)) => (finish.p50, finish.p90),
        (None, None) => return None,
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people, to the thousandth"
    )]
    let gigabytes = view.spec.bytes.get() as f64 / 1e9;
    let hours = |end: Timestamp| end.since(record.created).as_secs_f64() / 3600.0;
    let short = |value: f64| (value * 1e6).round() / 1e6;
    Some(api::Exposure {
        hours_p50: short(hours(middle)),
        hours_p90: short(hours(late)),
        gb_hours_p50: short(gigabytes * hours(middle)),
        gb_hours_p90: short(gigabytes * hours(late)),
    })
}

/// Returns an offer that makes a deadline feasible, as the API shows it on this day.
fn offer(offer: &WouldBuy, now: Timestamp) -> api::Offer {
    use api::OfferKind;

    let of = |kind| api::Offer::new(kind, now.undate(&offer.to_string()));
    let safe = |kind: OfferKind, depots: Vec<String>, finish: Timestamp| api::Offer {
        depots,
        finish: Some(moment(finish)),
        ..of(kind)
    };
    let one = |kind, name: &String, finish: &Timestamp| safe(kind, vec![name.clone()], *finish);
    match offer {
        WouldBuy::NamedDepots { names, finish } => safe(OfferKind::Depots, names.clone(), *finish),
        WouldBuy::DepotBack { name, finish } => one(OfferKind::Back, name, finish),
        WouldBuy::SourceBack { name, finish } => one(OfferKind::SourceBack, name, finish),
        WouldBuy::DepotHours { name, finish } => one(OfferKind::Hours, name, finish),
        WouldBuy::DestinationBack { name, finish } => one(OfferKind::DestinationBack, name, finish),
        WouldBuy::WithoutDestination { name, finish } => one(OfferKind::Fewer, name, finish),
        WouldBuy::DeliveredLater { deliver_by } => api::Offer {
            deadline: Some(moment(*deliver_by)),
            ..of(OfferKind::Delivery)
        },
        WouldBuy::LighterCode { code } => api::Offer {
            code: Some(code.to_string()),
            ..of(OfferKind::Code)
        },
        WouldBuy::OthersSlack {
            request, deadline, ..
        } => api::Offer {
            request: Some(request.to_string()),
            deadline: Some(moment(*deadline)),
            ..of(OfferKind::Slack)
        },
        WouldBuy::Circuit {
            name, rate, finish, ..
        } => api::Offer {
            circuit: Some(name.clone()),
            rate_bytes_per_s: Some(rate.get()),
            ..safe(OfferKind::Circuit, Vec::new(), *finish)
        },
        WouldBuy::Reservation {
            on, rate, until, ..
        } => api::Offer {
            depots: Some(on.clone())
                .filter(|on| !on.is_empty())
                .into_iter()
                .collect(),
            rate_bytes_per_s: Some(rate.get()),
            deadline: Some(moment(*until)),
            ..of(OfferKind::Reservation)
        },
        WouldBuy::Budget { micro_usd, finish } => api::Offer {
            usd: Some(usd(*micro_usd)),
            ..safe(OfferKind::Budget, Vec::new(), *finish)
        },
        WouldBuy::HigherLimit { rate, finish } => api::Offer {
            rate_bytes_per_s: Some(rate.get()),
            ..safe(OfferKind::Limit, Vec::new(), *finish)
        },
        WouldBuy::MoreRate { rate } => api::Offer {
            rate_bytes_per_s: Some(rate.get()),
            ..of(OfferKind::Rate)
        },
        WouldBuy::Later { deadline } => api::Offer {
            deadline: Some(moment(*deadline)),
            ..of(OfferKind::Deadline)
        },
        WouldBuy::MoreSpace { .. } => of(OfferKind::Space),
        WouldBuy::MoreDepots { .. } => of(OfferKind::MoreDepots),
    }
}

/// Returns the offer that came with the answer.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other reason carries offers"
)]
fn offers(decisions: &[Decision], now: Timestamp) -> Vec<api::Offer> {
    let would_buy = decisions.iter().find_map(|decision| {
        let is_answer = matches!(
            decision.happening,
            Some(Happening::Admitted | Happening::Refused)
        );
        match &decision.reason {
            Reason::Infeasible { would_buy, .. } | Reason::OnlyThere { would_buy, .. }
                if is_answer =>
            {
                Some(would_buy)
            }
            Reason::Offered { would_buy }
            | Reason::Delivery {
                why: DeliveryReason::Infeasible { would_buy, .. },
            }
            | Reason::Delivery {
                why: DeliveryReason::CrowdsOut { would_buy, .. },
            } => Some(would_buy),
            _ => None,
        }
    });
    let would_buy = would_buy.into_iter().flatten();
    would_buy.map(|one| offer(one, now)).collect()
}

/// Converts to dollars; exact to a millionth up to some billions.
#[expect(
    clippy::cast_precision_loss,
    reason = "nobody pays so much that cents get lost"
)]
pub(crate) fn usd(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// Returns when it became safe, if it still is.
fn safe_at(view: &RequestView) -> Option<Timestamp> {
    view.safe_at.filter(|_| !view.is_unsafe)
}

/// Returns the deadline minus the p90 finish; once safe, minus the moment it became so.
fn slack(view: &RequestView, deadline: Timestamp) -> Option<f64> {
    let finish = safe_at(view).or(view.finish.map(|finish| finish.p90))?;
    Some(seconds(deadline.slack_micros(finish)))
}

fn share(centre: &Centre, share: &ShareView, state: api::DepotState) -> api::Share {
    api::Share {
        depot: centre.depots.name(share.depot),
        state,
        active: share.active,
        stored: share.stored,
        stored_bytes: share.stored_bytes.get(),
        in_flight: share.in_flight,
        reserved_bytes: share.reserved.get(),
        rate_bytes_per_s: centre
            .depots
            .get(share.depot)
            .map_or(0, |depot| depot.meter.latest(crate::monotonic()).get()),
    }
}
