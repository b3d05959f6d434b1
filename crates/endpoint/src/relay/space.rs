//! Space that a relay reserves for a dataset.

use http::Method;
use posthaste_types::Bytes as Amount;

use super::{
    DatasetId, RelayClient, Scope,
    cargo::{Ask, Load},
    client::ANSWER_BYTES_MAX,
    wire::{self, SpaceBody, SpaceGrant, SpaceHeld, Target},
};
use crate::{ErrorKind, Result};

/// Answer of a relay to a request for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceAnswer {
    /// Reserved.
    Granted(SpaceGrant),
    /// Refused: the space is not free all the time. An earlier reservation is unchanged.
    Full {
        /// Amount that would be granted for that span.
        most: Amount,
    },
}

impl RelayClient {
    /// Makes or changes the reservation of a dataset: only its uploads draw on it. Repeating the
    /// request changes nothing. The reservation is durable when this returns.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`] from a relay without reservations,
    /// [`ErrorKind::Invalid`] if the request is invalid, [`ErrorKind::Full`] if the relay keeps as
    /// many reservations as it can.
    pub async fn reserve_space(
        &self,
        dataset: &DatasetId,
        wanted: &SpaceBody,
    ) -> Result<SpaceAnswer> {
        let body = serde_json::to_vec(wanted).unwrap_or_default();
        let ask = Ask {
            operation: "reserve space on",
            method: Method::PUT,
            target: Target::Space(*dataset),
            query: "",
            scope: Scope::All,
            body: Some(Load::plain(body)),
        };
        let (lease, response) = match self.send(&ask).await {
            Ok(answered) => answered,
            Err(error) => {
                let mut facts = error.context().iter();
                let most = facts.find(|(key, _)| *key == wire::MOST_BYTES);
                return match most.and_then(|(_, most)| most.parse().ok()) {
                    Some(most) if error.kind() == ErrorKind::Full => Ok(SpaceAnswer::Full {
                        most: Amount::new(most),
                    }),
                    _ => Err(error),
                };
            }
        };
        let told = self
            .collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await?;
        let grant = serde_json::from_slice(&told).map_err(|cause| self.nonsense(&ask, cause))?;
        Ok(SpaceAnswer::Granted(grant))
    }

    /// Gives back the reservation of a dataset. Stored fragments stay. Giving it back again changes
    /// nothing.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`] from a relay without reservations.
    pub async fn release_space(&self, dataset: &DatasetId) -> Result<()> {
        let ask = Ask {
            operation: "release space on",
            method: Method::DELETE,
            target: Target::Space(*dataset),
            query: "",
            scope: Scope::All,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }

    /// Lists all reservations, in order of the datasets. Needs a token for every dataset.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`] from a relay without reservations.
    pub async fn spaces(&self) -> Result<Vec<SpaceHeld>> {
        let ask = Ask {
            operation: "list what is reserved on",
            method: Method::GET,
            target: Target::Spaces,
            query: "",
            scope: Scope::All,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        let told = self
            .collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await?;
        serde_json::from_slice(&told).map_err(|cause| self.nonsense(&ask, cause))
    }
}
