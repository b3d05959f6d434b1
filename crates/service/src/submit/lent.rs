//! Converts depots lent for one request between the API, the journal and the mind.

use posthaste_api as api;
use posthaste_core::contract::{Input, LentTerms, Windows};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{LentFor, RequestRecord};

use crate::{depots::Viewer, driver::Centre, enlist};

/// Most depots lent for one request: as many as it may name.
const LENT_MAX: usize = 64;

/// Parses lent depots into the kept form.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a depot that is not registered, [`ErrorKind::Invalid`] for invalid
/// terms.
pub(crate) fn read(
    centre: &Centre,
    whose: Viewer<'_>,
    lent: &[api::LentFor],
) -> Result<Vec<LentFor>> {
    if lent.len() > LENT_MAX {
        let why = format!(
            "{} depots are lent for it, {LENT_MAX} are the most",
            lent.len()
        );
        return Err(Error::new(ErrorKind::Invalid, "submit", "what is lent").cause(why));
    }
    lent.iter()
        .map(|one| read_one(centre, whose, one))
        .collect()
}

fn read_one(centre: &Centre, whose: Viewer<'_>, one: &api::LentFor) -> Result<LentFor> {
    let invalid = |why: String| {
        Error::new(
            ErrorKind::Invalid,
            "submit",
            format!("what is lent of {}", one.depot),
        )
        .cause(why)
    };
    let depot = centre.depots.known(whose, "send via", &one.depot)?;
    let windows = one.hours.as_deref().map(str::parse::<Windows>).transpose();
    let windows = windows.map_err(|error| invalid(error.to_string()))?;
    let load_max_permille = enlist::load_permille(one.load_below).map_err(invalid)?;
    Ok(LentFor {
        depot: depot.record.name.clone(),
        windows: windows.unwrap_or_default(),
        load_max_permille,
    })
}

/// Returns the inputs that precede a request. Depots whose load counts are asked for it from now
/// on.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a depot that was removed meanwhile.
pub(crate) fn told(centre: &Centre, record: &RequestRecord) -> Result<Vec<Input>> {
    let (mut terms, mut inputs) = (Vec::new(), Vec::new());
    for lent in &record.lent {
        let depot = centre
            .depots
            .named_for(Viewer::of(record), &lent.depot)
            .ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "send via", &lent.depot)
                    .cause("it was taken out of the books")
            })?;
        if lent.load_max_permille.is_some() {
            inputs.push(Input::LoadTold {
                depot: depot.record.id,
                load_permille: depot.load_permille(),
            });
            depot.beaten.notify_one();
        }
        terms.push(LentTerms {
            depot: depot.record.id,
            windows: enlist::by_our_clock(lent.windows.clone()),
            load_max_permille: lent.load_max_permille,
        });
    }
    if !terms.is_empty() {
        let request = record.id;
        inputs.push(Input::LentTold { request, terms });
    }
    Ok(inputs)
}

/// Returns the lent depots as they were requested.
pub(crate) fn shown(record: &RequestRecord) -> Vec<api::LentFor> {
    let lent = record.lent.iter().map(|lent| api::LentFor {
        depot: lent.depot.clone(),
        hours: (!lent.windows.is_always()).then(|| lent.windows.to_string()),
        load_below: lent.load_max_permille.map(enlist::load),
    });
    lent.collect()
}
