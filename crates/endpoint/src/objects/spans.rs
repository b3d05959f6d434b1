//! Files read in ranges, compared with a store's checksum of the whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures_util::StreamExt;

use crate::{
    checksum::{StoredSum, StoredSummer},
    endpoint::ByteStream,
};

/// Most ranges whose checksums are remembered: more than a large file has segments.
const RANGES_MAX: usize = 20_000;

/// Most bytes of one file that wait for earlier ones, if its checksum must be computed from start
/// to end: the usual lead of a few streams. A file whose streams drift further apart is not
/// compared.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// Ranges of a file read so far, and the store's checksum of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<Option<Told>>>);

/// Checksum of a file at its store, and what was read.
#[derive(Debug)]
struct Told {
    wanted: StoredSum,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    /// Completed ranges: the start of each, its length and its checksum.
    Ranges(BTreeMap<u64, (u64, StoredSum)>),
    InOrder(Box<InOrder>),
    /// Comparison no longer possible.
    Lost,
}

/// Bytes hashed in order from the first.
#[derive(Debug)]
struct InOrder {
    at: u64,
    wanted: StoredSum,
    summer: StoredSummer,
    /// Later bytes, by their start.
    ahead: BTreeMap<u64, Bytes>,
    ahead_bytes: u64,
}

impl Spans {
    /// Begins to read a file with this checksum at its store, if there is one.
    pub(crate) fn of(wanted: Option<StoredSum>) -> Self {
        Self(Arc::new(Mutex::new(wanted.map(Told::new))))
    }

    /// Learns the checksum that an answer reports. Returns whether it agrees with what was reported
    /// before. That of an answer with the `whole` file counts from now on.
    pub(crate) fn learn(&self, told: StoredSum, whole: bool) -> bool {
        let mut known = self.known();
        let contradicts = |known: &Told| known.wanted.contradicts(told);
        let is_other = known.as_ref().is_some_and(contradicts);
        if known.is_none() || is_other && whole {
            *known = Some(Told::new(told));
        }
        whole || !is_other
    }

    /// Forgets the checksum, which turned out to be none.
    pub(crate) fn forget(&self) {
        *self.known() = None;
    }

    /// Returns the store's checksum.
    pub(crate) fn wanted(&self) -> Option<StoredSum> {
        self.known().as_ref().map(|known| known.wanted)
    }

    fn known(&self) -> MutexGuard<'_, Option<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on the `len` bytes from `start`, and hashes them: if a range is read again, the later
    /// bytes count.
    pub(crate) fn watch(&self, start: u64, len: u64, body: ByteStream) -> ByteStream {
        let mut summer = match &mut *self.known() {
            None => return body,
            Some(known) => {
                known.seen.begin(start, len);
                let wanted = known.wanted;
                wanted.adds_up().then(|| wanted.summer())
            }
        };
        let (mut at, spans) = (start, self.clone());
        Box::pin(body.inspect(move |bytes| {
            let Ok(bytes) = bytes else {
                return;
            };
            match &mut summer {
                Some(sum) => sum.add(bytes),
                None => spans.change(|seen| seen.take(at, bytes)),
            }
            at += bytes.len() as u64;
            if at == start + len
                && let Some(sum) = summer.as_mut()
            {
                spans.change(|seen| seen.note(start, len, sum.sum()));
            }
        }))
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        if let Some(known) = &mut *self.known() {
            change(&mut known.seen);
        }
    }

    /// Returns whether the file has the store's checksum: every one of its `size` bytes was read.
    pub(crate) fn is_same(&self, size: u64) -> bool {
        self.compared(size) == Some(true)
    }

    /// Returns whether the file differs from the store's checksum, if every one of its `size` bytes
    /// was read.
    pub(crate) fn is_other(&self, size: u64) -> bool {
        self.compared(size) == Some(false)
    }

    fn compared(&self, size: u64) -> Option<bool> {
        let known = self.known();
        let known = known.as_ref()?;
        let found = known.seen.sum(known.wanted, size)?;
        Some(found == known.wanted)
    }
}

impl Told {
    fn new(wanted: StoredSum) -> Self {
        let seen = match wanted.adds_up() {
            true => Seen::Ranges(BTreeMap::new()),
            false => Seen::InOrder(Box::new(InOrder::new(wanted))),
        };
        Self { wanted, seen }
    }
}

impl Seen {
    fn begin(&mut self, start: u64, len: u64) {
        match self {
            Self::Ranges(spans) => {
                spans.remove(&start);
            }
            // It is read anew.
            Self::InOrder(order) if start == 0 => {
                order.forget(0, len);
                order.restart();
            }
            Self::InOrder(order) if start < order.at => *self = Self::Lost,
            Self::InOrder(order) => order.forget(start, len),
            Self::Lost => {}
        }
    }

    fn note(&mut self, start: u64, len: u64, sum: StoredSum) {
        if let Self::Ranges(spans) = self
            && spans.len() < RANGES_MAX
        {
            spans.insert(start, (len, sum));
        }
    }

    fn take(&mut self, at: u64, bytes: &Bytes) {
        let Self::InOrder(order) = self else {
            return;
        };
        if !order.take(at, bytes) {
            *self = Self::Lost;
        }
    }

    /// Returns the checksum of the whole file, if all of it was read in adjacent ranges.
    fn sum(&self, way: StoredSum, size: u64) -> Option<StoredSum> {
        match self {
            Self::Ranges(spans) => {
                let (mut end, mut sum) = (0, way.summer().sum());
                for (&start, &(len, next)) in spans {
                    if start != end {
                        return None;
                    }
                    sum = sum.then(next, len)?;
                    end += len;
                }
                (end == size).then_some(sum)
            }
            Self::InOrder(order) => (order.at == size).then(|| order.summer.sum()),
            Self::Lost => None,
        }
    }
}

impl InOrder {
    fn new(wanted: StoredSum) -> Self {
        Self {
            at: 0,
            summer: wanted.summer(),
            wanted,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
        }
    }

    fn restart(&mut self) {
        self.at = 0;
        self.summer = self.wanted.summer();
    }

    fn forget(&mut self, start: u64, len: u64) {
        let known: Vec<u64> = self
            .ahead
            .range(start..start + len)
            .map(|(at, _)| *at)
            .collect();
        for at in known {
            let gone = self.ahead.remove(&at);
            self.ahead_bytes -= gone.map_or(0, |gone| gone.len() as u64);
        }
    }

    /// Accepts bytes from `at` on; false if comparison is no longer possible: too many would wait,
    /// or ranges overlap.
    fn take(&mut self, at: u64, bytes: &Bytes) -> bool {
        if at > self.at {
            self.ahead_bytes += bytes.len() as u64;
            let known = self.ahead.insert(at, bytes.clone());
            return known.is_none() && self.ahead_bytes <= AHEAD_BYTES_MAX;
        }
        let mut is_next = self.add(at, bytes);
        while is_next
            && let Some(first) = self.ahead.first_entry()
            && *first.key() <= self.at
        {
            let (at, bytes) = first.remove_entry();
            self.ahead_bytes -= bytes.len() as u64;
            is_next = self.add(at, &bytes);
        }
        is_next
    }

    fn add(&mut self, at: u64, bytes: &Bytes) -> bool {
        let is_next = at == self.at;
        if is_next {
            self.summer.add(bytes);
            self.at += bytes.len() as u64;
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Crc32c;

    async fn read(spans: &Spans, all: &'static [u8], start: usize, end: usize) {
        let pieces = all[start..end].chunks(3).map(Bytes::from_static).map(Ok);
        let pieces: Vec<_> = pieces.collect();
        let body: ByteStream = Box::pin(futures_util::stream::iter(pieces));
        let mut body = spans.watch(start as u64, (end - start) as u64, body);
        while let Some(bytes) = body.next().await {
            bytes.unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_is_summed_in_whatever_order_its_ranges_come() {
        let all = b"what a store keeps of a whole file";
        let ways = [StoredSum::Crc32c(Crc32c::EMPTY), StoredSum::Md5([0; 16])];
        for way in ways {
            let mut summer = way.summer();
            summer.add(all);
            for (wanted, is_other) in [(summer.sum(), false), (way, true)] {
                let spans = Spans::of(Some(wanted));
                read(&spans, all, 20, all.len()).await;
                read(&spans, all, 8, 20).await;
                assert!(!spans.is_other(all.len() as u64), "some is missing");
                // Tried again: the first bytes no longer count.
                read(&spans, b"????????????????????", 8, 20).await;
                read(&spans, all, 8, 20).await;
                read(&spans, all, 0, 8).await;
                assert_eq!(spans.is_other(all.len() as u64), is_other, "{way:?}");
                // Bytes hashed in order can't be removed.
                read(&spans, all, 0, 8).await;
                assert_eq!(spans.is_other(all.len() as u64), is_other && way.adds_up());
            }
        }
    }

    #[test]
    fn what_would_wait_without_end_is_given_up() {
        let spans = Spans::of(Some(StoredSum::Md5([0; 16])));
        let bytes = Bytes::from(vec![0; 1 << 20]);
        for mebi in 1..=AHEAD_BYTES_MAX >> 20 {
            spans.change(|seen| seen.take(mebi << 20, &bytes));
        }
        let is_lost = || {
            let known = spans.known();
            matches!(known.as_ref().unwrap().seen, Seen::Lost)
        };
        assert!(!is_lost());
        spans.change(|seen| seen.take(AHEAD_BYTES_MAX + (1 << 20), &bytes));
        assert!(is_lost());
        assert!(!spans.is_other(1 << 30) && !spans.is_same(1 << 30));
    }

    #[tokio::test]
    async fn a_checksum_that_is_told_later_counts_and_another_one_is_a_contradiction() {
        let all = b"what a store keeps of a whole file";
        for way in [StoredSum::Crc32c(Crc32c::EMPTY), StoredSum::Md5([0; 16])] {
            let right = way.of(&[Bytes::from_static(all)]);
            let spans = Spans::default();
            assert!(spans.learn(right, false) && spans.learn(right, false));
            read(&spans, all, 8, all.len()).await;
            read(&spans, all, 0, 8).await;
            assert!(spans.is_same(all.len() as u64));
            assert!(
                spans.learn(StoredSum::Sha1([0; 20]), false),
                "of another kind"
            );
            assert!(!spans.learn(way, false));
            assert_eq!(spans.wanted(), Some(right));
            // The answer with all of the file says what it holds.
            assert!(spans.learn(way, true));
            assert_eq!(spans.wanted(), Some(way));
            // Read once more from its start, it is compared anew.
            read(&spans, all, 0, all.len()).await;
            read(&spans, all, 0, all.len()).await;
            assert!(spans.is_other(all.len() as u64));
        }
    }
}
