//! Fetches enough fragments of a chunk, from whoever will have them here first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_types::{ChunkIndex, Digest, FragmentIndex};
use tokio::time::sleep;

use super::{Holder, holder::Source};
use crate::{
    code::Codec,
    dataset::Manifest,
    envelope::{TextName, Unopened},
};

/// Times all depots are asked again for a chunk when too few fragments could be had.
const ROUNDS_MAX: u32 = 6;
/// Pause before the second round; doubles up to 4 s. All rounds together wait for about 10 s: as
/// long as a relay takes to be started again by its supervisor.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// A parity fragment must be this much faster than a data fragment to be preferred: rebuilding
/// costs memory traffic.
const PARITY_HANDICAP_PERCENT: u32 = 125;
/// An additional fragment is asked for when the ones asked for take this many times as long as
/// predicted, and at least [`HEDGE_MIN`].
const HEDGE_FACTOR: u32 = 4;
/// Below this, patience is cheaper than a request.
const HEDGE_MIN: Duration = Duration::from_secs(1);

/// Fragments of one chunk, each verified, at least k of them or the chunk itself.
pub(super) struct Fetched {
    fragments: BTreeMap<u8, Bytes>,
    whole: Option<Bytes>,
    /// Whether a data fragment could not be had, as opposed to being slower than parity.
    is_short_of_data: bool,
}

/// Fetches chunks.
pub(super) struct Fetcher {
    manifest: Arc<Manifest>,
    codec: Codec,
    holders: Vec<Source>,
    corrupt: AtomicU64,
}

/// One chunk being fetched.
struct Search {
    chunk: ChunkIndex,
    fragment_bytes: u64,
    have: BTreeMap<u8, Bytes>,
    under_way: BTreeSet<(usize, u8)>,
    /// Not to be asked again: damaged or not there.
    gone: BTreeSet<(usize, u8)>,
    /// Not to be asked again in this round.
    failed: BTreeSet<(usize, u8)>,
    last_error: Option<Error>,
}

impl Fetcher {
    pub(super) fn new(manifest: Arc<Manifest>, holders: Vec<Holder>) -> Self {
        Self {
            codec: Codec::new(manifest.code),
            manifest,
            holders: holders.into_iter().map(Source::new).collect(),
            corrupt: AtomicU64::new(0),
        }
    }

    pub(super) fn holders(&self) -> &[Source] {
        &self.holders
    }

    pub(super) fn corrupt_fragments(&self) -> u64 {
        self.corrupt.load(Ordering::Relaxed)
    }

    /// Fetches k fragments of the chunk, or the chunk itself where it is held whole and fragments
    /// do not suffice.
    pub(super) async fn fetch(&self, chunk: u32) -> Result<Fetched> {
        let size = self.manifest.stored_bytes(chunk);
        let mut search = Search {
            chunk: ChunkIndex::new(chunk),
            fragment_bytes: self.manifest.code.fragment_size(size).get(),
            have: BTreeMap::new(),
            under_way: BTreeSet::new(),
            gone: BTreeSet::new(),
            failed: BTreeSet::new(),
            last_error: None,
        };
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                sleep(ROUND_PAUSE * (1 << (round - 1).min(3))).await;
            }
            search.failed.clear();
            self.gather(&mut search, round > 1).await;
            if search.have.len() >= usize::from(self.manifest.code.data()) {
                let is_short_of_data = self.is_short_of_data(&search);
                return Ok(Fetched {
                    fragments: search.have,
                    whole: None,
                    is_short_of_data,
                });
            }
            if let Some(whole) = self.fetch_whole(&search).await {
                let fragments = BTreeMap::new();
                return Ok(Fetched {
                    fragments,
                    whole: Some(whole),
                    is_short_of_data: false,
                });
            }
        }
        Err(self.too_few(search))
    }

    /// Runs requests until k fragments are there or nobody is left to ask.
    async fn gather(&self, search: &mut Search, with_lost: bool) {
        let needed = usize::from(self.manifest.code.data());
        let mut requests = FuturesUnordered::new();
        let mut extra = 0;
        let mut patience = HEDGE_MIN;
        while search.have.len() < needed {
            while search.have.len() + search.under_way.len() < needed + extra
                && let Some((holder, fragment)) = self.choose(search, with_lost)
            {
                search.under_way.insert((holder, fragment));
                let predicted = self.holders[holder].predict(search.fragment_bytes);
                patience = patience.max(predicted * HEDGE_FACTOR);
                requests.push(self.request(search.chunk, holder, fragment, search.fragment_bytes));
            }
            tokio::select! {
                done = requests.next() => {
                    let Some((holder, fragment, result)) = done else { break };
                    self.on_answer(search, holder, fragment, result);
                }
                () = sleep(patience), if extra < usize::from(self.manifest.code.parity()) => {
                    extra += 1;
                }
            }
        }
        // Requests that others overtook are dropped here.
        search.under_way.clear();
    }

    async fn request(
        &self,
        chunk: ChunkIndex,
        holder: usize,
        fragment: u8,
        bytes: u64,
    ) -> (usize, u8, Result<Bytes>) {
        let index = FragmentIndex::new(fragment);
        let Some(expected) = self.manifest.fragment_digest(chunk, index) else {
            let error = Error::new(ErrorKind::NotFound, "find", format!("fragment {index}"));
            return (holder, fragment, Err(error));
        };
        let dataset = &self.manifest.dataset;
        let source = &self.holders[holder];
        let result = source.fetch(dataset, chunk, index, expected, bytes).await;
        (holder, fragment, result)
    }

    fn on_answer(&self, search: &mut Search, holder: usize, fragment: u8, result: Result<Bytes>) {
        search.under_way.remove(&(holder, fragment));
        match result {
            Ok(bytes) => {
                search.have.insert(fragment, bytes);
            }
            Err(error) => {
                if error.kind() == ErrorKind::Corrupt {
                    self.corrupt.fetch_add(1, Ordering::Relaxed);
                }
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) {
                    search.gone.insert((holder, fragment));
                } else {
                    search.failed.insert((holder, fragment));
                }
                search.last_error = Some(error);
            }
        }
    }

    /// The request that is predicted to be answered first, of all that make sense now.
    fn choose(&self, search: &Search, with_lost: bool) -> Option<(usize, u8)> {
        let is_wanted = |fragment: u8| {
            !search.have.contains_key(&fragment)
                && !search.under_way.iter().any(|&(_, other)| other == fragment)
        };
        let data = self.manifest.code.data();
        let options = self
            .options(search, with_lost)
            .filter(|&(_, fragment)| is_wanted(fragment));
        options.min_by_key(|&(holder, fragment)| {
            let predicted = self.holders[holder].predict(search.fragment_bytes);
            let percent = if fragment < data {
                100
            } else {
                PARITY_HANDICAP_PERCENT
            };
            (predicted * percent, fragment, holder)
        })
    }

    /// Everything that could be asked for.
    fn options(&self, search: &Search, with_lost: bool) -> impl Iterator<Item = (usize, u8)> {
        let total = self.manifest.code.total();
        let holders = self.holders.iter().enumerate();
        holders
            .filter(move |(_, source)| with_lost || !source.is_lost())
            .flat_map(move |(holder, source)| {
                let fragments = source
                    .fragments(search.chunk)
                    .map(|fragment| fragment.get());
                fragments
                    .map(move |fragment| (holder, fragment))
                    .filter(move |option| {
                        option.1 < total
                            && !search.gone.contains(option)
                            && !search.failed.contains(option)
                    })
            })
    }

    fn is_short_of_data(&self, search: &Search) -> bool {
        let reachable: BTreeSet<u8> = self
            .options(search, false)
            .map(|(_, fragment)| fragment)
            .collect();
        (0..self.manifest.code.data())
            .any(|fragment| !search.have.contains_key(&fragment) && !reachable.contains(&fragment))
    }

    /// The chunk itself, from a depot that holds it uncoded.
    async fn fetch_whole(&self, search: &Search) -> Option<Bytes> {
        let expected = self
            .manifest
            .fragment_digest(search.chunk, FragmentIndex::WHOLE)?;
        let bytes = self.manifest.stored_bytes(search.chunk.get()).get();
        for source in &self.holders {
            if source
                .fragments(search.chunk)
                .all(|fragment| fragment != FragmentIndex::WHOLE)
            {
                continue;
            }
            let dataset = &self.manifest.dataset;
            let whole = FragmentIndex::WHOLE;
            match source
                .fetch(dataset, search.chunk, whole, expected, bytes)
                .await
            {
                Ok(chunk) => return Some(chunk),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    self.corrupt.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {}
            }
        }
        None
    }

    fn too_few(&self, search: Search) -> Error {
        let lost: Vec<&str> = self
            .holders
            .iter()
            .filter(|source| source.is_lost())
            .map(|source| source.name.as_str())
            .collect();
        let cause = format!(
            "only {} of the {} fragments it takes can be had{}{}",
            search.have.len(),
            self.manifest.code.data(),
            if lost.is_empty() {
                ""
            } else {
                "; out of reach: "
            },
            lost.join(", ")
        );
        let error = Error::new(
            ErrorKind::Unreachable,
            "pull",
            format!("chunk {}", search.chunk.get()),
        )
        .at(Locus::Source)
        .cause(cause)
        .hint("run it again when the depots are back; what is here is kept");
        match search.last_error {
            Some(last) => error.with("last", last),
            None => error,
        }
    }

    /// What a chunk holds, in consecutive pieces, rebuilt and decrypted where it must be, and whether
    /// it was rebuilt because data fragments could not be had. Blocking: computes.
    pub(super) fn assemble(&self, chunk: u32, fetched: Fetched) -> Result<(Vec<Bytes>, bool)> {
        let (pieces, rebuilt) = match fetched.whole {
            Some(whole) => (vec![whole], false),
            None => self.rebuild(chunk, fetched)?,
        };
        let size = usize::try_from(self.manifest.stored_bytes(chunk).get()).unwrap_or(usize::MAX);
        let place = usize::try_from(chunk).unwrap_or(usize::MAX);
        let digests = self.manifest.chunks.get(place);
        let digests = digests.ok_or_else(|| defect(chunk, "the manifest does not know it"))?;
        match (&self.manifest.cipher, digests.content) {
            (Some(cipher), Some(content)) => {
                let mut bytes = joined(&pieces, size);
                drop(pieces);
                cipher
                    .decrypt(TextName::Chunk(chunk), &content, &mut bytes)
                    .map_err(|Unopened| {
                        defect(
                            chunk,
                            "its fragments are right and it does not open: the manifest is wrong",
                        )
                    })?;
                Ok((vec![Bytes::from(bytes)], rebuilt))
            }
            _ if digest_of_start(&pieces, size) == Some(digests.chunk) => Ok((pieces, rebuilt)),
            _ => Err(defect(
                chunk,
                "its fragments are right and it is not: the manifest is wrong",
            )),
        }
    }

    /// The k data fragments of a chunk, rebuilt where they were not fetched.
    fn rebuild(&self, chunk: u32, fetched: Fetched) -> Result<(Vec<Bytes>, bool)> {
        let data = self.manifest.code.data();
        let mut fragments = fetched.fragments;
        let missing: Vec<u8> = (0..data)
            .filter(|index| !fragments.contains_key(index))
            .collect();
        if !missing.is_empty() {
            let length = fragments.values().next().map_or(0, Bytes::len);
            let mut rebuilt = vec![vec![0; length]; missing.len()];
            let present: Vec<(u8, &[u8])> = fragments
                .iter()
                .map(|(&index, bytes)| (index, bytes.as_ref()))
                .collect();
            let mut out: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
            self.codec
                .reconstruct(&present, &missing, &mut out)
                .map_err(|cause| defect(chunk, cause))?;
            let rebuilt = rebuilt.into_iter().map(Bytes::from);
            fragments.extend(missing.iter().copied().zip(rebuilt));
        }
        let pieces = fragments
            .into_iter()
            .filter(|&(index, _)| index < data)
            .map(|(_, bytes)| bytes);
        let is_rebuilt = !missing.is_empty() && fetched.is_short_of_data;
        Ok((pieces.collect(), is_rebuilt))
    }
}

fn defect(chunk: u32, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Corrupt, "put together", format!("chunk {chunk}"))
        .at(Locus::Source)
        .cause(cause)
}

/// The first `size` bytes of consecutive pieces, as one.
fn joined(pieces: &[Bytes], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    for piece in pieces {
        let used = piece.len().min(size - bytes.len());
        bytes.extend_from_slice(&piece[..used]);
    }
    bytes
}

/// BLAKE3 of the first `size` bytes of consecutive pieces; nothing when there are fewer.
fn digest_of_start(pieces: &[Bytes], size: usize) -> Option<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut left = size;
    for piece in pieces {
        let used = left.min(piece.len());
        hasher.update(&piece[..used]);
        left -= used;
    }
    (left == 0).then(|| Digest::new(*hasher.finalize().as_bytes()))
}
