//! Doubts about what a relay holds.

use http::Method;
use posthaste_types::{ChunkIndex, FragmentIndex};

use super::{
    DatasetId, RelayClient, Scope,
    cargo::Ask,
    client::ANSWER_BYTES_MAX,
    wire::{self, Target},
};
use crate::Result;

impl RelayClient {
    /// Has the relay read a fragment that came wrong: if it is wrong there, the relay holds it no
    /// more, and its services hear that.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`Invalid`](crate::ErrorKind::Invalid) from a relay that can't.
    pub async fn doubt(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Result<()> {
        let query = format!("?{}", wire::show_doubt((chunk, fragment)));
        let ask = Ask {
            operation: "doubt a fragment on",
            method: Method::GET,
            target: Target::Inventory(*dataset),
            query: &query,
            scope: Scope::Read,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }
}
