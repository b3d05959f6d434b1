//! Finds reservations that providers keep for us and the mind does not know.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use posthaste_endpoint::Result;
use posthaste_types::ReservationId;

use super::Seller;
use crate::driver::Centre;

/// Interval of asking each provider for our reservations. One that was not released in time stays
/// reserved that much longer.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Releases from time to time what providers keep under our keys and the mind does not know:
/// reservations granted when nobody listened any more.
///
/// # Errors
/// None: failures are logged and retried.
pub(crate) async fn sweep_all(centre: Arc<Centre>) -> Result<()> {
    loop {
        for seller in centre.circuits.sellers.values() {
            if let Err(error) = sweep(&centre, seller).await {
                tracing::warn!(circuit = seller.circuit.name, "{error}");
            }
        }
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

async fn sweep(centre: &Centre, seller: &Seller) -> Result<()> {
    let kept = seller.provider.list().await?;
    // Read after the question: reservations held by then were commanded before, and the mind knew
    // them.
    let all = centre.mind().reservations().into_iter();
    let known: BTreeSet<ReservationId> = all.map(|held| held.reservation).collect();
    for status in kept {
        let key = status.key.as_deref().unwrap_or_default();
        let ours = centre.circuits.reservation_of(key);
        if let Some(reservation) = ours.filter(|id| !known.contains(id)) {
            seller.provider.release(&status.id).await?;
            let name = &seller.circuit.name;
            tracing::warn!(%reservation, "nobody needs it any more, given back to {name}");
        }
    }
    Ok(())
}
