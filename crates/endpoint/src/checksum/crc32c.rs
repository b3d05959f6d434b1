//! CRC-32C (Castagnoli), which Google Cloud Storage keeps for every object. It composes like ours,
//! and costs little beside it: both are computed while the bytes are in the cache.

use std::fmt;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use super::compose::Field;

static FIELD: Field = Field::new(0x82f6_3b78, 32);

/// CRC-32C of some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Crc32c(u32);

impl Crc32c {
    /// CRC-32C of no bytes.
    pub(crate) const EMPTY: Self = Self(0);

    /// Returns the CRC-32C of these bytes followed by `next_len` bytes whose checksum is `next`.
    pub(crate) fn then(self, next: Self, next_len: u64) -> Self {
        let sum = FIELD.then(self.0.into(), next.0.into(), next_len);
        Self::of_low_bits(sum)
    }

    /// Computes the CRC-32C of bytes in pieces.
    pub(crate) fn of_pieces(pieces: &[Bytes]) -> Self {
        let mut summer = Crc32cSummer::default();
        pieces.iter().for_each(|piece| summer.add(piece));
        summer.sum()
    }

    /// Formats it like stores: base64 of the big-endian bytes.
    pub(crate) fn to_base64(self) -> String {
        reqsign_core::hash::base64_encode(&self.0.to_be_bytes())
    }

    /// Parses the output of [`Crc32c::to_base64`].
    pub(crate) fn from_base64(text: &str) -> Option<Self> {
        let bytes = reqsign_core::hash::base64_decode(text).ok()?;
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }

    /// Parses the eight hexadecimal digits that [`fmt::Display`] writes.
    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 8 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(text, 16).ok().map(Self)
    }

    /// Reads the big-endian bytes.
    pub(crate) const fn from_be_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    fn of_low_bits(sum: u64) -> Self {
        let [_, _, _, _, bytes @ ..] = sum.to_be_bytes();
        Self(u32::from_be_bytes(bytes))
    }
}

impl fmt::Display for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Incremental CRC-32C of bytes as they pass.
#[derive(Debug)]
pub struct Crc32cSummer(Digest);

impl Default for Crc32cSummer {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32cSummer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum so far.
    #[must_use]
    pub fn sum(&self) -> Crc32c {
        Crc32c::of_low_bits(self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Crc32c {
        let mut summer = Crc32cSummer::default();
        summer.add(bytes);
        summer.sum()
    }

    #[test]
    fn the_check_value_of_the_catalogue_is_met() {
        assert_eq!(of(b"123456789").to_string(), "e3069283");
        assert_eq!(of(b""), Crc32c::EMPTY);
    }

    #[test]
    fn segments_add_up_to_the_whole_wherever_the_cut_is() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 31 % 251) as u8).collect();
        for cut in [0, 1, 511, 4096, 9_999, 10_000] {
            let (head, tail) = bytes.split_at(cut);
            let sum = of(head).then(of(tail), tail.len() as u64);
            assert_eq!(sum, of(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn text_forms_come_back() {
        let sum = of(b"posthaste");
        assert_eq!(Crc32c::from_base64(&sum.to_base64()), Some(sum));
        assert_eq!(Crc32c::from_hex(&sum.to_string()), Some(sum));
        assert_eq!(Crc32c::from_hex("+1234567"), None);
        assert_eq!(Crc32c::from_base64("AAAA"), None);
    }
}
