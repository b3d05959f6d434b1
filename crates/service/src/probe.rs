//! Probes the path to a depot, or lets a depot probe the path to another: sends for as long as the
//! mind's rule says, and reports the result.

use std::{sync::atomic::Ordering, time::Duration};

use posthaste_core::contract::{Finding, Input};
use posthaste_endpoint::{Error, ErrorKind, Result, relay::Measured};
use posthaste_types::{Bytes, DepotId};

use crate::depots::Depots;

/// Sends at most `budget` to the depot and returns the input for the mind.
///
/// # Errors
/// A depot that is gone, and the relay's errors: another probe may succeed later in any case.
pub(crate) async fn probe(depots: &Depots, depot: DepotId, budget: Bytes) -> Result<Input> {
    let found = depots
        .get(depot)
        .ok_or_else(|| Error::new(ErrorKind::NotFound, "probe", format!("depot {depot}")))?;
    let (probed, finding) = posthaste_relay::probe(&found.client, budget).await?;
    let Finding {
        bytes,
        window,
        is_bound,
    } = finding;
    Ok(Input::Probed {
        depot,
        sent: probed.sent,
        bytes,
        window,
        is_bound,
    })
}

/// Lets one depot send at most `budget` to another and returns the input for the mind.
///
/// # Errors
/// A depot that is gone, and the relays' errors: another probe may succeed later in any case.
pub(crate) async fn probe_crossing(
    depots: &Depots,
    (from, to): (DepotId, DepotId),
    budget: Bytes,
) -> Result<Input> {
    let found = |depot: DepotId| {
        let gone = || Error::new(ErrorKind::NotFound, "probe", format!("depot {depot}"));
        depots.get(depot).ok_or_else(gone)
    };
    let (giver, taker) = (found(from)?, found(to)?);
    if !giver.measures.load(Ordering::Relaxed) {
        let name = format!("from depot {}", giver.record.name);
        return Err(Error::new(ErrorKind::Unsupported, "probe", name)
            .cause("its relay is of a release that can't measure"));
    }
    let Measured {
        round_trip,
        sent,
        bytes,
        window,
        is_bound,
    } = giver.client.measure(&taker.client, budget).await?;
    Ok(Input::CrossingProbed {
        from,
        to,
        sent,
        bytes,
        window,
        is_bound,
        round_trip: Some(round_trip),
    })
}

/// Returns the input for a failed probe between depots.
pub(crate) fn nothing_crossed(
    (from, to): (DepotId, DepotId),
    budget: Bytes,
    error: &Error,
) -> Input {
    let may_have_sent = !matches!(
        error.kind(),
        ErrorKind::Unsupported | ErrorKind::Busy | ErrorKind::NotFound
    );
    Input::CrossingProbed {
        from,
        to,
        sent: if may_have_sent { budget } else { Bytes::ZERO },
        bytes: Bytes::ZERO,
        window: Duration::ZERO,
        is_bound: true,
        round_trip: None,
    }
}

/// Returns the input for a failed probe: if the connection broke, it may have sent its whole
/// budget.
pub(crate) fn nothing(depot: DepotId, budget: Bytes, error: &Error) -> Input {
    let may_have_sent = matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Invalid
    );
    Input::Probed {
        depot,
        sent: if may_have_sent { budget } else { Bytes::ZERO },
        bytes: Bytes::ZERO,
        window: Duration::ZERO,
        is_bound: true,
    }
}
