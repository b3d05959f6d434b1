//! Asks depots for their fragments of a dataset.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_core::contract::{Command, Fault, Input, Reason};
use posthaste_endpoint::relay::DatasetId;
use posthaste_types::{ChunkIndex, DepotId, Digest, FragmentIndex, RequestId};
use tokio::sync::mpsc;

use super::Hands;
use crate::{
    depots::{Depots, fault_of},
    driver::Arrival,
    store::Store,
};

impl Hands {
    pub(super) fn inventory(&mut self, command: &Command) {
        let Command::Inventory {
            request,
            depot,
            reason,
        } = command
        else {
            return;
        };
        let (request, depot) = (*request, *depot);
        // A source is removed by the answer.
        let proves = matches!(reason, Reason::AllSafe { .. });
        // A depot may read for long, and is asked again meanwhile.
        let asking = proves.then(|| Asking::begin(&self.asking, (request, depot)));
        if matches!(asking, Some(None)) {
            return;
        }
        let (depots, store, inputs) = (
            Arc::clone(&self.depots),
            Arc::clone(&self.store),
            self.inputs.clone(),
        );
        let outgoing = self.outbound.outgoing();
        self.running.spawn(async move {
            let _asking = asking;
            let known = store.dataset(request);
            let known = known.and_then(|dataset| Ok((dataset, store.digests(request)?)));
            let (dataset, known) = match known {
                Ok(known) => known,
                // No depot caused that: the mind asks again.
                Err(error) => return outgoing.complaints.note(request, &error),
            };
            let input = match held(&depots, depot, (&dataset, proves), &known).await {
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

/// Depots that read what they hold of a request.
pub(super) type Asked = Arc<Mutex<HashSet<(RequestId, DepotId)>>>;

/// Question that is under way until this is dropped.
struct Asking {
    all: Asked,
    this: (RequestId, DepotId),
}

impl Asking {
    /// Returns none if the same is being asked.
    fn begin(all: &Asked, this: (RequestId, DepotId)) -> Option<Self> {
        let is_new = locked(all).insert(this);
        is_new.then(|| Self {
            all: Arc::clone(all),
            this,
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.this);
    }
}

fn locked(all: &Asked) -> MutexGuard<'_, HashSet<(RequestId, DepotId)>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks, before a depot evicts what every destination has, that each destination which is a depot
/// has read all of it and found it right. One that lacks some is asked by the mind what it holds, as
/// after a loss. `alone` lets one ask at a time: for the next, what was just read counts.
pub(super) async fn are_ends_proven(
    depots: &Depots,
    (store, request): (&Store, RequestId),
    inputs: &mpsc::Sender<Arrival>,
    alone: &tokio::sync::Mutex<()>,
) -> bool {
    let _alone = alone.lock().await;
    let known = store.dataset(request);
    let known = known.and_then(|dataset| Ok((dataset, store.digests(request)?)));
    let record = store.request(request);
    let (Ok((dataset, known)), Ok(record)) = (known, record) else {
        return false;
    };
    for name in record.destination.split(',') {
        let Some(end) = depots.named(name) else {
            continue;
        };
        let depot = end.record.id;
        let Ok(held) = held(depots, depot, (&dataset, true), &known).await else {
            return false;
        };
        let whole = held
            .iter()
            .filter(|(_, piece)| *piece == FragmentIndex::WHOLE);
        let whole: HashSet<ChunkIndex> = whole.map(|(chunk, _)| *chunk).collect();
        if whole.len() < known.len() {
            tracing::warn!(%request, depot = name, "lost some of what it had: others keep theirs");
            let fault = Fault::Corrupt;
            let _ = inputs
                .send(Arrival::bare(Input::DepotDown { depot, fault }))
                .await;
            end.beaten.notify_one();
            return false;
        }
    }
    true
}

async fn held(
    depots: &Depots,
    depot: DepotId,
    (dataset, proves): (&DatasetId, bool),
    known: &HashMap<ChunkIndex, Vec<Digest>>,
) -> Result<Vec<(ChunkIndex, FragmentIndex)>, Fault> {
    let depot = depots.get(depot).ok_or(Fault::Unreachable)?;
    let inventory = match proves {
        true => depot.client.proven(dataset).await,
        false => depot.client.inventory(dataset).await,
    };
    let inventory = inventory.map_err(|error| fault_of(&error))?;
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
