//! Depots: listed, added, removed.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use posthaste_api as api;
use posthaste_core::contract::{DepotTerms, Drain, Input, Windows};
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_journal::DepotRecord;
use posthaste_types::{ByteRate, Bytes, DepotId};

use super::{Answer, Desk};
use crate::{circuits, depots, monotonic, render, secrets};

/// Bytes of a depot's name.
const NAME_BYTES_MAX: usize = 64;

/// Lists the depots in the books.
#[utoipa::path(get, path = "/v1/depots", tag = "depots",
    responses((status = 200, body = Vec<api::Depot>), (status = 401, body = api::Problem)))]
pub(crate) async fn list(State(desk): State<Desk>) -> Json<Vec<api::Depot>> {
    let centre = &desk.centre;
    Json(
        centre
            .depots
            .all()
            .iter()
            .map(|depot| render::depot(centre, depot))
            .collect(),
    )
}

/// Adds a depot, or changes the facts of the one with that name. The relay is asked how it is
/// doing first, so that a wrong address, key or secret is said at once.
#[utoipa::path(post, path = "/v1/depots", tag = "depots", request_body = api::NewDepot,
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem),
        (status = 422, body = api::Problem), (status = 502, body = api::Problem)))]
pub(crate) async fn add(
    State(desk): State<Desk>,
    Json(new): Json<api::NewDepot>,
) -> Answer<Json<api::Depot>> {
    let named_well = new.name.len() <= NAME_BYTES_MAX
        && new.name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && new
            .name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !named_well {
        return Err(Error::new(ErrorKind::Invalid, "add", format!("depot {}", new.name))
            .cause("a name is up to 64 letters, digits, `-`, `_` and `.`, and starts with a letter or digit")
            .into());
    }
    let secret = depots::parse_secret(&new.secret, &new.name)?;
    let mut record = DepotRecord {
        id: DepotId::new(0),
        name: new.name,
        url: new.url,
        fingerprint: new.fingerprint,
        capacity: Bytes::ZERO,
        rate_max: new.rate_bytes_per_s_max.map(ByteRate::new),
        terms: DepotTerms {
            windows: hours(new.hours.as_deref())?,
            domain: new.domain.unwrap_or_default(),
            is_landmark: new.landmark,
            send_micro_usd: micro_usd(new.usd_per_gb)?,
            keep_micro_usd: micro_usd(new.usd_per_gb_month)?,
        },
        level: level(new.level)?,
    };
    let status = depots::open(record.clone(), secret, &desk.centre.gateways, monotonic())?
        .client
        .status()
        .await?;
    let most = Bytes::new(new.capacity_bytes.unwrap_or(u64::MAX));
    record.capacity = status.capacity.min(most);
    let centre = &desk.centre;
    let path = depots::secret_path(centre.store.directory(), &record.name);
    secrets::write_private(&path, &format!("{}\n", secrets::to_hex(&secret)))?;
    record.id = centre
        .store
        .journal(|journal| journal.keep_depot(&record))?;
    let depot = Arc::new(depots::open(record, secret, &centre.gateways, monotonic())?);
    depot.heed(&status);
    centre.depots.insert(Arc::clone(&depot));
    centre.tell(added(&depot.record)).await?;
    centre.tell(lent(&depot.record)).await?;
    centre.tell(levelled(&depot.record)).await?;
    crate::tell_ways(centre, &depot).await?;
    circuits::offer(centre).await?;
    let rate_max = match (depot.record.rate_max, status.rate_limit) {
        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
        (ours, theirs) => ours.or(theirs),
    };
    let free = status.free.min(depot.record.capacity);
    centre
        .tell(Input::DepotUp {
            depot: depot.record.id,
            free,
            rate_max,
        })
        .await?;
    let _ = desk.watches.send(Arc::clone(&depot)).await;
    Ok(Json(render::depot(centre, &depot)))
}

/// What the mind is told of a depot in the books.
pub(crate) fn added(record: &DepotRecord) -> Input {
    Input::DepotAdded {
        depot: record.id,
        name: record.name.clone(),
        capacity: record.capacity,
        rate_max: record.rate_max,
    }
}

/// On which terms a depot is lent, its hours by the centre's clock as it is now.
pub(crate) fn lent(record: &DepotRecord) -> Input {
    let mut terms = record.terms.clone();
    let ahead_s = jiff::Zoned::now().offset().seconds();
    terms.windows = terms.windows.ahead_of_utc(ahead_s / 60);
    Input::DepotLent {
        depot: record.id,
        terms,
    }
}

/// How many hops from the centre a depot lies.
pub(crate) fn levelled(record: &DepotRecord) -> Input {
    Input::DepotLevelled {
        depot: record.id,
        level: record.level,
    }
}

/// Most hops from the centre: more would say nothing.
const LEVEL_MAX: u8 = 9;

fn level(level: Option<u8>) -> Answer<u8> {
    let level = level.unwrap_or(1);
    if (1..=LEVEL_MAX).contains(&level) {
        return Ok(level);
    }
    Err(
        Error::new(ErrorKind::Invalid, "read", format!("level {level}"))
            .cause(format!("a level is from 1 to {LEVEL_MAX}"))
            .into(),
    )
}

fn hours(text: Option<&str>) -> Answer<Windows> {
    let read = text.map(str::parse::<Windows>).transpose();
    let read =
        read.map_err(|cause| Error::new(ErrorKind::Invalid, "read", "the hours").cause(cause))?;
    Ok(read.unwrap_or_default())
}

/// Most that a gigabyte may be said to cost, in dollars.
const USD_MAX: f64 = 1e6;

/// Dollars as millionths of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range is refused"
)]
fn micro_usd(usd: Option<f64>) -> Answer<u64> {
    let usd = usd.unwrap_or(0.0);
    if (0.0..=USD_MAX).contains(&usd) {
        return Ok((usd * 1e6).round() as u64);
    }
    Err(
        Error::new(ErrorKind::Invalid, "read", format!("price {usd}"))
            .cause("a price is from 0 to a million dollars for a gigabyte")
            .into(),
    )
}

/// Takes a depot out of the books. What it holds stays there until it expires.
#[utoipa::path(delete, path = "/v1/depots/{name}", tag = "depots",
    params(("name" = String, Path, description = "The depot's name")),
    responses((status = 204), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn remove(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let centre = &desk.centre;
    let depot = centre.depots.named(&name).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "remove", format!("depot {name}"))
            .hint("`posthaste depot list` shows the depots in the books")
    })?;
    centre
        .store
        .journal(|journal| journal.remove_depot(depot.record.id))?;
    centre.depots.remove(depot.record.id);
    centre
        .tell(Input::DepotRemoved {
            depot: depot.record.id,
        })
        .await?;
    circuits::offer(centre).await?;
    let _ = std::fs::remove_file(depots::secret_path(centre.store.directory(), &name));
    Ok(StatusCode::NO_CONTENT)
}

/// Drains a depot: nothing new goes there, what is under way ends, and what it holds counts and is given
/// out. Asking again changes only whether what it holds goes on to others.
#[utoipa::path(post, path = "/v1/depots/{name}/drain", tag = "depots",
    params(("name" = String, Path, description = "The depot's name")),
    request_body = api::NewDrain,
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn drain(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    Json(new): Json<api::NewDrain>,
) -> Answer<Json<api::Depot>> {
    let drain = if new.moves { Drain::Move } else { Drain::Keep };
    set_drain(&desk, &name, drain).await
}

/// Uses a depot again that was drained. One that says itself that it ends stays drained.
#[utoipa::path(delete, path = "/v1/depots/{name}/drain", tag = "depots",
    params(("name" = String, Path, description = "The depot's name")),
    responses((status = 200, body = api::Depot), (status = 401, body = api::Problem),
        (status = 404, body = api::Problem)))]
pub(crate) async fn undrain(
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Answer<Json<api::Depot>> {
    set_drain(&desk, &name, Drain::Off).await
}

async fn set_drain(desk: &Desk, name: &str, drain: Drain) -> Answer<Json<api::Depot>> {
    let centre = &desk.centre;
    let depot = centre.depots.named(name).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "drain", format!("depot {name}"))
            .hint("`posthaste depot list` shows the depots in the books")
    })?;
    let input = Input::DepotDrained {
        depot: depot.record.id,
        drain,
        is_own: false,
    };
    centre.tell(input).await?;
    Ok(Json(render::depot(centre, &depot)))
}
