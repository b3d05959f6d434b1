//! Gathering between relays: one takes a chunk, or one fragment of it, from others. The holder of
//! all secrets asks for it, and only the relays carry the bytes.

use posthaste_types::{ChunkIndex, Code, Digest, FragmentIndex, Timestamp};

use super::{
    DatasetId, RelayClient, Scope,
    wire::{GatherBody, GatherEnd, GatherSender, Object, Target},
};
use crate::{Result, clock};

/// Code for a fragment taken as it is.
const AS_IT_IS: &str = "1+0";

/// Chunk to rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Index of the chunk.
    pub chunk: ChunkIndex,
    /// Its size in bytes.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// Erasure code of the chunk.
    pub code: Code,
    /// Only fragment to keep, with its digest; none to keep the whole chunk.
    pub keep: Option<(FragmentIndex, Digest)>,
}

impl RelayClient {
    /// Makes the relay gather fragments of a chunk from others and rebuild the chunk, or the one
    /// fragment to keep. The relay checks the digest and stores it until `expires` at least. It
    /// asks the first of `from`, as many as the code needs, and later ones if one fails or lags.
    /// Their tokens read this dataset only, for ten minutes.
    ///
    /// Dropping the future cancels it at the relay too, which stops if nobody waits.
    ///
    /// # Errors
    /// Errors of [`Self::status`]: it did not start. The end reports later errors.
    pub async fn gather(
        &self,
        dataset: &DatasetId,
        rebuilt: Rebuilt,
        from: &[(Self, FragmentIndex, Digest)],
        expires: Timestamp,
    ) -> Result<GatherEnd> {
        let sender = |(client, fragment, digest): &(Self, FragmentIndex, Digest)| {
            client.sender(dataset, *fragment, *digest)
        };
        let body = GatherBody {
            size: rebuilt.size,
            digest: rebuilt.digest.to_string(),
            code: rebuilt.code.to_string(),
            expires_unix_s: expires.as_micros().div_ceil(1_000_000),
            from: from.iter().map(sender).collect(),
            keep: rebuilt.keep.map(|(_, digest)| digest.to_string()),
            as_it_is: false,
        };
        let kept = rebuilt.keep.map_or(FragmentIndex::WHOLE, |(kept, _)| kept);
        let target = Target::Gather(*dataset, Object::Fragment(rebuilt.chunk, kept));
        self.order("gather at", target, &body).await
    }

    /// Makes the relay copy a fragment as it is from another one, check its digest and store it
    /// until `expires` at least; otherwise like [`Self::gather`].
    ///
    /// # Errors
    /// Errors of [`Self::gather`].
    pub async fn take(
        &self,
        dataset: &DatasetId,
        (chunk, fragment): (ChunkIndex, FragmentIndex),
        (size, digest): (u64, Digest),
        from: &Self,
        expires: Timestamp,
    ) -> Result<GatherEnd> {
        let body = GatherBody {
            size,
            digest: digest.to_string(),
            code: AS_IT_IS.to_owned(),
            expires_unix_s: expires.as_micros().div_ceil(1_000_000),
            from: vec![from.sender(dataset, fragment, digest)],
            keep: None,
            as_it_is: true,
        };
        let target = Target::Gather(*dataset, Object::Fragment(chunk, fragment));
        self.order("fetch to", target, &body).await
    }

    fn sender(&self, dataset: &DatasetId, fragment: FragmentIndex, digest: Digest) -> GatherSender {
        let now_s = clock::unix_secs();
        GatherSender {
            url: self.address.url.clone(),
            fingerprint: self.address.fingerprint.to_string(),
            token: self.credential.lent(Scope::Read, dataset, now_s),
            fragment: fragment.get(),
            digest: digest.to_string(),
        }
    }
}
