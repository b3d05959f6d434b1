//! Measures how fast sources deliver, before a deadline is promised on a guess.

use std::time::Duration;

use futures_util::future::join_all;
use posthaste_core::contract::Input;
use posthaste_endpoint::{Error, ErrorKind, Location, Prices, Result, measure_reads};
use posthaste_journal::{RequestRecord, StageIn};
use posthaste_types::{Bytes, SourceId};

use super::{list::List, look, ways};
use crate::{
    credentials::Behalf,
    driver::Centre,
    outbound::measure::{FROM_BYTES, SHARE, TRIAL_BYTES_MAX, WITHIN, is_measured, told},
};

/// Measurement of a source: its number, the name of its path, and the inputs for the mind.
pub(super) type Measured = (SourceId, String, Vec<Input>);

/// Measures the paths from unmeasured sources if much is to come from there and reading costs
/// nothing. A failed probe reports nothing: the fault shows again when data moves.
pub(super) async fn before(
    centre: &Centre,
    record: &RequestRecord,
    behalf: &Behalf,
    list: &List,
) -> Vec<Measured> {
    let Some(wanted) = &record.stage_in else {
        return Vec::new();
    };
    if list.bytes().get() < FROM_BYTES {
        return Vec::new();
    }
    let named = ways(&record.wishes.owner, &wanted.sources);
    let trials = named.iter().enumerate().map(|(place, way)| async move {
        if !is_wanted(centre, wanted, behalf, place, way) {
            return None;
        }
        let measured = trial(wanted, behalf, list, place).await;
        let number = || centre.store.journal(|journal| journal.source(way));
        let measured =
            measured.and_then(|measured| Ok((tokio::task::block_in_place(number)?, measured)));
        match measured {
            Ok((source, (bytes, window))) => Some((
                source,
                way.clone(),
                told(source, way.clone(), bytes, window),
            )),
            Err(error) => {
                tracing::info!(request = %record.id, "{error}");
                None
            }
        }
    });
    join_all(trials).await.into_iter().flatten().collect()
}

/// Returns whether probing a source is useful and free of cost.
fn is_wanted(centre: &Centre, wanted: &StageIn, behalf: &Behalf, place: usize, way: &str) -> bool {
    let location = Location::parse(wanted.sources[place].as_ref());
    let is_far = location.is_ok_and(|location| !matches!(location, Location::Local(_)));
    let is_known = || {
        let mind = centre.mind();
        mind.sources()
            .any(|view| view.name == way && is_measured(view.knowledge))
    };
    let is_free = || {
        let terms = tokio::task::block_in_place(|| look::terms(wanted, behalf));
        terms.is_ok_and(|terms| terms[place].prices == Prices::default())
    };
    is_far && !is_known() && is_free()
}

/// Reads part of the largest file at a source.
async fn trial(
    wanted: &StageIn,
    behalf: &Behalf,
    list: &List,
    place: usize,
) -> Result<(Bytes, Duration)> {
    let address = &wanted.sources[place];
    let most = (list.bytes().get() / SHARE).min(TRIAL_BYTES_MAX);
    let nothing = || Error::new(ErrorKind::NotFound, "probe", address);
    let file = list.largest_at(place).ok_or_else(nothing)?;
    let entry = list.entry(place, file).ok_or_else(nothing)?;
    let reading = async {
        let endpoint = look::open(address, wanted.profile.as_ref(), behalf).await?;
        let reader = endpoint.open(list.path_there(place, file), &entry).await?;
        measure_reads(reader.as_ref(), most).await
    };
    let measured = tokio::time::timeout(WITHIN, reading).await;
    let (bytes, window) = measured.unwrap_or_else(|_| {
        let why = format!("the trial took longer than {} s", WITHIN.as_secs());
        Err(Error::new(ErrorKind::TimedOut, "probe", address).cause(why))
    })?;
    Ok((Bytes::new(bytes), window))
}
