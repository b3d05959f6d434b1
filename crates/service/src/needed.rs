//! Depots that can't go: released datasets need what they hold.

use posthaste_core::{
    Mind,
    contract::{Input, Outbox, ReleasePolicy, RequestState, RequestView},
};
use posthaste_endpoint::{Error, ErrorKind, Result, relay::Fingerprint};
use posthaste_journal::DepotRecord;
use posthaste_types::{DepotId, Timestamp};

/// Most requests that a refusal names.
const NEEDED_NAMED_MAX: usize = 10;

/// Returns the requests of which a depot holds something.
pub(crate) fn held(mind: &Mind, depot: DepotId) -> Vec<RequestView> {
    let is_held = |view: &RequestView| {
        let mut shares = view.shares.iter();
        shares.any(|share| share.depot == depot && share.stored > 0)
    };
    mind.requests().filter(is_held).collect()
}

/// Refuses to remove a depot that is needed.
///
/// # Errors
/// [`ErrorKind::Conflict`].
pub(crate) fn refuse_removal(
    depot: &DepotRecord,
    held: &[RequestView],
    copy: impl FnOnce() -> Result<Mind>,
    now: Timestamp,
) -> Result<()> {
    let name = &depot.name;
    let hint = format!(
        "`posthaste depot drain {name} --move` brings that elsewhere, or pull it first; --force removes the depot all the same"
    );
    refuse(depot, held, ("remove depot", &hint), copy, now)
}

/// Returns whether what shows this key is another relay than a depot.
pub(crate) fn is_other(known: &DepotRecord, fingerprint: &str) -> bool {
    let key = |text: &str| text.parse::<Fingerprint>().ok();
    key(&known.fingerprint) != key(fingerprint)
}

/// Refuses another relay in the place of a depot that is needed: nothing of what that holds is
/// there.
///
/// # Errors
/// [`ErrorKind::Conflict`].
pub(crate) fn refuse_other(
    known: &DepotRecord,
    held: &[RequestView],
    copy: impl FnOnce() -> Result<Mind>,
    now: Timestamp,
) -> Result<()> {
    let name = &known.name;
    let hint = format!(
        "it is another relay, as it shows another key: call it otherwise, or `posthaste depot drain {name} --move` first"
    );
    refuse(known, held, ("add depot", &hint), copy, now)
}

/// Refuses to take a depot out of the books without which a dataset whose source is gone would not
/// be safe, or out of reach.
fn refuse(
    depot: &DepotRecord,
    held: &[RequestView],
    (operation, hint): (&'static str, &str),
    copy: impl FnOnce() -> Result<Mind>,
    now: Timestamp,
) -> Result<()> {
    let id = depot.id;
    let is_only = |view: &RequestView| {
        let mut shares = view.shares.iter();
        shares.all(|share| share.depot == id || share.stored == 0)
    };
    if held.is_empty() {
        return Ok(());
    }
    let mut without = copy()?;
    let gone = Input::DepotRemoved { depot: id };
    without.step(now, vec![gone], &mut Outbox::default());
    let is_lost = |view: &RequestView| {
        let after = without.request(view.request);
        after.is_some_and(|after| after.is_unsafe || after.chunks_out_of_reach > 0)
    };
    let was_released =
        |view: &RequestView| view.spec.release != ReleasePolicy::Never && !view.source_kept;
    let is_needed = |view: &&RequestView| match view.state {
        RequestState::Released => is_lost(view),
        RequestState::Delivered => {
            was_released(view) && is_only(view) && view.spec.destinations.contains(&id)
        }
        RequestState::Moving
        | RequestState::Safe
        | RequestState::Refused
        | RequestState::Cancelled
        | RequestState::Failed => false,
    };
    let needed: Vec<String> = (held.iter().filter(is_needed))
        .map(|view| view.request.to_string())
        .collect();
    if needed.is_empty() {
        return Ok(());
    }
    let name = &depot.name;
    let named = needed.iter().take(NEEDED_NAMED_MAX).cloned();
    let named = named.collect::<Vec<_>>().join(", ");
    let named = match needed.len().saturating_sub(NEEDED_NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    };
    Err(Error::new(ErrorKind::Conflict, operation, name.clone())
        .cause(format!(
            "{named} would not be safe without what it holds, and the source is gone"
        ))
        .hint(hint.to_owned()))
}
