//! Asks depots to keep space for datasets, and reports their answers to the mind.

use std::sync::Arc;

use posthaste_core::contract::{Command, Input, SpaceNews};
use posthaste_endpoint::{
    Result,
    relay::{SpaceAnswer, wire::SpaceBody},
};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use crate::{depots::Depots, driver::Arrival, hands::Hands, store::Store};

impl Hands {
    /// Carries out commands about space, and ignores others.
    pub(crate) fn space(&mut self, command: &Command) {
        if let Command::ReserveSpace {
            request,
            depot,
            bytes,
            until,
            reason: _,
        } = *command
        {
            self.ask_for_space(request, depot, Some((bytes, until)));
        }
        if let Command::ReleaseSpace { request, depot, .. } = *command {
            self.ask_for_space(request, depot, None);
        }
    }

    /// Asks a depot to keep space for a request until then, or none any more.
    fn ask_for_space(
        &mut self,
        request: RequestId,
        depot: DepotId,
        wanted: Option<(Bytes, Timestamp)>,
    ) {
        let (store, depots) = (Arc::clone(&self.store), Arc::clone(&self.depots));
        let inputs = self.inputs.clone();
        self.running.spawn(async move {
            let asked = ask(&store, &depots, request, depot, wanted).await;
            let news = asked.unwrap_or_else(|error| {
                tracing::warn!(%request, "{error}");
                SpaceNews::Failed
            });
            let input = Input::SpaceTold {
                request,
                depot,
                news,
            };
            let _ = inputs.send(Arrival::bare(input)).await;
        });
    }
}

async fn ask(
    store: &Store,
    depots: &Depots,
    request: RequestId,
    depot: DepotId,
    wanted: Option<(Bytes, Timestamp)>,
) -> Result<SpaceNews> {
    let Some(depot) = depots.get(depot) else {
        return Ok(SpaceNews::Failed);
    };
    let dataset = tokio::task::block_in_place(|| store.dataset(request))?;
    let Some((bytes, until)) = wanted else {
        depot.client.release_space(&dataset).await?;
        return Ok(SpaceNews::Released);
    };
    // Relays count in whole seconds.
    let until_s = until.as_micros().div_ceil(1_000_000);
    let body = SpaceBody {
        bytes: bytes.get(),
        from_unix_s: None,
        until_unix_s: until_s,
        hold_s: None,
    };
    Ok(match depot.client.reserve_space(&dataset, &body).await? {
        SpaceAnswer::Granted(grant) => SpaceNews::Granted {
            bytes: Bytes::new(grant.bytes),
            until: Timestamp::from_secs(grant.until_unix_s),
        },
        SpaceAnswer::Full { most } => SpaceNews::Refused { most },
    })
}
