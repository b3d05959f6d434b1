//! Routes to a peer: a relay directly, one started over SSH by whatever is open.

use std::{sync::Arc, time::Duration};

use super::{
    pool::{Lease, Pool},
    started::Started,
    wire::Operation,
};
use crate::{Result, relay::Credential};

/// Route to a peer.
pub(super) enum Ways {
    /// Permanent listener.
    Direct(Arc<Pool>, Credential),
    /// Process started for this copy.
    Started(Started),
}

impl Ways {
    /// Returns the right to make one request, and the credential for it.
    pub(super) async fn lease(
        &self,
        operation: Operation,
        reuse: bool,
    ) -> Result<(Lease, Credential)> {
        match self {
            Self::Direct(pool, credential) => Ok((pool.lease(reuse).await?, credential.clone())),
            Self::Started(started) => started.lease(operation, reuse).await,
        }
    }

    /// Returns the direct connections.
    pub(super) fn pool(&self) -> Option<Arc<Pool>> {
        match self {
            Self::Direct(pool, _) => Some(Arc::clone(pool)),
            Self::Started(started) => started.pool(),
        }
    }

    /// Returns the round trip time.
    pub(super) fn rtt(&self) -> Duration {
        match self {
            Self::Direct(pool, _) => pool.rtt(),
            Self::Started(started) => started.rtt(),
        }
    }
}
