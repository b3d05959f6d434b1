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

/// What a relay says to who asks for space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceAnswer {
    /// It is reserved.
    Granted(SpaceGrant),
    /// So much is not free all the time, and what was reserved before is as it was.
    Full {
        /// What would be granted over that span.
        most: Amount,
    },
}

impl RelayClient {
    /// Makes or changes the reservation of a dataset: uploads of it draw on that, and nobody else can. Asked again it is the
    /// same one. What is reserved survives the relay's end when this returns.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::NotFound`] of a relay that reserves nothing, [`ErrorKind::Invalid`] of what
    /// makes no sense to it, [`ErrorKind::Full`] of one that keeps as many reservations as it can.
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

    /// Gives back what is reserved for a dataset. What it stores stays. Giving it back again changes nothing.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::NotFound`] of a relay that reserves nothing.
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

    /// All that is reserved, in order of the datasets. Needs a token for every dataset.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::NotFound`] of a relay that reserves nothing.
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
