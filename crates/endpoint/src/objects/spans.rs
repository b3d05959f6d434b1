//! Files read in ranges, compared with the CRC-32C that a store keeps of the whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;

use crate::{
    checksum::{Crc32c, Crc32cSummer},
    endpoint::ByteStream,
};

/// Ranges of which the checksums are remembered: more than a large file has segments.
const RANGES_MAX: usize = 20_000;

/// Of the ranges read to their end: where each starts, its length and its checksum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<BTreeMap<u64, (u64, Crc32c)>>>);

impl Spans {
    /// Passes on the `len` bytes from `start`, and notes their checksum when the last of them has
    /// come.
    pub(crate) fn watch(&self, start: u64, len: u64, body: ByteStream) -> ByteStream {
        let mut summer = Some(Crc32cSummer::default());
        let (mut left, spans) = (len, self.clone());
        Box::pin(body.inspect(move |bytes| {
            let (Ok(bytes), Some(sum)) = (bytes, &mut summer) else {
                return;
            };
            sum.add(bytes);
            left = left.saturating_sub(bytes.len() as u64);
            if left == 0 {
                spans.note(start, len, sum.sum());
                summer = None;
            }
        }))
    }

    fn note(&self, start: u64, len: u64, sum: Crc32c) {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < RANGES_MAX {
            spans.insert(start, (len, sum));
        }
    }

    /// The checksum of the whole file, where every one of its `size` bytes was read in ranges that
    /// meet.
    pub(crate) fn sum(&self, size: u64) -> Option<Crc32c> {
        let spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut end, mut sum) = (0, Crc32c::EMPTY);
        for (&start, &(len, next)) in spans.iter() {
            if start != end {
                return None;
            }
            sum = sum.then(next, len);
            end += len;
        }
        (end == size).then_some(sum)
    }
}
