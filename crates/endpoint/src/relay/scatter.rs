//! Scattering by a relay: it codes a chunk that it receives whole, keeps a fragment and sends the
//! others on.

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_types::{ChunkIndex, Code, Digest, FragmentIndex, Timestamp};

use super::{
    DatasetId, RelayClient, Scope,
    cargo::{Ask, Cargo, Load},
    client::ANSWER_BYTES_MAX,
    connection::Lease,
    wire::{
        Object, PieceEnd, SCATTER_ORDER_BYTES_MAX, ScatterBody, ScatterPiece, ScatterTaker, Target,
    },
};
use crate::{Error, ErrorKind, Result, clock};

/// Name of the operation for coding a chunk at a relay.
const OPERATION: &str = "let code at";

/// Chunk to code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coded {
    /// Index of the chunk.
    pub chunk: ChunkIndex,
    /// Its bytes, as depots store them.
    pub bytes: Bytes,
    /// Its digest.
    pub digest: Digest,
    /// Erasure code to use.
    pub code: Code,
    /// Fragment that stays at the relay, and its digest.
    pub keep: (FragmentIndex, Digest),
}

/// Relay that has a chunk and sends its fragments on. Dropping this cancels it there too.
pub struct Scattering {
    client: RelayClient,
    lease: Option<Lease>,
    body: Incoming,
    text: BytesMut,
    taken: u64,
}

impl RelayClient {
    /// Sends the whole chunk once and lets the relay code it, keep a fragment and send the others
    /// on. Each depot checks its fragment. Their tokens are valid for this dataset only and for ten
    /// minutes. When this returns, the relay has the chunk and has checked it; [`Scattering::next`]
    /// reports the fate of each fragment.
    ///
    /// # Errors
    /// Errors of [`Self::put_fragment`]: nothing was started. [`ErrorKind::Busy`] if the relay
    /// codes as many chunks as it accepts.
    pub async fn scatter(
        &self,
        dataset: &DatasetId,
        coded: &Coded,
        to: &[(Self, FragmentIndex, Digest)],
        expires: Timestamp,
    ) -> Result<Scattering> {
        let now_s = clock::unix_secs();
        let taker = async |(client, fragment, digest): &(Self, FragmentIndex, Digest)| {
            let rate = client.rate_limit();
            ScatterTaker {
                url: client.address.url.clone(),
                fingerprint: client.address.fingerprint.to_string(),
                token: client.credential.lent(Scope::Write, dataset, now_s),
                fragment: fragment.get(),
                digest: digest.to_string(),
                rate_limit_bytes_per_s: (rate > 0).then_some(rate),
                lets_through: client.lets_through().await,
            }
        };
        let takers = join_all(to.iter().map(taker)).await;
        let order = ScatterBody {
            size: coded.bytes.len() as u64,
            digest: coded.digest.to_string(),
            code: coded.code.to_string(),
            expires_unix_s: expires.as_micros().div_ceil(1_000_000),
            keep: ScatterPiece {
                fragment: coded.keep.0.get(),
                digest: coded.keep.1.to_string(),
            },
            to: takers,
        };
        let mut line = serde_json::to_vec(&order).unwrap_or_default();
        line.push(b'\n');
        if line.len() > SCATTER_ORDER_BYTES_MAX {
            let url = self.address.url.clone();
            return Err(Error::new(ErrorKind::Invalid, OPERATION, url)
                .cause("it is to be sent on to too many"));
        }
        let load = Load {
            cargo: Cargo::Led(line.into(), coded.bytes.clone()),
            object: None,
        };
        let whole = Object::Fragment(coded.chunk, FragmentIndex::WHOLE);
        let ask = ask(*dataset, whole, Some(load));
        let (lease, response) = self.send(&ask).await?;
        Ok(Scattering {
            client: self.clone(),
            lease: Some(lease),
            body: response.into_body(),
            text: BytesMut::new(),
            taken: 0,
        })
    }
}

fn ask(dataset: DatasetId, object: Object, body: Option<Load>) -> Ask<'static> {
    Ask {
        operation: OPERATION,
        method: Method::POST,
        target: Target::Scatter(dataset, object),
        query: "",
        scope: Scope::Write,
        body,
    }
}

impl Scattering {
    /// Returns the outcome of the next fragment to end, in any order; none after the last one.
    ///
    /// # Errors
    /// Errors of [`RelayClient::status`]: the outcome of fragments not reported by then is unknown.
    pub async fn next(&mut self) -> Result<Option<PieceEnd>> {
        loop {
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line = self.text.split_to(end + 1);
                if line.len() > 1 {
                    let told = serde_json::from_slice(&line);
                    return told
                        .map(Some)
                        .map_err(|cause| self.nonsense(cause.to_string()));
                }
            }
            let Some(lease) = &self.lease else {
                return Ok(None);
            };
            let pulse = lease.connection.pulse();
            let frame = self.body.frame();
            let frame = self.client.pool.watch(&pulse, OPERATION, frame).await;
            if !matches!(&frame, Ok(None | Some(Ok(_)))) {
                self.client.pool.broke(&lease.connection);
            }
            let Some(frame) = frame? else {
                self.lease
                    .take()
                    .into_iter()
                    .for_each(|lease| self.client.pool.give_back(lease));
                continue;
            };
            let frame = frame.map_err(|cause| {
                let url = self.client.address.url.clone();
                Error::new(ErrorKind::Unreachable, OPERATION, url).cause(cause.to_string())
            })?;
            if let Some(data) = frame.data_ref() {
                self.taken += data.len() as u64;
                if self.taken > ANSWER_BYTES_MAX {
                    return Err(self.nonsense("the answer is too long".to_owned()));
                }
                self.text.extend_from_slice(data);
            }
        }
    }

    fn nonsense(&self, cause: String) -> Error {
        let url = self.client.address.url.clone();
        Error::new(ErrorKind::Other, OPERATION, url).cause(cause)
    }
}
