//! Offers circuits to the mind, with the depots that they lead to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use posthaste_core::contract::{CircuitTerms, Input};
use posthaste_endpoint::{Result, gateway::Gateways};
use posthaste_types::DepotId;

use super::Seller;
use crate::{
    depots::{Depot, Depots},
    driver::Centre,
};

/// Tells the mind which circuits lead to registered depots, and their terms, if that changed.
/// Called also when depots are added or removed.
///
/// # Errors
/// [`ErrorKind::Cancelled`](posthaste_endpoint::ErrorKind::Cancelled) if the service is ending.
pub(crate) async fn offer(centre: &Centre) -> Result<()> {
    // Held until everything is reported, so that the last look is reported last.
    let mut told = centre.circuits.told.lock().await;
    let mut offered = BTreeMap::new();
    for (id, seller) in &centre.circuits.sellers {
        let depots = ends(seller, &centre.depots, &centre.gateways);
        if !depots.is_empty() {
            let ways = ways(seller, &depots);
            let depots = depots.iter().map(|depot| depot.record.id).collect();
            offered.insert(*id, terms(seller, depots, ways));
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

/// Returns the registered depots that a circuit leads to.
fn ends(seller: &Seller, depots: &Depots, gateways: &Gateways) -> Vec<Arc<Depot>> {
    let mut led = depots.all();
    led.retain(|depot| leads_to(seller, depot, gateways));
    led
}

/// Returns the ways to these depots that lie on a circuit, unless all do: those through a gateway
/// it names, or through any if it names none.
fn ways(seller: &Seller, depots: &[Arc<Depot>]) -> Vec<String> {
    if !seller.is_by_name_only() {
        return Vec::new();
    }
    let named = |way: &String| {
        let mut names = seller.circuit.leads_to.iter();
        names.any(|name| Gateways::passes(way, name))
    };
    let (mut on_it, mut through_any) = (BTreeSet::new(), BTreeSet::new());
    for depot in depots {
        let mut ways = depot.client.ways();
        // The last way is the direct one.
        ways.pop();
        on_it.extend(ways.iter().filter(|way| named(way)).cloned());
        through_any.extend(ways);
    }
    let chosen = if on_it.is_empty() { through_any } else { on_it };
    chosen.into_iter().collect()
}

/// Returns whether it names the depot, or a gateway that leads to it. If only streams through
/// gateways use the reservation, there must be one.
fn leads_to(seller: &Seller, depot: &Arc<Depot>, gateways: &Gateways) -> bool {
    if seller.is_by_name_only() && depot.client.ways().len() < 2 {
        return false;
    }
    let address = depot.client.address();
    let mut names = seller.circuit.leads_to.iter();
    names.any(|name| *name == depot.record.name || gateways.leads_to_relay(name, address))
}

/// Returns the terms of a circuit that leads to these depots, with the ways that lie on it.
pub(super) fn terms(seller: &Seller, depots: Vec<DepotId>, ways: Vec<String>) -> CircuitTerms {
    let can = seller.provider.capabilities();
    CircuitTerms {
        name: seller.circuit.name.clone(),
        depots,
        rate_max: seller.circuit.rate_max,
        lead: can.lead,
        least: can.least,
        hour_micro_usd: seller.circuit.hour_micro_usd,
        ways,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use posthaste_core::contract::DepotTerms;
    use posthaste_journal::DepotRecord;
    use posthaste_types::Bytes;

    use super::*;

    fn seller(folder: &Path, more: &str) -> Seller {
        let text = format!(
            "[[circuit]]\nname = 'door'\nprovider = 'local'\naddress = 'http://127.0.0.1:9'\nsecret_file = 'secret'\n\
             rate_max = '1Gbit'\nleads_to = ['ash', 'gate']\n{more}"
        );
        let circuit = posthaste_circuit::parse_circuits(&text, folder).unwrap();
        let circuit = circuit.into_iter().next().unwrap();
        let provider = posthaste_circuit::open(&circuit).unwrap();
        Seller { circuit, provider }
    }

    #[test]
    fn what_carries_only_streams_through_gateways_leads_nowhere_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "0718".repeat(16)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let file = folder.path().join("gateways.toml");
        let gate = "[gate]\naddress = 'gate:1'\nsecret_file = 'secret'\nto = ['10.1.2.3:7421']\n";
        fs::write(&file, gate).unwrap();
        let gateways = Gateways::read(&file).unwrap();
        let none = Gateways::none(file);
        let depot = |name: &str, gateways: &Gateways| {
            let record = DepotRecord {
                id: DepotId::new(1),
                name: name.to_owned(),
                url: "https://10.1.2.3:7421".to_owned(),
                fingerprint: format!("sha256:{}", "07".repeat(32)),
                capacity: Bytes::mebi(1),
                rate_max: None,
                terms: DepotTerms::default(),
                prices: posthaste_core::contract::DepotPrices::default(),
                load_max_permille: None,
                level: 1,
                owner: None,
            };
            let opened = crate::depots::open(
                record,
                [7; 32],
                (gateways, &posthaste_endpoint::Reach::default()),
                crate::monotonic(),
            );
            Arc::new(opened.unwrap())
        };
        let by_name = seller(folder.path(), "");
        let by_flows = seller(folder.path(), "flows = [{ to = '10.1.2.3' }]");
        for (seller, name, gateways, leads) in [
            (&by_name, "ash", &gateways, true),
            (&by_name, "birch", &gateways, true),
            (&by_name, "ash", &none, false),
            (&by_flows, "ash", &none, true),
            (&by_flows, "birch", &none, false),
        ] {
            assert_eq!(
                leads_to(seller, &depot(name, gateways), gateways),
                leads,
                "{name}"
            );
        }
    }
}
