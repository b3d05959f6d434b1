//! One relay sends on to another what it holds: asked by whoever has the secrets of both, and carried
//! by the relays alone.

use std::{fs::File, sync::Arc};

use posthaste_types::{ChunkIndex, Digest, FragmentIndex, Timestamp};

use super::{
    Credential, DatasetId, RelayClient, Scope,
    cargo::{Cargo, Load},
    growing::Growing,
    mint,
    token::TOKEN_LIFETIME_S,
    wire::{ForwardBody, ForwardEnd, Object, Target, kind_of},
};
use crate::{Error, ErrorKind, Locus, Result, clock};

impl RelayClient {
    /// Lets the relay send a fragment that it holds on to another one, which checks and keeps it as any
    /// other. The other's token is good for this dataset alone and for ten minutes.
    ///
    /// Dropped, it is given up there too: the relay stops when nobody waits for it.
    ///
    /// # Errors
    /// As [`Self::status`]. At [`Locus::Source`] what concerns the relay that sends:
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) when it holds no such fragment,
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) when it sends on as much as it will. At
    /// [`Locus::Destination`] what the other one said: as [`Self::put_fragment`].
    pub async fn forward_fragment(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        to: &Self,
        expires: Timestamp,
    ) -> Result<()> {
        self.forward(dataset, (chunk, fragment), to, expires, None)
            .await
    }

    /// The same of a fragment that the relay is receiving at this moment, or is about to within seconds: its bytes go on as
    /// they come, the last one when the relay holds it. `digest` says which, should several come.
    ///
    /// # Errors
    /// As [`Self::forward_fragment`]; at [`Locus::Source`]
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) also when it does not arrive whole.
    pub async fn follow_fragment(
        &self,
        dataset: &DatasetId,
        (chunk, fragment): (ChunkIndex, FragmentIndex),
        digest: Digest,
        to: &Self,
        expires: Timestamp,
    ) -> Result<()> {
        self.forward(dataset, (chunk, fragment), to, expires, Some(digest))
            .await
    }

    async fn forward(
        &self,
        dataset: &DatasetId,
        (chunk, fragment): (ChunkIndex, FragmentIndex),
        to: &Self,
        expires: Timestamp,
        follow: Option<Digest>,
    ) -> Result<()> {
        let now_s = clock::unix_secs();
        let rate = to.rate_limit();
        let body = ForwardBody {
            url: to.address.url.clone(),
            fingerprint: to.address.fingerprint.to_string(),
            token: to.credential.lent(Scope::Write, dataset, now_s),
            expires_unix_s: expires.as_micros().div_ceil(1_000_000),
            rate_limit_bytes_per_s: (rate > 0).then_some(rate),
            lets_through: to.lets_through().await,
            follow: follow.map(|digest| digest.to_string()),
        };
        let target = Target::Forward(*dataset, Object::Fragment(chunk, fragment));
        let end: ForwardEnd = self.order("send on from", target, &body).await?;
        if end.is_stored() {
            return Ok(());
        }
        let locus = if end.is_of_sender {
            Locus::Source
        } else {
            Locus::Destination
        };
        Err(
            Error::new(kind_of(end.status), "send on to", to.address.url.clone())
                .at(locus)
                .with("from", self.address.url.clone())
                .cause(end.message),
        )
    }

    /// Stores what lies in a file, read as it is sent; otherwise as [`Self::put_fragment`].
    ///
    /// # Errors
    /// As [`Self::put_fragment`].
    pub async fn put_file(
        &self,
        dataset: &DatasetId,
        object: Object,
        (file, bytes): (Arc<File>, u64),
        digest: Digest,
        expires: Timestamp,
    ) -> Result<()> {
        let load = Load::object(Cargo::File(file, bytes), digest, expires);
        self.put_load(dataset, object, load).await
    }

    /// Stores what lies in a file that still grows: bytes are sent as they come, the last one when it is
    /// whole. A file that never is breaks the request, and nothing is stored.
    ///
    /// # Errors
    /// As [`Self::put_fragment`]; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) of an empty file that
    /// is never whole.
    pub async fn put_growing(
        &self,
        dataset: &DatasetId,
        object: Object,
        mut growing: Growing,
        digest: Digest,
        expires: Timestamp,
    ) -> Result<()> {
        if growing.size == 0 {
            let whole = growing.whole().await;
            whole.map_err(|cause| {
                Error::new(ErrorKind::Cancelled, "send on to", self.address.url.clone())
                    .at(Locus::Source)
                    .cause(cause)
            })?;
        }
        let load = Load::object(Cargo::Growing(growing), digest, expires);
        self.put_load(dataset, object, load).await
    }

    /// The same relay, shown another credential.
    #[must_use]
    pub fn with_credential(&self, credential: Credential) -> Self {
        Self {
            credential,
            ..self.clone()
        }
    }
}

impl Credential {
    /// A token that somebody else may use for a while, for one dataset.
    pub(super) fn lent(&self, scope: Scope, dataset: &DatasetId, now_s: u64) -> String {
        match self {
            Self::Secret(secret) => {
                let expires = Timestamp::from_secs(now_s.saturating_add(TOKEN_LIFETIME_S));
                mint(secret, scope, Some(dataset), expires)
            }
            Self::Token(token) => token.clone(),
        }
    }
}
