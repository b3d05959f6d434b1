//! Race of two ways to one chunk: its fragments from several depots, or the chunk itself from a
//! holder of it.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use bytes::Bytes;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{ChunkIndex, FragmentIndex};
use tokio::{sync::Notify, time::sleep};

use super::{Fetcher, HEDGE_FACTOR, HEDGE_MIN, Search};

/// Result for a chunk that can be had in two ways.
pub(super) enum Race {
    Whole(Bytes),
    Fragments,
}

impl Fetcher {
    /// Races both ways. If neither ends well, the holder of the whole chunk is asked no more.
    pub(super) async fn race(
        &self,
        search: &mut Search,
        holder: usize,
        with_lost: bool,
    ) -> Option<Race> {
        match self.run_race(search, holder, with_lost).await {
            Ok(race) => Some(race),
            Err(error) => {
                self.on_refusal(search, holder, FragmentIndex::WHOLE.get(), error);
                None
            }
        }
    }

    /// Runs the way that is predicted to be faster, and also the other one if that fails or is
    /// late.
    async fn run_race(&self, search: &mut Search, holder: usize, with_lost: bool) -> Result<Race> {
        let predicted = self.holders[holder].predict(search.whole_bytes);
        let of_fragments = self.predict_fragments(search, with_lost);
        let is_whole_first = of_fragments.is_none_or(|fragments| predicted <= fragments);
        let patience = |predicted: Duration| HEDGE_MIN.max(predicted * HEDGE_FACTOR);
        let fragments_after = is_whole_first.then(|| patience(predicted));
        let whole_after = of_fragments.filter(|_| !is_whole_first).map(patience);
        let (chunk, bytes) = (search.chunk, search.whole_bytes);
        let failed = Notify::new();
        let whole = async {
            tokio::select! {
                () = sleep(whole_after.unwrap_or_default()) => {}
                () = failed.notified() => {}
            }
            self.fetch_whole(chunk, holder, bytes).await
        };
        let other_failed = Notify::new();
        let fragments = async {
            tokio::select! {
                () = sleep(fragments_after.unwrap_or_default()) => {}
                () = other_failed.notified() => {}
            }
            self.gather(search, with_lost).await;
            self.is_enough(search)
        };
        let (mut whole, mut fragments) = (pin!(whole), pin!(fragments));
        let mut refusal = None;
        let gathered = loop {
            tokio::select! {
                answer = &mut whole, if refusal.is_none() => match answer {
                    Ok(bytes) => return Ok(Race::Whole(bytes)),
                    Err(error) => {
                        refusal = Some(error);
                        other_failed.notify_one();
                    }
                },
                is_enough = &mut fragments => break is_enough,
            }
        };
        match refusal {
            _ if gathered => Ok(Race::Fragments),
            Some(error) => Err(error),
            None => {
                failed.notify_one();
                whole.await.map(Race::Whole)
            }
        }
    }

    /// Fetches the chunk itself, from a holder that has it uncoded.
    async fn fetch_whole(&self, chunk: ChunkIndex, holder: usize, bytes: u64) -> Result<Bytes> {
        let whole = FragmentIndex::WHOLE;
        let expected = self.manifest.fragment_digest(chunk, whole);
        let expected =
            expected.ok_or_else(|| Error::new(ErrorKind::NotFound, "find", format!("{chunk}")))?;
        let dataset = &self.manifest.dataset;
        let source = &self.holders[holder];
        source.fetch(dataset, chunk, whole, expected, bytes).await
    }

    /// Returns the holder that would bring the whole chunk first, of all that have it.
    pub(super) fn choose_whole(&self, search: &Search, with_lost: bool) -> Option<usize> {
        let whole = FragmentIndex::WHOLE.get();
        let options = self.can_ask(search, with_lost);
        let options = options.filter(|&(_, fragment)| fragment == whole);
        options
            .map(|(holder, _)| holder)
            .min_by_key(|&holder| self.holders[holder].predict(search.whole_bytes))
    }

    /// Predicts when k fragments would be here, from now; `None` if there are too few.
    fn predict_fragments(&self, search: &Search, with_lost: bool) -> Option<Duration> {
        let mut best: BTreeMap<u8, Duration> = BTreeMap::new();
        let mut asked: BTreeMap<usize, u64> = BTreeMap::new();
        for (holder, fragment) in self.options(search, with_lost) {
            if search.have.contains_key(&fragment) {
                continue;
            }
            let before = asked.entry(holder).or_default();
            let bytes = (*before + 1) * search.fragment_bytes;
            let predicted = self.holders[holder].predict(bytes);
            let is_better = best.get(&fragment).is_none_or(|known| predicted < *known);
            if is_better {
                *before += 1;
                best.insert(fragment, predicted);
            }
        }
        let mut best: Vec<Duration> = best.into_values().collect();
        best.sort_unstable();
        let missing = usize::from(self.manifest.code.data()).saturating_sub(search.have.len());
        match missing.checked_sub(1) {
            None => Some(Duration::ZERO),
            Some(last) => best.get(last).copied(),
        }
    }
}
