//! Depots that receive fragments.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use posthaste_api as api;
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{Credential, RelayAddress, RelayClient},
};

/// Connections to one depot: ordinary ones, and ones that give way to others.
struct Clients {
    ordinary: RelayClient,
    humble: RelayClient,
}

impl Clients {
    fn open(depot: &api::ChoreDepot) -> Result<Self> {
        let fingerprint = depot.fingerprint.parse().map_err(|cause| {
            let subject = format!("fingerprint {}", depot.fingerprint);
            Error::new(ErrorKind::Invalid, "use", subject).cause(cause)
        })?;
        let address = RelayAddress {
            url: depot.url.clone(),
            fingerprint,
        };
        let ordinary = RelayClient::new(address, Credential::Token(depot.token.clone()))?;
        Ok(Self {
            humble: ordinary.humble(),
            ordinary,
        })
    }

    fn is_of(&self, depot: &api::ChoreDepot) -> bool {
        let address = self.ordinary.address();
        address.url == depot.url && address.fingerprint.to_string() == depot.fingerprint
    }
}

/// Depots by name.
#[derive(Default)]
pub(crate) struct Depots {
    known: Mutex<BTreeMap<String, Clients>>,
}

impl Depots {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Clients>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client of a depot, with the token of the work.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the depot's address is invalid.
    pub(crate) fn sender(&self, depot: &api::ChoreDepot, gives_way: bool) -> Result<RelayClient> {
        let mut known = self.known();
        if known
            .get(&depot.name)
            .is_none_or(|clients| !clients.is_of(depot))
        {
            known.insert(depot.name.clone(), Clients::open(depot)?);
        }
        let clients = &known[&depot.name];
        let client = if gives_way {
            &clients.humble
        } else {
            &clients.ordinary
        };
        if let Some(lets_through) = depot.lets_through {
            client.expect_passes(lets_through);
        }
        Ok(client.showing(Credential::Token(depot.token.clone())))
    }

    /// Returns the bytes sent to each depot so far.
    pub(crate) fn carried(&self) -> Vec<api::CarriedBytes> {
        let known = self.known();
        let carried = known.iter().map(|(name, clients)| {
            let both = [&clients.ordinary, &clients.humble];
            let arrived = both.iter().filter_map(|client| client.arrived());
            api::CarriedBytes {
                depot: name.clone(),
                sent: both.iter().map(|client| client.sent().get()).sum(),
                arrived: arrived.map(posthaste_types::Bytes::get).sum(),
            }
        });
        carried.collect()
    }
}
