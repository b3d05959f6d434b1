//! Converts movers' reports from the API, and orders and views to it.

use posthaste_api as api;
use posthaste_core::movers::{LeaseId, MoverId, View};
use posthaste_endpoint::{Checksum, Error, ErrorKind, Result};
use posthaste_types::{Digest, Timestamp};

use super::About;

/// Longest reason of a failure that is kept, in characters.
const WHY_CHARS_MAX: usize = 500;

pub(super) fn shown(view: &View, about: Option<&About>, now: Timestamp) -> api::Mover {
    let rests = view.rests_until.is_some_and(|until| until > now);
    let state = match (view.drains, rests) {
        (true, _) => api::MoverState::Drains,
        (false, true) => api::MoverState::Rests,
        (false, false) => api::MoverState::Works,
    };
    api::Mover {
        name: view.name.clone(),
        host: about.map(|about| about.host.clone()).unwrap_or_default(),
        version: about.map(|about| about.version.clone()).unwrap_or_default(),
        state,
        slots: view.slots,
        working: view.leases as u64,
        done: view.done,
        failed: view.failed,
        bytes: about.map_or(0, |about| about.bytes),
        age_s: now.since(view.joined).as_secs_f64(),
        heard_s: now.since(view.heard).as_secs_f64(),
        failure: about.and_then(|about| about.failure.clone()),
    }
}

pub(super) fn unknown(id: MoverId) -> Error {
    Error::new(ErrorKind::NotFound, "hear", format!("mover {}", id.get()))
        .cause("it is not known (any more)")
        .hint("it joins anew with `POST /v1/movers`")
}

pub(super) fn read_digest(text: &str) -> Result<Digest> {
    let read = text.parse();
    read.map_err(|_| Error::new(ErrorKind::Invalid, "read", "a digest of a mover"))
}

/// Reported end of work: its result, or the reason why there is none.
pub(super) type ReadEnding = (LeaseId, std::result::Result<Came, String>);

/// Result of work.
pub(super) enum Came {
    Digests(Vec<Digest>),
    Stored(Checksum, String),
}

pub(super) fn read_ending(ended: &api::EndedWork) -> Result<ReadEnding> {
    let lease = LeaseId::new(ended.lease);
    let digests = ended.digests.iter().map(|text| read_digest(text));
    let digests = digests.collect::<Result<Vec<_>>>()?;
    if let Some(why) = &ended.failure {
        let plain = why.chars().map(|c| {
            if posthaste_types::is_obeyed(c) {
                ' '
            } else {
                c
            }
        });
        return Ok((lease, Err(plain.take(WHY_CHARS_MAX).collect())));
    }
    if let Some(stored) = &ended.stored {
        let sum = Checksum::from_hex(&stored.checksum)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "read", "a checksum of a mover"))?;
        return Ok((lease, Ok(Came::Stored(sum, stored.receipt.clone()))));
    }
    if digests.is_empty() {
        return Err(
            Error::new(ErrorKind::Invalid, "hear", "that a mover's work has ended")
                .cause("it says neither what came of it nor why it failed"),
        );
    }
    Ok((lease, Ok(Came::Digests(digests))))
}
