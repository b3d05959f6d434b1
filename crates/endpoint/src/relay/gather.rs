//! One relay takes a chunk, or one fragment of it, from others: asked by whoever has the secrets of all, and carried by the relays
//! alone.

use posthaste_types::{ChunkIndex, Code, Digest, FragmentIndex, Timestamp};

use super::{
    DatasetId, RelayClient, Scope,
    wire::{GatherBody, GatherEnd, GatherSender, Object, Target},
};
use crate::{Result, clock};

/// The code of what is taken as it is.
const AS_IT_IS: &str = "1+0";

/// A chunk as it is to be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// Which.
    pub chunk: ChunkIndex,
    /// Its size in bytes.
    pub size: u64,
    /// Its digest.
    pub digest: Digest,
    /// How it is coded.
    pub code: Code,
    /// The fragment that alone is kept, with its digest; none where the whole chunk is.
    pub keep: Option<(FragmentIndex, Digest)>,
}

impl RelayClient {
    /// Lets the relay take fragments of a chunk from others, rebuild it, or the one fragment that is kept, check its digest
    /// and store it until `expires` at least. The first of `from` are asked, as many as the code needs; those after them
    /// where one fails or lags. Their tokens read this dataset alone, for ten minutes.
    ///
    /// Dropped, it is given up there too: the relay stops when nobody waits for it.
    ///
    /// # Errors
    /// As [`Self::status`]: it was not begun. What went wrong later the end says.
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

    /// Lets the relay take a fragment as it is from another one, check its digest and store it until `expires` at least;
    /// otherwise as [`Self::gather`].
    ///
    /// # Errors
    /// As [`Self::gather`].
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
