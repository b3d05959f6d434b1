//! Fetches of a chunk, or one fragment of it, from other relays that hold its fragments, on the
//! order of a caller with the right to write here.
//!
//! The relay fetches as many fragments as the code needs at once, each from another relay, and
//! verifies its digest. It replaces a fragment that fails or lags behind all others by one from the
//! reserve. It rebuilds the missing data or the wanted fragment, and keeps only what matches its
//! own digest. Meanwhile the answer is white space. If the client leaves, the relay stops and
//! leaves nothing behind.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::Response;
use posthaste_coding::Codec;
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId, RelayClient,
        wire::{GatherBody, GatherEnd, GatherSender, Object, SenderEnd, status_of},
    },
};
use posthaste_types::{Bytes as Amount, Code, Digest, FragmentIndex};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

use crate::{
    answer::Body,
    order::{self, Named, OrderedChunk, Said, invalid, take_memory},
    others::{Others, UnderWay, answer_in_time},
    rate::RateLimit,
    reception::{Reception, blocking},
    store::{Refusal, Store, Stored, Upload, other_digest},
};

/// Memory of all chunks being gathered, in mebibytes: two of the largest, with what is rebuilt of
/// them.
const MEMORY_MEBI: u32 = 1024;
/// Maximum of a request's bytes: it says from whom, with what, and until when. 64 senders at most.
const ORDER_BYTES_MAX: usize = 64 << 10;
/// Grace of the last fragment: once all others are there, it gets twice their time and this before
/// it is replaced.
const LAG: Duration = Duration::from_secs(1);

/// Gathers under way.
pub(crate) struct Gathers {
    memory: Arc<Semaphore>,
    others: Arc<Others>,
    rate: Arc<RateLimit>,
}

/// Valid order.
struct Order {
    of: OrderedChunk,
    keeps: Keeps,
    /// Senders to ask, each for another fragment: the first ones, then the reserve.
    senders: Vec<Sender>,
}

/// Choice of what to keep of the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Whole,
    One(FragmentIndex),
    /// The fragment that all senders have.
    AsItIs,
}

#[derive(Clone)]
struct Sender {
    client: RelayClient,
    fragment: FragmentIndex,
    digest: Digest,
}

impl Gathers {
    pub(crate) fn new(others: Arc<Others>, rate: Arc<RateLimit>) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(MEMORY_MEBI as usize)),
            others,
            rate,
        }
    }

    /// Gathers a chunk by the order in the body.
    pub(crate) async fn gather(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let begun = self.begin(store, dataset, object, body).await;
        let gathering = begun.map_err(|refusal| (refusal, None))?;
        Ok(answer_in_time(gathering))
    }

    async fn begin(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<UnderWay<GatherEnd>, Refusal> {
        let order = body.read(ORDER_BYTES_MAX).await?;
        let order: GatherBody = order::read(&order, "the body says not what to gather")?;
        let (order, stored) = self.read(dataset, object, &order)?;
        if let Some(there) = store.find(&dataset, object) {
            if there.digest != stored.digest {
                return Err(other_digest());
            }
            let (store, expires_s) = (Arc::clone(store), order.of.expires_s);
            blocking(move || store.extend(&dataset, expires_s)).await?;
            return Ok(Box::pin(async { ended(200, String::new(), Vec::new()) }));
        }
        // The fragments, and what is rebuilt of them.
        let bytes = order.of.stored.size.saturating_mul(2);
        let memory = take_memory(
            &self.memory,
            MEMORY_MEBI,
            bytes,
            "as much is being gathered as ever at once",
        )?;
        let place = Arc::clone(store);
        let expires_s = order.of.expires_s;
        let begin = move || Upload::begin(place, dataset, object, stored, expires_s);
        let upload = blocking(begin).await?;
        let rate = Arc::clone(&self.rate);
        Ok(Box::pin(carry_out(order, upload, rate, memory)))
    }

    /// Parses an order, and what is stored of the chunk.
    fn read(
        &self,
        dataset: DatasetId,
        object: Object,
        order: &GatherBody,
    ) -> Result<(Order, Stored), Refusal> {
        if order.as_it_is {
            return self.read_taking(dataset, object, order);
        }
        let said = Said {
            size: order.size,
            digest: &order.digest,
            code: &order.code,
            expires_unix_s: order.expires_unix_s,
        };
        let (whole, kept) = match (object, &order.keep) {
            (Object::Fragment(chunk, kept), Some(digest)) => {
                let digest = order::digest(digest, "the digest of what is kept is none")?;
                let whole = Object::Fragment(chunk, FragmentIndex::WHOLE);
                (whole, Some((kept, digest)))
            }
            (object, _) => (object, None),
        };
        let of = OrderedChunk::read(dataset, whole, &said, "gathered")?;
        let mut named = Named::of(of.code);
        let (keeps, stored) = match kept {
            None => (Keeps::Whole, of.stored),
            Some((kept, digest)) => {
                // Nobody sends what is to be rebuilt.
                let kept = named.one_more(kept.get())?;
                let size = of.code.fragment_size(Amount::new(of.stored.size)).get();
                (Keeps::One(kept), Stored { digest, size })
            }
        };
        let sender = |from| self.sender(from, named.one_more(from.fragment)?);
        let senders = order.from.iter().map(sender);
        let senders: Vec<Sender> = senders.collect::<Result<_, _>>()?;
        if senders.len() < usize::from(of.code.data()) {
            return Err(invalid("fewer relays are named than fragments are needed"));
        }
        Ok((Order { of, keeps, senders }, stored))
    }
}

impl Gathers {
    /// Parses an order to fetch a fragment as it is, for which one sender suffices.
    fn read_taking(
        &self,
        dataset: DatasetId,
        object: Object,
        order: &GatherBody,
    ) -> Result<(Order, Stored), Refusal> {
        let (Object::Fragment(chunk, fragment), 1) = (object, order.from.len()) else {
            return Err(invalid("one fragment is taken from one relay"));
        };
        let whole = Object::Fragment(chunk, FragmentIndex::WHOLE);
        let said = Said {
            size: order.size,
            digest: &order.digest,
            code: &order.code,
            expires_unix_s: order.expires_unix_s,
        };
        let of = OrderedChunk::read(dataset, whole, &said, "taken")?;
        if of.code.data() != 1 {
            return Err(invalid("what is taken as it is has code 1+0"));
        }
        let senders = order.from.iter();
        let senders = senders.map(|from| self.sender(from, fragment));
        let order = Order {
            of,
            keeps: Keeps::AsItIs,
            senders: senders.collect::<Result<_, _>>()?,
        };
        Ok((order, of.stored))
    }

    fn sender(&self, from: &GatherSender, fragment: FragmentIndex) -> Result<Sender, Refusal> {
        Ok(Sender {
            fragment,
            client: self
                .others
                .client(&from.url, &from.fingerprint, &from.token)?,
            digest: order::digest(&from.digest, "a fragment's digest is none")?,
        })
    }
}

fn ended(status: u16, message: String, senders: Vec<SenderEnd>) -> GatherEnd {
    GatherEnd {
        status,
        message,
        senders,
    }
}

async fn carry_out(
    order: Order,
    mut upload: Upload,
    rate: Arc<RateLimit>,
    memory: OwnedSemaphorePermit,
) -> GatherEnd {
    let mut senders = Vec::new();
    let fetched = fetch(&order, &rate, &mut senders).await;
    let Some(fetched) = fetched else {
        let message = "too few fragments came".to_owned();
        return ended(status_of(ErrorKind::Unreachable), message, senders);
    };
    let (code, size, keeps) = (order.of.code, order.of.stored.size, order.keeps);
    let stored = blocking(move || {
        let _memory = memory;
        let pieces = match keeps {
            Keeps::Whole => rebuild(code, size, fetched)?,
            Keeps::One(fragment) => vec![rebuild_one(code, fragment, &fetched)?],
            Keeps::AsItIs => fetched.into_iter().map(|(_, bytes)| bytes).collect(),
        };
        upload.write(&pieces)?;
        upload.seal()
    });
    match stored.await {
        Ok(()) => ended(201, String::new(), senders),
        Err(refusal) => ended(status_of(refusal.kind), refusal.message, senders),
    }
}

/// Returns as many fragments as the code needs; `None` if too few come.
async fn fetch(
    order: &Order,
    rate: &RateLimit,
    ends: &mut Vec<SenderEnd>,
) -> Option<Vec<(u8, Bytes)>> {
    let needed = usize::from(order.of.code.data());
    let size = order
        .of
        .code
        .fragment_size(Amount::new(order.of.stored.size))
        .get();
    let begun = Instant::now();
    let ask = |sender: Sender| async move {
        let since = Instant::now();
        let Sender {
            client,
            fragment,
            digest,
        } = sender;
        let got = client.get_fragment(&order.of.dataset, order.of.chunk, fragment, digest);
        let got = got.await;
        if let Ok(bytes) = &got {
            rate.take(bytes.len()).await;
        }
        (fragment.get(), got, since.elapsed())
    };
    let (first, reserve) = order.senders.split_at(needed);
    let mut reserve = reserve.iter().cloned();
    let mut asked: FuturesUnordered<_> = first.iter().cloned().map(ask).collect();
    let mut fetched: Vec<(u8, Bytes)> = Vec::new();
    let mut is_patient = true;
    while fetched.len() < needed {
        let has_all_others = fetched.len() + 1 == needed && is_patient;
        let patience = begun + begun.elapsed() * 2 + LAG;
        let (fragment, got, span) = tokio::select! {
            end = asked.next() => end?,
            () = sleep_until(patience), if has_all_others => {
                is_patient = false;
                asked.extend(reserve.next().map(ask));
                continue;
            }
        };
        let status = match got {
            Ok(bytes) if bytes.len() as u64 == size => {
                fetched.push((fragment, bytes));
                200
            }
            Ok(_) => status_of(ErrorKind::Corrupt),
            Err(error) => status_of(error.kind()),
        };
        if status != 200 {
            asked.extend(reserve.next().map(ask));
        }
        ends.push(SenderEnd {
            fragment,
            status,
            micros: u64::try_from(span.as_micros()).unwrap_or(u64::MAX),
        });
    }
    Some(fetched)
}

/// Returns the chunk in pieces. Blocking.
fn rebuild(code: Code, size: u64, fetched: Vec<(u8, Bytes)>) -> Result<Vec<Bytes>, Refusal> {
    let data = code.data();
    let one = fetched.first().map_or(0, |(_, bytes)| bytes.len());
    let has = |index: u8| fetched.iter().any(|(fragment, _)| *fragment == index);
    let missing: Vec<u8> = (0..data).filter(|&index| !has(index)).collect();
    let mut rebuilt = vec![vec![0; one]; missing.len()];
    if !missing.is_empty() && one > 0 {
        let present: Vec<(u8, &[u8])> = fetched.iter().map(|(n, bytes)| (*n, &bytes[..])).collect();
        let mut out: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
        Codec::new(code)
            .reconstruct(&present, &missing, &mut out)
            .map_err(|cause| Refusal::new(ErrorKind::Corrupt, cause.to_string()))?;
    }
    let rebuilt = missing
        .into_iter()
        .zip(rebuilt.into_iter().map(Bytes::from));
    let mut all: Vec<(u8, Bytes)> = fetched.into_iter().chain(rebuilt).collect();
    all.retain(|(index, _)| *index < data);
    all.sort_unstable_by_key(|(index, _)| *index);
    let mut left = size;
    let cut = |(_, bytes): (u8, Bytes)| {
        let wanted = usize::try_from(left).map_or(bytes.len(), |left| bytes.len().min(left));
        left -= wanted as u64;
        bytes.slice(..wanted)
    };
    Ok(all.into_iter().map(cut).collect())
}

/// Rebuilds one fragment. Blocking.
fn rebuild_one(
    code: Code,
    fragment: FragmentIndex,
    fetched: &[(u8, Bytes)],
) -> Result<Bytes, Refusal> {
    let size = fetched.first().map_or(0, |(_, bytes)| bytes.len());
    let present: Vec<(u8, &[u8])> = fetched.iter().map(|(n, bytes)| (*n, &bytes[..])).collect();
    let mut rebuilt = vec![0; size];
    if size > 0 {
        Codec::new(code)
            .reconstruct(&present, &[fragment.get()], &mut [&mut rebuilt])
            .map_err(|cause| Refusal::new(ErrorKind::Corrupt, cause.to_string()))?;
    }
    Ok(rebuilt.into())
}

impl Gathers {
    /// Reads an order, for [`crate::fuzzing`].
    pub(crate) fn try_order(&self, dataset: DatasetId, object: Object, order: &[u8]) {
        let order = order::read::<GatherBody>(order, "it is none");
        if let Ok((order, _)) = order.and_then(|order| self.read(dataset, object, &order)) {
            assert!(!order.senders.is_empty(), "nobody has what is gathered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fragments_that_suffice_make_the_chunk() {
        let code = Code::new(3, 2).unwrap();
        let chunk: Vec<u8> = (0..=250).collect();
        let all = Codec::new(code).cut(chunk.clone()).unwrap();
        for taken in [[0u8, 1, 2], [4, 3, 0], [2, 4, 1], [3, 1, 2]] {
            let fetched = taken.map(|n| (n, all[usize::from(n)].clone()));
            let pieces = rebuild(code, chunk.len() as u64, fetched.to_vec()).unwrap();
            assert_eq!(pieces.concat(), chunk, "{taken:?}");
        }
    }

    #[test]
    fn any_fragments_that_suffice_make_any_other_again() {
        let code = Code::new(3, 2).unwrap();
        let all = Codec::new(code).cut((0..=250).collect()).unwrap();
        for taken in [[0u8, 1, 2], [4, 3, 0], [2, 4, 1], [3, 1, 2]] {
            let fetched = taken.map(|n| (n, all[usize::from(n)].clone()));
            for lost in (0..5u8).filter(|lost| !taken.contains(lost)) {
                let one = rebuild_one(code, FragmentIndex::new(lost), &fetched).unwrap();
                assert_eq!(one, all[usize::from(lost)], "{lost} of {taken:?}");
            }
        }
    }

    #[test]
    fn too_few_fragments_make_none() {
        let code = Code::new(2, 1).unwrap();
        let one = vec![(1, Bytes::from_static(b"abcd"))];
        assert!(rebuild_one(code, FragmentIndex::new(0), &one).is_err());
        assert!(rebuild(code, 8, one).is_err());
    }
}
