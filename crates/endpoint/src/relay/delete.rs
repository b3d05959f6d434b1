//! Deletion of what a relay holds.

use http::Method;
use posthaste_types::{ChunkIndex, Digest, FragmentIndex};

use super::{
    DatasetId, RelayClient, Scope,
    cargo::Ask,
    client::ANSWER_BYTES_MAX,
    wire::{Object, Target},
};
use crate::Result;

impl RelayClient {
    /// Deletes a fragment of the dataset unless it has this digest.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`Unsupported`](crate::ErrorKind::Unsupported) from a relay
    /// without this feature.
    pub async fn delete_unless(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        digest: Digest,
    ) -> Result<()> {
        let object = Object::Fragment(chunk, fragment);
        let query = format!("?unless={digest}");
        self.delete(Target::Object(*dataset, object), &query).await
    }

    /// Deletes everything the relay holds of the dataset. Deleting it again changes nothing.
    ///
    /// # Errors
    /// Errors of [`Self::status`].
    pub async fn delete_dataset(&self, dataset: &DatasetId) -> Result<()> {
        self.delete(Target::Dataset(*dataset), "").await
    }

    async fn delete(&self, target: Target, query: &str) -> Result<()> {
        let ask = Ask {
            operation: "delete on",
            method: Method::DELETE,
            target,
            query,
            scope: Scope::All,
            body: None,
        };
        let (lease, response) = self.send(&ask).await?;
        self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }
}
