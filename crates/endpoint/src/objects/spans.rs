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
pub(crate) struct Spans(Option<(StoredSum, Arc<Mutex<Seen>>)>);

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
    summer: StoredSummer,
    /// Later bytes, by their start.
    ahead: BTreeMap<u64, Bytes>,
    ahead_bytes: u64,
}

impl Spans {
    /// Begins to read a file with this checksum at its store, if there is one.
    pub(crate) fn of(wanted: Option<StoredSum>) -> Self {
        Self(wanted.map(|wanted| {
            let seen = match wanted.adds_up() {
                true => Seen::Ranges(BTreeMap::new()),
                false => Seen::InOrder(Box::new(InOrder {
                    at: 0,
                    summer: wanted.summer(),
                    ahead: BTreeMap::new(),
                    ahead_bytes: 0,
                })),
            };
            (wanted, Arc::new(Mutex::new(seen)))
        }))
    }

    /// Returns the store's checksum.
    pub(crate) fn wanted(&self) -> Option<StoredSum> {
        self.0.as_ref().map(|(wanted, _)| *wanted)
    }

    /// Passes on the `len` bytes from `start`, and hashes them: if a range is read again, the later
    /// bytes count.
    pub(crate) fn watch(&self, start: u64, len: u64, body: ByteStream) -> ByteStream {
        let Some((wanted, seen)) = &self.0 else {
            return body;
        };
        look(seen).begin(start, len);
        let (mut at, seen) = (start, Arc::clone(seen));
        let mut summer = wanted.adds_up().then(|| wanted.summer());
        Box::pin(body.inspect(move |bytes| {
            let Ok(bytes) = bytes else {
                return;
            };
            match &mut summer {
                Some(sum) => sum.add(bytes),
                None => look(&seen).take(at, bytes),
            }
            at += bytes.len() as u64;
            if at == start + len
                && let Some(sum) = summer.as_mut()
            {
                look(&seen).note(start, len, sum.sum());
            }
        }))
    }

    /// Returns whether the file differs from the store's checksum, if every one of its `size` bytes
    /// was read.
    pub(crate) fn is_other(&self, size: u64) -> bool {
        let Some((wanted, seen)) = &self.0 else {
            return false;
        };
        let found = look(seen).sum(*wanted, size);
        found.is_some_and(|found| found != *wanted)
    }
}

fn look(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn begin(&mut self, start: u64, len: u64) {
        match self {
            Self::Ranges(spans) => {
                spans.remove(&start);
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
        let (_, seen) = spans.0.as_ref().unwrap();
        let bytes = Bytes::from(vec![0; 1 << 20]);
        for mebi in 1..=AHEAD_BYTES_MAX >> 20 {
            look(seen).take(mebi << 20, &bytes);
        }
        assert!(matches!(*look(seen), Seen::InOrder(_)));
        look(seen).take(AHEAD_BYTES_MAX + (1 << 20), &bytes);
        assert!(matches!(*look(seen), Seen::Lost));
        assert!(!spans.is_other(1 << 30));
    }
}
