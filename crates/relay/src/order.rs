//! Orders of other relays or services, as far as they are alike.

use std::{collections::BTreeSet, sync::Arc};

use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId,
        wire::{KEPT_S_MAX, OBJECT_BYTES_MAX, Object},
    },
};
use posthaste_types::{ChunkIndex, Code, Digest, FragmentIndex};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    clock,
    store::{Refusal, Stored},
};

pub(crate) fn invalid(what: &str) -> Refusal {
    Refusal::new(ErrorKind::Invalid, what)
}

/// Parses an order. Its text is never shown, because there are tokens in it. `fault` says what it
/// lacks.
pub(crate) fn read<T: DeserializeOwned>(order: &[u8], fault: &str) -> Result<T, Refusal> {
    serde_json::from_slice(order).map_err(|_| invalid(fault))
}

/// Checks an expiry.
pub(crate) fn check_expiry(expires_unix_s: u64) -> Result<(), Refusal> {
    let now_s = clock::unix_s();
    if expires_unix_s <= now_s {
        return Err(invalid(
            "the dataset has expired already by the relay's clock",
        ));
    }
    if expires_unix_s - now_s > KEPT_S_MAX {
        return Err(invalid("nothing is kept for longer than twenty years"));
    }
    Ok(())
}

/// Parses a digest of an order; `fault` says whose is malformed.
pub(crate) fn digest(text: &str, fault: &str) -> Result<Digest, Refusal> {
    text.parse().map_err(|_| invalid(fault))
}

/// Chunk of an order, and its code.
#[derive(Clone, Copy)]
pub(crate) struct OrderedChunk {
    pub(crate) dataset: DatasetId,
    pub(crate) chunk: ChunkIndex,
    pub(crate) code: Code,
    /// Digest, size and expiry of the whole chunk.
    pub(crate) stored: Stored,
    pub(crate) expires_s: u64,
}

/// Content of an order about its chunk.
pub(crate) struct Said<'a> {
    pub(crate) size: u64,
    pub(crate) digest: &'a str,
    pub(crate) code: &'a str,
    pub(crate) expires_unix_s: u64,
}

impl OrderedChunk {
    /// Parses it; `done` is what is done to chunks here.
    pub(crate) fn read(
        dataset: DatasetId,
        object: Object,
        said: &Said<'_>,
        done: &str,
    ) -> Result<Self, Refusal> {
        let Object::Fragment(chunk, FragmentIndex::WHOLE) = object else {
            return Err(invalid(&format!(
                "only whole chunks are {done}: fragment 255"
            )));
        };
        if said.size > OBJECT_BYTES_MAX {
            return Err(invalid("the chunk is larger than one object may be"));
        }
        check_expiry(said.expires_unix_s)?;
        let code = said.code.parse().map_err(|_| invalid("the code is none"))?;
        Ok(Self {
            dataset,
            chunk,
            code,
            stored: Stored {
                digest: digest(said.digest, "the chunk's digest is none")?,
                size: said.size,
            },
            expires_s: said.expires_unix_s,
        })
    }
}

/// Fragments that an order has named.
pub(crate) struct Named {
    code: Code,
    seen: BTreeSet<u8>,
}

impl Named {
    pub(crate) const fn of(code: Code) -> Self {
        Self {
            code,
            seen: BTreeSet::new(),
        }
    }

    /// Adds a fragment, which must be of the code and not named before.
    pub(crate) fn one_more(&mut self, fragment: u8) -> Result<FragmentIndex, Refusal> {
        if fragment < self.code.total() && self.seen.insert(fragment) {
            return Ok(FragmentIndex::new(fragment));
        }
        Err(invalid("a fragment is not of the code, or named twice"))
    }
}

/// Takes so many bytes of a memory that is counted in mebibytes, all of it at most. `busy` says
/// what it is full of.
pub(crate) fn take_memory(
    memory: &Arc<Semaphore>,
    memory_mebi: u32,
    bytes: u64,
    busy: &str,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let mebi = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(memory_mebi);
    let taken = Arc::clone(memory).try_acquire_many_owned(mebi.clamp(1, memory_mebi));
    taken.map_err(|_| Refusal::new(ErrorKind::Busy, busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_for_ever_nor_until_a_time_that_has_passed() {
        let now_s = clock::unix_s();
        check_expiry(now_s + 60).unwrap();
        for wrong in [0, now_s - 1, now_s + KEPT_S_MAX + 60, u64::MAX] {
            check_expiry(wrong).unwrap_err();
        }
    }
}
