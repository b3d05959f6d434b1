//! Fetch of enough fragments of a chunk, or of the chunk itself, from the holders that are fastest.
//!
//! Fragments from several depots and the whole chunk from one holder (the source above all) are two
//! ways to the same bytes. The pull starts with the one predicted to be faster. If that fails or
//! takes much longer, it starts the other too, and the first to end wins.

mod race;

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
use tokio::time::{Instant, sleep};

use super::{Holder, holder::Source};
use crate::{
    code::Codec,
    dataset::Manifest,
    envelope::{TextName, Unopened},
};
use race::Race;

/// Rounds of asking all depots for a chunk when too few fragments could be had.
const ROUNDS_MAX: u32 = 6;
/// Pause before the second round; doubles up to 4 s. All rounds together wait for about 10 s: as
/// long as a supervisor takes to restart a relay.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// Advantage in speed for which parity is preferred to data: rebuilding costs memory traffic.
const PARITY_HANDICAP_PERCENT: u32 = 125;
/// Multiple of the predicted time after which an additional fragment is asked for, if that is at
/// least [`HEDGE_MIN`].
const HEDGE_FACTOR: u32 = 4;
/// Shortest interval of asking holders what they hold, and its multiple of the time that asking
/// takes: a list of a million chunks is 37 MB.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(400);
const LOOK_PAUSE_FACTOR: u32 = 10;
/// Shortest time after which a request is cheaper than patience.
const HEDGE_MIN: Duration = Duration::from_secs(1);

/// Fragments of one chunk, each verified: at least k of them, or the chunk itself.
pub(super) struct Fetched {
    fragments: BTreeMap<u8, Bytes>,
    whole: Option<Bytes>,
    /// A data fragment could not be had, as opposed to being slower than parity.
    is_short_of_data: bool,
}

impl Fetched {
    fn of_whole(bytes: Bytes) -> Self {
        Self {
            fragments: BTreeMap::new(),
            whole: Some(bytes),
            is_short_of_data: false,
        }
    }
}

/// Fetches chunks.
pub(super) struct Fetcher {
    manifest: Arc<Manifest>,
    codec: Codec,
    holders: Vec<Source>,
    corrupt: AtomicU64,
    /// Last time all holders were asked what they hold, and how long that took.
    looked: tokio::sync::Mutex<(Instant, Duration)>,
}

/// Fetch of one chunk.
struct Search {
    chunk: ChunkIndex,
    whole_bytes: u64,
    fragment_bytes: u64,
    have: BTreeMap<u8, Bytes>,
    under_way: BTreeSet<(usize, u8)>,
    /// Requests that are not repeated: the fragment is damaged or not there.
    gone: BTreeSet<(usize, u8)>,
    /// Requests that are not repeated in this round.
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
            looked: tokio::sync::Mutex::new((Instant::now(), Duration::ZERO)),
        }
    }

    pub(super) fn holders(&self) -> &[Source] {
        &self.holders
    }

    pub(super) fn corrupt_fragments(&self) -> u64 {
        self.corrupt.load(Ordering::Relaxed)
    }

    /// Fetches k fragments of the chunk, or the chunk itself from a holder of it: whatever is here
    /// first.
    pub(super) async fn fetch(&self, chunk: u32) -> Result<Fetched> {
        let size = self.manifest.stored_bytes(chunk);
        let mut search = Search {
            chunk: ChunkIndex::new(chunk),
            whole_bytes: size.get(),
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
                self.look_again().await;
            }
            search.failed.clear();
            let with_lost = round > 1;
            while let Some(whole) = self.choose_whole(&search, with_lost) {
                match self.race(&mut search, whole, with_lost).await {
                    Some(Race::Whole(bytes)) => return Ok(Fetched::of_whole(bytes)),
                    Some(Race::Fragments) => return Ok(self.fetched(search)),
                    None => {}
                }
            }
            self.gather(&mut search, with_lost).await;
            if self.is_enough(&search) {
                return Ok(self.fetched(search));
            }
        }
        Err(self.too_few(search))
    }

    fn is_enough(&self, search: &Search) -> bool {
        search.have.len() >= usize::from(self.manifest.code.data())
    }

    fn fetched(&self, search: Search) -> Fetched {
        Fetched {
            is_short_of_data: self.is_short_of_data(&search),
            fragments: search.have,
            whole: None,
        }
    }

    /// Asks all holders what they hold by now, unless that was just done. Returns whether any holds
    /// more.
    pub(super) async fn look_again(&self) -> bool {
        let mut looked = self.looked.lock().await;
        let (at, took) = *looked;
        if at.elapsed() < LOOK_EVERY_MIN.max(took * LOOK_PAUSE_FACTOR) {
            return false;
        }
        let start = Instant::now();
        let looks = self.holders.iter();
        let looks = looks.map(|holder| holder.look_again(&self.manifest.dataset));
        let found = futures_util::future::join_all(looks).await;
        *looked = (Instant::now(), start.elapsed());
        found.contains(&true)
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
            Err(error) => self.on_refusal(search, holder, fragment, error),
        }
    }

    fn on_refusal(&self, search: &mut Search, holder: usize, fragment: u8, error: Error) {
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

    /// Returns the request that is predicted to be answered first, of all that make sense now.
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

    /// Returns every fragment that could be asked for.
    fn options(&self, search: &Search, with_lost: bool) -> impl Iterator<Item = (usize, u8)> {
        let total = self.manifest.code.total();
        let all = self.can_ask(search, with_lost);
        all.filter(move |&(_, fragment)| fragment < total)
    }

    /// Returns everything that could be asked for, whole chunks too.
    fn can_ask(&self, search: &Search, with_lost: bool) -> impl Iterator<Item = (usize, u8)> {
        let holders = self.holders.iter().enumerate();
        holders
            .filter(move |(_, source)| with_lost || !source.is_lost())
            .flat_map(move |(holder, source)| {
                let fragments = source.fragments(search.chunk).into_iter();
                fragments
                    .map(move |fragment| (holder, fragment.get()))
                    .filter(move |option| {
                        !search.gone.contains(option) && !search.failed.contains(option)
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

    fn too_few(&self, search: Search) -> Error {
        let lost: Vec<&str> = self
            .holders
            .iter()
            .filter(|source| source.is_lost())
            .map(|source| source.name.as_str())
            .collect();
        let mut cause = format!(
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
        // The holder of the chunk itself says why it gives it no more.
        if let Some(last) = &search.last_error
            && last.kind() == ErrorKind::NotFound
        {
            cause = format!("{cause}; the last said: {last}");
        }
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

    /// Returns the content of a chunk in consecutive pieces, rebuilt and decrypted if necessary,
    /// and whether it was rebuilt because data fragments could not be had. Blocking: computes.
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

    /// Returns the k data fragments of a chunk, rebuilt if they were not fetched.
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

/// Returns the first `size` bytes of consecutive pieces, as one.
fn joined(pieces: &[Bytes], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    for piece in pieces {
        let used = piece.len().min(size - bytes.len());
        bytes.extend_from_slice(&piece[..used]);
    }
    bytes
}

/// Returns the BLAKE3 digest of the first `size` bytes of consecutive pieces; `None` if there are
/// fewer.
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
