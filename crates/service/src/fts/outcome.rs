//! Outcome of the request of a file.

use posthaste_core::contract::{ArrivalState, ArrivalView};
use posthaste_endpoint::Result;
use posthaste_journal::Scan;
use posthaste_types::{RequestId, Timestamp};

use crate::{driver::Centre, render};

/// Outcome of a request.
pub(super) enum Outcome {
    /// Not started.
    Waits,
    /// Moving: chunks that are there, and the start.
    Moves {
        chunks: u32,
        begun: Option<Timestamp>,
    },
    Done(Done),
    /// Ended otherwise.
    Lost {
        reason: String,
        /// Set if its deadline is infeasible: another attempt will not meet it either.
        is_refused: bool,
    },
}

/// Finished.
pub(super) struct Done {
    pub(super) bytes: Option<u64>,
    pub(super) begun: Option<Timestamp>,
}

/// Returns the outcome of a request. Blocking.
pub(super) fn outcome(centre: &Centre, request: RequestId) -> Result<Outcome> {
    let view = centre.mind().arrival(request);
    if let Some(view) = view.as_ref().filter(|view| view.state.is_live()) {
        return Ok(match view.state {
            ArrivalState::Waiting => Outcome::Waits,
            ArrivalState::Moving
            | ArrivalState::Landing
            | ArrivalState::Refused
            | ArrivalState::Arrived
            | ArrivalState::Released
            | ArrivalState::Cancelled
            | ArrivalState::Failed => Outcome::Moves {
                chunks: view.chunks_here,
                begun: view.begun_at,
            },
        });
    }
    let record = centre.store.request(request)?;
    let bytes = match &record.scan {
        None => return Ok(Outcome::Waits),
        Some(Scan::Failed { error, .. }) => {
            return Ok(Outcome::Lost {
                reason: error.clone(),
                is_refused: false,
            });
        }
        Some(Scan::Sealed { bytes, .. }) => bytes.get(),
    };
    let word = match (&view, &record.ended) {
        (Some(view), _) => view.state.name().to_owned(),
        (None, Some(ended)) => ended.clone(),
        // The mind does not know it yet.
        (None, None) => return Ok(Outcome::Waits),
    };
    if word == ArrivalState::Arrived.name() || word == ArrivalState::Released.name() {
        return Ok(Outcome::Done(Done {
            bytes: Some(bytes),
            begun: view.and_then(|view: ArrivalView| view.begun_at),
        }));
    }
    let is_refused = word == ArrivalState::Refused.name();
    let complaint = centre.outgoing.complaints.of(request);
    let reason = match complaint.filter(|_| !is_refused) {
        Some(complaint) => complaint.text,
        None => {
            let shown = render::request(centre, &centre.mind(), &record);
            let offer = shown.offers.first().map(|offer| offer.text.clone());
            let why = shown.reason.unwrap_or(word);
            offer.map_or_else(|| why.clone(), |offer| format!("{why}; {offer}"))
        }
    };
    Ok(Outcome::Lost { reason, is_refused })
}
