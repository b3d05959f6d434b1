//! How a peer is reached: a relay directly; one that was started over SSH by whatever is open.

use std::{sync::Arc, time::Duration};

use super::{
    pool::{Lease, Pool},
    started::Started,
    wire::Operation,
};
use crate::{Result, relay::Credential};

/// How a peer is reached.
pub(super) enum Ways {
    /// It listens, and runs whether we are there or not.
    Direct(Arc<Pool>, Credential),
    /// It was started for us.
    Started(Started),
}

impl Ways {
    /// The right to make one request, and what to be let in with.
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

    /// The connections there are.
    pub(super) fn pool(&self) -> Option<Arc<Pool>> {
        match self {
            Self::Direct(pool, _) => Some(Arc::clone(pool)),
            Self::Started(started) => started.pool(),
        }
    }

    /// Time there and back.
    pub(super) fn rtt(&self) -> Duration {
        match self {
            Self::Direct(pool, _) => pool.rtt(),
            Self::Started(started) => started.rtt(),
        }
    }
}
