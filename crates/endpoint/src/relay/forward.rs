//! Forwarding between relays: the holder of both secrets asks for it, and only the relays carry the
//! bytes.

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
    /// Makes the relay send a fragment that it holds to another relay, which checks and keeps it
    /// like any other. The other relay's token is valid for this dataset only and for ten minutes.
    ///
    /// Dropping the future cancels it at the relay too, which stops if nobody waits.
    ///
    /// # Errors
    /// Errors of [`Self::status`]. Errors of the sending relay at [`Locus::Source`]:
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if it holds no such fragment,
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) if it forwards as many as it accepts. Errors of
    /// the other relay at [`Locus::Destination`], like those of [`Self::put_fragment`].
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

    /// Makes the relay forward a fragment that it is receiving, or will be within seconds. Bytes
    /// are sent on as they arrive, the last one once the relay holds the fragment. `digest` selects
    /// one if several arrive.
    ///
    /// # Errors
    /// Errors of [`Self::forward_fragment`]; [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) at
    /// [`Locus::Source`] also if the fragment does not arrive completely.
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

    /// Stores the bytes of a file, read while they are sent; otherwise like [`Self::put_fragment`].
    ///
    /// # Errors
    /// Errors of [`Self::put_fragment`].
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

    /// Stores the bytes of a file that still grows: they are sent as they appear, the last one when
    /// the file is complete. A file that never completes breaks the request, and nothing is stored.
    ///
    /// # Errors
    /// Errors of [`Self::put_fragment`]; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) for
    /// an empty file that never completes.
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

    /// Returns a client of this relay that uses another credential.
    #[must_use]
    pub fn with_credential(&self, credential: Credential) -> Self {
        Self {
            credential,
            ..self.clone()
        }
    }
}

impl Credential {
    /// Mints a token for one dataset that another relay may use for a while.
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
