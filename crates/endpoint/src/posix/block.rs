//! Reusable memory for file content.
//!
//! A fresh block of a megabyte costs the kernel 256 page faults, as much time as filling it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// Capacity of a block in bytes, beside [`MARGIN_BYTES`].
pub(super) const BLOCK_ROOM_BYTES: usize = 1 << 20;

/// Margin for a protocol's bytes around the content.
const MARGIN_BYTES: usize = 256;

/// Most blocks kept for later, by all threads together.
const KEPT_MAX: usize = 24;

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Block of memory; it returns to the others when dropped, also as [`Bytes`].
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
}

impl Block {
    /// Bytes of content for which one block has room.
    pub const BYTES: usize = BLOCK_ROOM_BYTES;

    /// Returns an empty block.
    #[must_use]
    pub fn new() -> Self {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = kept.unwrap_or_else(|| Vec::with_capacity(BLOCK_ROOM_BYTES + MARGIN_BYTES));
        Self { bytes }
    }

    /// Returns the block's content. Growth beyond its capacity moves it to other memory.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Shares the content. Little content is copied, so that it does not hold on to a whole block.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        if self.bytes.len() < BLOCK_ROOM_BYTES / 8 {
            return Bytes::copy_from_slice(&self.bytes);
        }
        Bytes::from_owner(self)
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX && bytes.capacity() == BLOCK_ROOM_BYTES + MARGIN_BYTES {
            kept.push(bytes);
        }
    }
}
