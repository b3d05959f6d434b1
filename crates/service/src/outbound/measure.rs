//! Measures how fast an address accepts data, before a deadline is promised on a guess.

use std::time::Duration;

use posthaste_api as api;
use posthaste_core::contract::{Input, Knowledge};
use posthaste_endpoint::{Error, ErrorKind, Location, Result, measure_writes};
use posthaste_journal::RequestRecord;
use posthaste_types::{Bytes, SourceId};

use super::{submit::open, way::way};
use crate::{
    credentials::{Behalf, apart},
    driver::Centre,
    inbound::{look::open_at, way_of},
    render,
};

/// Smallest transfer worth a probe: less arrives before a probe would end.
pub(crate) const FROM_BYTES: u64 = 1 << 30;
/// Fraction of the transfer that may be written as a probe: one byte in this many.
pub(crate) const SHARE: u64 = 100;
/// Longest probe, in bytes.
pub(crate) const TRIAL_BYTES_MAX: u64 = 64 << 20;
/// Longest probe: a probe that takes longer counts with what it moved until then.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

/// Measures the path of a large request if nothing is known of it. Returns the inputs for the mind
/// before it decides; none if the probe fails, because the fault shows again when data moves.
pub(super) async fn before(
    centre: &Centre,
    record: &RequestRecord,
    behalf: &Behalf,
    bytes: Bytes,
) -> Option<(SourceId, Vec<Input>)> {
    let way = way(record);
    let is_known = |view: &posthaste_core::contract::SourceView| {
        view.name == way && is_measured(view.knowledge)
    };
    let is_far = |address: &str| {
        let location = Location::parse(address.as_ref());
        location.is_ok_and(|location| !matches!(location, Location::Local(_)))
    };
    if bytes.get() < FROM_BYTES
        || record.one_file.is_some()
        || super::submit::is_far(&String::from_utf8_lossy(&record.source))
        || !is_far(&record.destination)
        || centre.mind().sources().any(|view| is_known(&view))
    {
        return None;
    }
    let most = (bytes.get() / SHARE).min(TRIAL_BYTES_MAX);
    let trial = async {
        let endpoint = open(record, behalf).await?;
        trial(endpoint.as_ref(), most).await
    };
    let number = || centre.store.journal(|journal| journal.source(&way));
    let measured = trial
        .await
        .and_then(|measured| Ok((tokio::task::block_in_place(number)?, measured)));
    match measured {
        Ok((source, (bytes, window))) => Some((source, told(source, way, bytes, window))),
        Err(error) => {
            tracing::info!(request = %record.id, "{error}");
            None
        }
    }
}

/// Returns whether data moved on a path lately. A rate that only the owner stated counts as a
/// guess.
pub(crate) const fn is_measured(knowledge: Knowledge) -> bool {
    match knowledge {
        Knowledge::Transfers | Knowledge::Probe => true,
        Knowledge::Advertised | Knowledge::Assumed => false,
    }
}

/// Measures the path to an address that a user names.
///
/// # Errors
/// Errors of writing there.
pub(crate) async fn asked(centre: &Centre, owner: &str, new: &api::NewProbe) -> Result<api::Path> {
    let behalf = tokio::task::block_in_place(|| centre.store.actors.owner(owner))?;
    let endpoint = open_at(&new.address, new.profile.as_ref(), &behalf).await?;
    endpoint.check_writes()?;
    let measured = trial(endpoint.as_ref(), TRIAL_BYTES_MAX).await;
    let (bytes, window) = measured.map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            return error.hint("name a directory that is there");
        }
        error
    })?;
    let end = apart(owner, &way_of(&new.address));
    let way = super::way::way_to(&end);
    let source =
        tokio::task::block_in_place(|| centre.store.journal(|journal| journal.source(&way)))?;
    for input in told(source, way, bytes, window) {
        centre.put_down(input).await?;
    }
    let now = centre.clock.now();
    let found = centre.mind().sources().find(|view| view.source == source);
    found
        .map(|view| render::path_of_source(&view, now))
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "probe", &new.address))
}

async fn trial(
    endpoint: &dyn posthaste_endpoint::Endpoint,
    most: u64,
) -> Result<(Bytes, Duration)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let measured = tokio::time::timeout(WITHIN, measure_writes(endpoint, most)).await;
    let (bytes, window) = measured.unwrap_or_else(|_| {
        let subject = endpoint.show(b"");
        Err(Error::new(ErrorKind::TimedOut, "probe", subject)
            .cause(format!("the trial took longer than {} s", WITHIN.as_secs())))
    })?;
    Ok((Bytes::new(bytes as u64), window))
}

pub(crate) fn told(source: SourceId, name: String, bytes: Bytes, window: Duration) -> Vec<Input> {
    vec![
        Input::SourceFound {
            source,
            name,
            rate_max: None,
        },
        Input::Inbound {
            source,
            bytes,
            window,
            saturated: true,
        },
    ]
}
