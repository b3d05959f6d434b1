//! Coding for others: the relay gets a whole chunk, keeps one fragment and sends the others to
//! other relays, on the order of a caller with the right to write to all of them.
//!
//! The chunk counts only once its digest was verified. Each fragment is sent only if it has the
//! digest in the order, which the caller knows from coding it too or from a source it trusts. The
//! end of each fragment is reported at once. The chunk is in memory, and only the one fragment of
//! it is kept. If the caller leaves, all transfers under way end.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use posthaste_coding::Codec;
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId, RelayClient,
        wire::{
            OBJECT_BYTES_MAX, Object, PieceEnd, SCATTER_ORDER_BYTES_MAX, ScatterBody, status_of,
        },
    },
};
use posthaste_types::{Code, Digest, FragmentIndex, Timestamp};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use crate::{
    answer::Body,
    order::{self, Named, OrderedChunk, Said, take_memory},
    others::Others,
    reception::{Reception, blocking},
    store::{Refusal, Store, Stored, Upload, other_digest},
};

/// Memory of all chunks being coded, in mebibytes: two of the largest, with as much parity as data.
const MEMORY_MEBI: u32 = 1024;
/// Interval of signs to the client that the work goes on.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Coding under way for others.
pub(crate) struct Scatters {
    memory: Arc<Semaphore>,
    others: Arc<Others>,
}

/// Valid order.
struct Order {
    of: OrderedChunk,
    pieces: Vec<Piece>,
}

/// Plan for one fragment: another relay gets it, or it is kept here.
struct Piece {
    fragment: FragmentIndex,
    digest: Digest,
    to: Option<RelayClient>,
}

type Ending = Pin<Box<dyn Future<Output = PieceEnd> + Send>>;

impl Scatters {
    pub(crate) fn new(others: Arc<Others>) -> Self {
        let memory = Arc::new(Semaphore::new(MEMORY_MEBI as usize));
        Self { memory, others }
    }

    /// Codes and sends by the body, which is the order in one line and then the chunk.
    pub(crate) async fn scatter(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        mut body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let begun = match body.read_line(SCATTER_ORDER_BYTES_MAX).await {
            Err(refusal) => Err(refusal),
            Ok((line, first)) => self
                .begin(dataset, object, &line)
                .map(|begun| (begun, first)),
        };
        // A client that is sending still has the chunk to send, and reads the answer only after
        // that.
        let ((order, memory), first) = match begun {
            Ok(begun) => begun,
            Err(refusal) => return Err((refusal, Some((body, OBJECT_BYTES_MAX)))),
        };
        let chunk = body.read_rest(first, order.of.stored.size).await;
        let chunk = chunk.map_err(|refusal| (refusal, None))?;
        let (stored, code) = (order.of.stored, order.of.code);
        let coded = blocking(move || encode(code, stored.digest, chunk)).await;
        let fragments = coded.map_err(|refusal| (refusal, None))?;
        Ok(answer(endings(store, &order, &fragments), memory))
    }

    fn begin(
        &self,
        dataset: DatasetId,
        object: Object,
        line: &[u8],
    ) -> Result<(Order, OwnedSemaphorePermit), Refusal> {
        let order: ScatterBody = order::read(line, "the body says not what to code")?;
        let order = self.read(dataset, object, &order)?;
        let OrderedChunk { code, stored, .. } = order.of;
        let coded = u64::from(code.total()) * stored.size;
        let bytes = coded.div_ceil(u64::from(code.data()));
        let busy = "as much is being coded as ever at once";
        let memory = take_memory(&self.memory, MEMORY_MEBI, bytes, busy)?;
        Ok((order, memory))
    }

    /// Parses an order.
    fn read(
        &self,
        dataset: DatasetId,
        object: Object,
        order: &ScatterBody,
    ) -> Result<Order, Refusal> {
        let said = Said {
            size: order.size,
            digest: &order.digest,
            code: &order.code,
            expires_unix_s: order.expires_unix_s,
        };
        let of = OrderedChunk::read(dataset, object, &said, "coded")?;
        let mut named = Named::of(of.code);
        let digest = |text: &str| order::digest(text, "a fragment's digest is none");
        let mut pieces = vec![Piece {
            fragment: named.one_more(order.keep.fragment)?,
            digest: digest(&order.keep.digest)?,
            to: None,
        }];
        for taker in &order.to {
            let client = self
                .others
                .client(&taker.url, &taker.fingerprint, &taker.token)?;
            client.expect_rate(taker.rate_limit_bytes_per_s.unwrap_or(0));
            client.expect_passes(taker.lets_through);
            pieces.push(Piece {
                fragment: named.one_more(taker.fragment)?,
                digest: digest(&taker.digest)?,
                to: Some(client),
            });
        }
        Ok(Order { of, pieces })
    }
}

/// Returns all fragments of the chunk, which must have this digest. Blocking.
fn encode(code: Code, digest: Digest, chunk: Vec<u8>) -> Result<Vec<Bytes>, Refusal> {
    let shown = digest_of(&chunk);
    if shown != digest {
        let message = format!("{} bytes with digest {shown} arrived", chunk.len());
        return Err(Refusal::new(ErrorKind::Corrupt, message).hint("send it again"));
    }
    let coded = Codec::new(code).cut(chunk);
    coded.map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))
}

fn digest_of(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

/// Starts the work of an order, fragment by fragment.
fn endings(store: &Arc<Store>, order: &Order, fragments: &[Bytes]) -> FuturesUnordered<Ending> {
    let ending = |piece: &Piece| -> Ending {
        let bytes = fragments.get(usize::from(piece.fragment.get()));
        let bytes = bytes.cloned().unwrap_or_default();
        let (fragment, digest, to) = (piece.fragment, piece.digest, piece.to.clone());
        let (dataset, chunk, expires_s) = (order.of.dataset, order.of.chunk, order.of.expires_s);
        let store = Arc::clone(store);
        Box::pin(async move {
            let since = Instant::now();
            let checked = bytes.clone();
            let is_right = blocking(move || Ok(digest_of(&checked) == digest)).await;
            let ended = match (is_right, to) {
                (Err(refusal), _) => Err((refusal.kind, refusal.message)),
                (Ok(false), _) => Err((
                    ErrorKind::Corrupt,
                    "it was coded to something else than it should be".to_owned(),
                )),
                (Ok(true), Some(to)) => {
                    let expires = Timestamp::from_secs(expires_s);
                    let sent = to.put_fragment(&dataset, chunk, fragment, bytes, digest, expires);
                    sent.await
                        .map_err(|error| (error.kind(), error.to_string()))
                }
                (Ok(true), None) => {
                    let object = Object::Fragment(chunk, fragment);
                    let kept =
                        blocking(move || keep(store, dataset, object, digest, bytes, expires_s));
                    kept.await
                        .map_err(|refusal| (refusal.kind, refusal.message))
                }
            };
            let (status, message) = match ended {
                Ok(()) => (201, String::new()),
                Err((kind, message)) => (status_of(kind), message),
            };
            PieceEnd {
                fragment: fragment.get(),
                status,
                message,
                micros: u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX),
            }
        })
    };
    order.pieces.iter().map(ending).collect()
}

/// Stores the fragment that stays here. Blocking.
fn keep(
    store: Arc<Store>,
    dataset: DatasetId,
    object: Object,
    digest: Digest,
    bytes: Bytes,
    expires_s: u64,
) -> Result<(), Refusal> {
    if let Some(there) = store.find(&dataset, object) {
        if there.digest != digest {
            return Err(other_digest());
        }
        return store.extend(&dataset, expires_s);
    }
    let size = bytes.len() as u64;
    let stored = Stored { digest, size };
    let mut upload = Upload::begin(store, dataset, object, stored, expires_s)?;
    upload.write(&[bytes])?;
    upload.seal()
}

/// Answers with a line for each fragment as it ends, and meanwhile an empty one now and then.
fn answer(endings: FuturesUnordered<Ending>, memory: OwnedSemaphorePermit) -> Response<Body> {
    let pieces = stream::unfold((endings, memory), |(mut endings, memory)| async move {
        let line = tokio::select! {
            end = endings.next() => {
                let mut line = serde_json::to_vec(&end?).unwrap_or_default();
                line.push(b'\n');
                line.into()
            }
            () = sleep(SIGN_EVERY) => Bytes::from_static(b"\n"),
        };
        Some((Ok::<_, io::Error>(Frame::data(line)), (endings, memory)))
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)));
    let lines = HeaderValue::from_static("application/jsonl");
    response.headers_mut().insert(header::CONTENT_TYPE, lines);
    response
}

impl Scatters {
    /// Reads an order, for [`crate::fuzzing`].
    pub(crate) fn try_order(&self, dataset: DatasetId, object: Object, order: &[u8]) {
        let order = order::read::<ScatterBody>(order, "it is none");
        if let Ok(order) = order.and_then(|order| self.read(dataset, object, &order)) {
            let all = usize::from(order.of.code.total());
            assert!(order.pieces.len() <= all, "more pieces than there are");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_those_that_the_centre_would_make() {
        let code = Code::new(3, 2).unwrap();
        for size in [0, 1, 250, 3000] {
            let chunk: Vec<u8> = (0..=250).cycle().take(size).collect();
            let codec = posthaste_engine::code::Codec::new(code);
            let encode_stripe = posthaste_engine::stripe::encode_stripe;
            let stripe = encode_stripe(&codec, None, 0, chunk.clone()).unwrap();
            let coded = encode(code, stripe.chunk_digest, chunk).unwrap();
            assert_eq!(coded, stripe.fragments, "{size} bytes");
        }
    }

    #[test]
    fn bytes_with_another_digest_are_not_coded() {
        let refused = encode(Code::new(2, 1).unwrap(), Digest::new([1; 32]), vec![5; 10]);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Corrupt);
    }
}
