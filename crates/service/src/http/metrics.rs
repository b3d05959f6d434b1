//! Metrics for monitoring: current states and event counts, in the text format of OpenMetrics.

use axum::{Extension, extract::State, http::header, response::IntoResponse};
use posthaste_api as api;
use posthaste_core::contract::{DepotState, DepotView, Tally};
use posthaste_endpoint::{Error, ErrorKind};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Registry, Unit},
};
use std::sync::{Arc, atomic::AtomicU64};

use super::{Answer, Desk};
use crate::{counts::Labels, driver::Centre, tokens::Caller};

/// Content type that Prometheus requires.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const MICROS: f64 = 1e6;

type Gauges = Family<Labels, Gauge>;

/// Figures for Prometheus and whatever reads its format: requests by state, the least slack, depots, and what happened since
/// the service started.
#[utoipa::path(get, path = "/v1/metrics", operation_id = "get_metrics", tag = "service", security(("bearer" = ["read"])),
    responses((status = 200, content_type = "application/openmetrics-text", body = String,
            description = "Figures in the OpenMetrics text format"),
        (status = 401, body = api::Problem)))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
) -> Answer<impl IntoResponse> {
    let centre = &desk.centre;
    let (tally, mut depots) = {
        let mind = centre.mind();
        (mind.tally(), mind.depots())
    };
    depots.retain(|view| caller.viewer().sees_name(&view.name));
    let mut registry = Registry::with_prefix("posthaste");
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "What runs", Info::new(version));
    register_requests(&mut registry, &tally);
    register_depots(&mut registry, centre, &depots);
    register_movers(&mut registry, &centre.movers.all());
    registry.register(
        "events",
        "What happened since the service started, as `GET /v1/events` names it",
        centre.counts.events.clone(),
    );
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|cause| Error::new(ErrorKind::Other, "write", "the metrics").cause(cause))?;
    Ok(([(header::CONTENT_TYPE, KIND)], text))
}

fn register_requests(registry: &mut Registry, tally: &Tally) {
    let requests = Gauges::default();
    for (kind, states) in [
        ("stage-out", &tally.requests),
        ("stage-in", &tally.stage_ins),
    ] {
        for (state, count) in states {
            let labels = vec![("kind", kind.to_owned()), ("state", (*state).to_owned())];
            requests.get_or_create(&labels).set(whole(*count));
        }
    }
    registry.register("requests", "Requests in the books, by state", requests);
    let one = |count| {
        let gauge: Gauge = Gauge::default();
        gauge.set(whole(count));
        gauge
    };
    registry.register(
        "requests_at_risk",
        "Requests under way that are forecast to be late",
        one(tally.at_risk),
    );
    registry.register(
        "requests_late",
        "Requests under way whose deadline has passed",
        one(tally.missed),
    );
    registry.register_with_unit(
        "waiting",
        "What is not safe yet, or not here yet",
        Unit::Bytes,
        one(tally.waiting.get()),
    );
    if let Some(slack) = tally.slack_micros {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(slack as f64 / MICROS);
        registry.register_with_unit(
            "least_slack",
            "Least time from a p90 finish to its deadline, negative where it is late",
            Unit::Seconds,
            gauge,
        );
    }
}

fn register_depots(registry: &mut Registry, centre: &Centre, depots: &[DepotView]) {
    let [up, capacity, free, rate] = [(); 4].map(|()| Gauges::default());
    let stored = Family::<Labels, Counter>::default();
    for view in depots {
        let named = vec![("depot", view.name.clone())];
        let is_up = i64::from(view.state == DepotState::Up);
        up.get_or_create(&named).set(is_up);
        capacity
            .get_or_create(&named)
            .set(whole(view.capacity.get()));
        free.get_or_create(&named).set(whole(view.free.get()));
        let quantiles = [
            ("0.1", view.rate_p10),
            ("0.5", view.rate_p50),
            ("0.9", view.rate_p90),
        ];
        for (quantile, forecast) in quantiles {
            let labels = [named.clone(), vec![("quantile", quantile.to_owned())]].concat();
            rate.get_or_create(&labels).set(whole(forecast.get()));
        }
        if let Some(depot) = centre.depots.named(&view.name) {
            let bytes = depot.meter.stored().get();
            stored.get_or_create(&named).inc_by(bytes);
        }
    }
    registry.register("depot_up", "Whether the depot answers", up);
    registry.register_with_unit(
        "depot_capacity",
        "Most that we may keep there",
        Unit::Bytes,
        capacity,
    );
    registry.register_with_unit(
        "depot_free",
        "Space left for new fragments, after what is stored and on its way",
        Unit::Bytes,
        free,
    );
    registry.register(
        "depot_rate_bytes_per_second",
        "What the path to it is forecast to carry",
        rate,
    );
    registry.register_with_unit(
        "depot_stored",
        "What was sent there and acknowledged since the service started",
        Unit::Bytes,
        stored,
    );
}

fn register_movers(registry: &mut Registry, movers: &[api::Mover]) {
    let [states, working] = [(); 2].map(|()| Gauges::default());
    let moved = Family::<Labels, Counter>::default();
    for mover in movers {
        let state = vec![("state", mover.state.to_string())];
        states.get_or_create(&state).inc();
        // Movers change their names; their hosts stay.
        let host = vec![("host", mover.host.clone())];
        let count = whole(mover.working);
        working.get_or_create(&host).inc_by(count);
        moved.get_or_create(&host).inc_by(mover.bytes);
    }
    registry.register("movers", "Movers that are there, by state", states);
    registry.register(
        "mover_working",
        "Chunks that movers of this host have",
        working,
    );
    registry.register_with_unit(
        "mover_moved",
        "What movers of this host moved since they joined",
        Unit::Bytes,
        moved,
    );
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
