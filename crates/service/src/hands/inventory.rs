//! Asks depots for their fragments of a dataset.

use std::{collections::HashMap, sync::Arc};

use posthaste_core::contract::{Fault, Input};
use posthaste_endpoint::relay::DatasetId;
use posthaste_types::{ChunkIndex, DepotId, Digest, FragmentIndex, RequestId};

use super::Hands;
use crate::{
    depots::{Depots, fault_of},
    driver::Arrival,
};

impl Hands {
    pub(super) fn inventory(&mut self, request: RequestId, depot: DepotId) {
        let (depots, store, inputs) = (
            Arc::clone(&self.depots),
            Arc::clone(&self.store),
            self.inputs.clone(),
        );
        let outgoing = self.outbound.outgoing();
        self.running.spawn(async move {
            let known = store.dataset(request);
            let known = known.and_then(|dataset| Ok((dataset, store.digests(request)?)));
            let (dataset, known) = match known {
                Ok(known) => known,
                // No depot caused that: the mind asks again.
                Err(error) => return outgoing.complaints.note(request, &error),
            };
            let input = match held(&depots, depot, &dataset, &known).await {
                Ok(held) => Input::DepotInventory {
                    depot,
                    request,
                    held,
                },
                Err(fault) => Input::DepotDown { depot, fault },
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }
}

async fn held(
    depots: &Depots,
    depot: DepotId,
    dataset: &DatasetId,
    known: &HashMap<ChunkIndex, Vec<Digest>>,
) -> Result<Vec<(ChunkIndex, FragmentIndex)>, Fault> {
    let depot = depots.get(depot).ok_or(Fault::Unreachable)?;
    let inventory = depot
        .client
        .inventory(dataset)
        .await
        .map_err(|error| fault_of(&error))?;
    // A fragment with another digest is of no use: it is sent again.
    let right = |chunk: &ChunkIndex, fragment: &FragmentIndex, digest| {
        let place = if *fragment == FragmentIndex::WHOLE {
            0
        } else {
            usize::from(fragment.get()) + 1
        };
        known.get(chunk).and_then(|digests| digests.get(place)) == Some(digest)
    };
    Ok(inventory
        .iter()
        .filter(|(chunk, fragment, digest)| right(chunk, fragment, digest))
        .map(|(chunk, fragment, _)| (*chunk, *fragment))
        .collect())
}
