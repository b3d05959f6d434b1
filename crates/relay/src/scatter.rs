//! Codes a chunk that comes whole, keeps one fragment and sends the others on to other relays, when somebody
//! who may write to all of them asks for it.
//!
//! The chunk counts only once its digest was checked, and each fragment goes on only if it has the digest that
//! the order says, which whoever asked has from coding it too or from whom it trusts. How each fragment ended is
//! told as it ends. The chunk is in memory, and nothing is kept of it but the one fragment; when whoever asked
//! leaves, all that is under way ends.

use std::{collections::BTreeSet, future::Future, io, pin::Pin, sync::Arc, time::Duration};

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
use posthaste_types::{ChunkIndex, Code, Digest, FragmentIndex, Timestamp};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use crate::{
    clock,
    others::Others,
    reception::{Reception, blocking},
    request::Body,
    store::{Refusal, Store, Stored, Upload, other_digest},
};

/// Memory of all chunks being coded, in mebibytes: two of the largest, with as much parity as data.
const MEMORY_MEBI: usize = 1024;
/// How often whoever asked is told that it goes on.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Everything that is coded for others.
pub(crate) struct Scatters {
    memory: Arc<Semaphore>,
    others: Arc<Others>,
}

/// An order that makes sense.
struct Order {
    dataset: DatasetId,
    chunk: ChunkIndex,
    code: Code,
    stored: Stored,
    expires_s: u64,
    pieces: Vec<Piece>,
}

/// What becomes of one fragment: who else gets it, or it is kept here.
struct Piece {
    fragment: FragmentIndex,
    digest: Digest,
    to: Option<RelayClient>,
}

type Ending = Pin<Box<dyn Future<Output = PieceEnd> + Send>>;

impl Scatters {
    pub(crate) fn new(others: Arc<Others>) -> Self {
        let memory = Arc::new(Semaphore::new(MEMORY_MEBI));
        Self { memory, others }
    }

    /// Codes and sends on as the body says, which is the order in one line and then the chunk.
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
        // Who sends still has the chunk to send, and hears of it only after that.
        let ((order, memory), first) = match begun {
            Ok(begun) => begun,
            Err(refusal) => return Err((refusal, Some((body, OBJECT_BYTES_MAX)))),
        };
        let chunk = body.read_rest(first, order.stored.size).await;
        let chunk = chunk.map_err(|refusal| (refusal, None))?;
        let (stored, code) = (order.stored, order.code);
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
        let order: ScatterBody = serde_json::from_slice(line)
            // What it says must not be shown: there are tokens in it.
            .map_err(|_| Refusal::new(ErrorKind::Invalid, "the body says not what to code"))?;
        let order = self.read(dataset, object, &order)?;
        let coded = u64::from(order.code.total()) * order.stored.size;
        let bytes = coded.div_ceil(u64::from(order.code.data()));
        let mebi = usize::try_from(bytes.div_ceil(1 << 20)).unwrap_or(MEMORY_MEBI);
        let mebi = u32::try_from(mebi.clamp(1, MEMORY_MEBI)).unwrap_or(u32::MAX);
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(mebi);
        let memory = memory
            .map_err(|_| Refusal::new(ErrorKind::Busy, "as much is being coded as ever at once"))?;
        Ok((order, memory))
    }

    /// Understands an order.
    fn read(
        &self,
        dataset: DatasetId,
        object: Object,
        order: &ScatterBody,
    ) -> Result<Order, Refusal> {
        let invalid = |what: &str| Refusal::new(ErrorKind::Invalid, what);
        let Object::Fragment(chunk, FragmentIndex::WHOLE) = object else {
            return Err(invalid("only whole chunks are coded: fragment 255"));
        };
        if order.size > OBJECT_BYTES_MAX {
            return Err(invalid("the chunk is larger than one object may be"));
        }
        if order.expires_unix_s <= clock::unix_s() {
            return Err(invalid(
                "the dataset has expired already by the relay's clock",
            ));
        }
        let code: Code = order
            .code
            .parse()
            .map_err(|_| invalid("the code is none"))?;
        let digest = |text: &str| text.parse().map_err(|_| invalid("a digest is none"));
        let mut seen = BTreeSet::new();
        let mut is_new = |fragment: u8| match fragment < code.total() && seen.insert(fragment) {
            true => Ok(FragmentIndex::new(fragment)),
            false => Err(invalid("a fragment is not of the code, or named twice")),
        };
        let mut pieces = vec![Piece {
            fragment: is_new(order.keep.fragment)?,
            digest: digest(&order.keep.digest)?,
            to: None,
        }];
        for taker in &order.to {
            let client = self
                .others
                .client(&taker.url, &taker.fingerprint, &taker.token)?;
            client.expect_rate(taker.rate_limit_bytes_per_s.unwrap_or(0));
            pieces.push(Piece {
                fragment: is_new(taker.fragment)?,
                digest: digest(&taker.digest)?,
                to: Some(client),
            });
        }
        Ok(Order {
            dataset,
            chunk,
            code,
            stored: Stored {
                digest: digest(&order.digest)?,
                size: order.size,
            },
            expires_s: order.expires_unix_s,
            pieces,
        })
    }
}

/// All fragments of the chunk, which must have this digest. Blocking.
fn encode(code: Code, digest: Digest, mut chunk: Vec<u8>) -> Result<Vec<Bytes>, Refusal> {
    let shown = digest_of(&chunk);
    if shown != digest {
        let message = format!("{} bytes with digest {shown} arrived", chunk.len());
        return Err(Refusal::new(ErrorKind::Corrupt, message).hint("send it again"));
    }
    let (data, parity) = (usize::from(code.data()), usize::from(code.parity()));
    let size = chunk.len().div_ceil(data);
    chunk.resize(size * data, 0);
    let mut coded = vec![0; size * parity];
    if size > 0 {
        let inputs: Vec<&[u8]> = chunk.chunks_exact(size).collect();
        let mut out: Vec<&mut [u8]> = coded.chunks_exact_mut(size).collect();
        Codec::new(code)
            .encode(&inputs, &mut out)
            .map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))?;
    }
    let (chunk, coded) = (Bytes::from(chunk), Bytes::from(coded));
    let cut = |bytes: &Bytes, at: usize| bytes.slice(at * size..(at + 1) * size);
    let fragments = (0..data).map(|at| cut(&chunk, at));
    Ok(fragments
        .chain((0..parity).map(|at| cut(&coded, at)))
        .collect())
}

fn digest_of(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

/// What is under way of an order, fragment by fragment.
fn endings(store: &Arc<Store>, order: &Order, fragments: &[Bytes]) -> FuturesUnordered<Ending> {
    let ending = |piece: &Piece| -> Ending {
        let bytes = fragments.get(usize::from(piece.fragment.get()));
        let bytes = bytes.cloned().unwrap_or_default();
        let (fragment, digest, to) = (piece.fragment, piece.digest, piece.to.clone());
        let (dataset, chunk, expires_s) = (order.dataset, order.chunk, order.expires_s);
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
    let mut upload = Upload::begin(store, dataset, object, Stored { digest, size })?;
    upload.write(&[bytes])?;
    upload.seal(expires_s)
}

/// A line for each fragment as it ends, and an empty one now and then meanwhile.
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
