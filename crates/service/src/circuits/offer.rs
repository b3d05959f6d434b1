//! Which circuits the mind may ask for, and what they lead to.

use std::{collections::BTreeMap, sync::Arc};

use posthaste_core::contract::{CircuitTerms, Input};
use posthaste_endpoint::{Result, gateway::Gateways};
use posthaste_types::DepotId;

use super::Seller;
use crate::{
    depots::{Depot, Depots},
    driver::Centre,
};

/// Tells the mind which circuits lead to depots in the books, and on which terms, where that is new. To be called when
/// depots were added or removed too.
///
/// # Errors
/// [`ErrorKind::Cancelled`](posthaste_endpoint::ErrorKind::Cancelled) when the service is ending.
pub(crate) async fn offer(centre: &Centre) -> Result<()> {
    // Held until all is said: what was looked at last is said last.
    let mut told = centre.circuits.told.lock().await;
    let mut offered = BTreeMap::new();
    for (id, seller) in &centre.circuits.sellers {
        let depots = ends(seller, &centre.depots, &centre.gateways);
        if !depots.is_empty() {
            offered.insert(*id, terms(seller, depots));
        }
    }
    for (&circuit, terms) in &offered {
        if told.get(&circuit) != Some(terms) {
            let terms = terms.clone();
            centre
                .tell(Input::CircuitOffered { circuit, terms })
                .await?;
        }
    }
    for &circuit in told.keys().filter(|id| !offered.contains_key(id)) {
        centre.tell(Input::CircuitWithdrawn { circuit }).await?;
    }
    *told = offered;
    Ok(())
}

/// The depots in the books that a circuit leads to.
fn ends(seller: &Seller, depots: &Depots, gateways: &Gateways) -> Vec<DepotId> {
    let all = depots.all();
    let led = all.iter().filter(|depot| leads_to(seller, depot, gateways));
    led.map(|depot| depot.record.id).collect()
}

/// Whether it names the depot, or a gateway that leads to it.
fn leads_to(seller: &Seller, depot: &Arc<Depot>, gateways: &Gateways) -> bool {
    let address = depot.client.address();
    let mut names = seller.circuit.leads_to.iter();
    names.any(|name| *name == depot.record.name || gateways.leads_to_relay(name, address))
}

/// The terms of a circuit that leads to these depots.
pub(super) fn terms(seller: &Seller, depots: Vec<DepotId>) -> CircuitTerms {
    let can = seller.provider.capabilities();
    CircuitTerms {
        name: seller.circuit.name.clone(),
        depots,
        rate_max: seller.circuit.rate_max,
        lead: can.lead,
        least: can.least,
        hour_micro_usd: seller.circuit.hour_micro_usd,
    }
}
