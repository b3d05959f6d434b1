//! Checksum of copies: CRC-64/NVME, which S3 stores for whole objects and which composes. So
//! segments copied in any order, by any lane and in several runs add up to the file's checksum.

mod compose;
mod crc32c;
mod stored;

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};
pub use crc32c::{Crc32c, Crc32cSummer};
pub use stored::{Compared, StoredSum, StoredSummer};

use compose::Field;

/// Field of CRC-64/NVME ("NVM Express NVM Command Set Specification", 5.2.1.3.4).
static FIELD: Field = Field::new(0x9a6c_9329_ac4b_c9b5, 64);

/// CRC-64/NVME of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(u64);

impl Checksum {
    /// Checksum of no bytes.
    pub const EMPTY: Self = Self(0);

    /// Computes the checksum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes))
    }

    /// Returns the checksum of these bytes followed by `next_len` bytes whose checksum is `next`.
    #[must_use]
    pub fn then(self, next: Self, next_len: u64) -> Self {
        Self(FIELD.then(self.0, next.0, next_len))
    }

    /// Returns the checksum of `len` zero bytes, in O(log `len`): a hole is hashed without being
    /// read.
    #[must_use]
    pub fn of_zeros(len: u64) -> Self {
        let mut sum = Self::EMPTY;
        let mut power = Self::of(&[0]);
        let mut power_len = 1u64;
        let mut rest = len;
        while rest > 0 {
            if rest & 1 == 1 {
                sum = sum.then(power, power_len);
            }
            power = power.then(power, power_len);
            power_len = power_len.wrapping_shl(1);
            rest >>= 1;
        }
        sum
    }

    /// Formats it like S3 in `x-amz-checksum-crc64nvme`: base64 of the big-endian bytes.
    #[must_use]
    pub fn to_base64(self) -> String {
        reqsign_core::hash::base64_encode(&self.0.to_be_bytes())
    }

    /// Parses the output of [`Checksum::to_base64`].
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = reqsign_core::hash::base64_decode(text).ok()?;
        Some(Self(u64::from_be_bytes(bytes.try_into().ok()?)))
    }

    /// Returns the big-endian bytes.
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Reads the output of [`Checksum::to_be_bytes`].
    #[must_use]
    pub const fn from_be_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// Parses the 16 hexadecimal digits that [`fmt::Display`] writes.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 16 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Incremental checksum of bytes as they pass.
#[derive(Debug)]
pub struct Summer {
    digest: Digest,
    sum: Checksum,
    len: u64,
}

impl Default for Summer {
    fn default() -> Self {
        Self {
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            sum: Checksum::EMPTY,
            len: 0,
        }
    }
}

impl Summer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Adds `len` zeros without reading any.
    pub fn add_zeros(&mut self, len: u64) {
        *self = Self {
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            sum: self.sum().then(Checksum::of_zeros(len), len),
            len: 0,
        };
    }

    /// Returns the checksum so far.
    #[must_use]
    pub fn sum(&self) -> Checksum {
        self.sum.then(Checksum(self.digest.finalize()), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_is_met() {
        assert_eq!(Checksum::of(b"123456789").to_string(), "ae8b14860a799888");
    }

    #[test]
    fn segments_add_up_to_the_whole_wherever_the_cut_is() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 31 % 251) as u8).collect();
        let whole = Checksum::of(&bytes);
        for cut in [0, 1, 511, 4096, 9_999, 10_000] {
            let (head, tail) = bytes.split_at(cut);
            let sum = Checksum::of(head).then(Checksum::of(tail), tail.len() as u64);
            assert_eq!(sum, whole, "cut at {cut}");
        }
    }

    #[test]
    fn holes_sum_as_the_zeros_they_read_as() {
        for len in [0u64, 1, 2, 3, 255, 4096, 70_001] {
            let zeros = vec![0; usize::try_from(len).unwrap()];
            assert_eq!(Checksum::of_zeros(len), Checksum::of(&zeros), "{len} zeros");
        }
        let mut summer = Summer::default();
        summer.add(b"head");
        summer.add_zeros(5000);
        summer.add(b"tail");
        let flat = [b"head".as_slice(), &[0; 5000], b"tail"].concat();
        assert_eq!(summer.sum(), Checksum::of(&flat));
    }

    #[test]
    fn text_forms_come_back() {
        let sum = Checksum::of(b"posthaste");
        assert_eq!(Checksum::from_base64(&sum.to_base64()), Some(sum));
        assert_eq!(Checksum::from_hex(&sum.to_string()), Some(sum));
        assert_eq!(Checksum::from_hex("+123456789abcdef"), None);
        assert_eq!(Checksum::from_base64("AAAA"), None);
    }
}
