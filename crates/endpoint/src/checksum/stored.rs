//! Checksum that a store keeps of a whole file, of any kind that stores and servers report.

use std::ops::Range;

use adler2::Adler32;
use crc_fast::CrcAlgorithm;
use md5::{Digest as _, Md5};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::{Checksum, Crc32c, Crc32cSummer, Summer, compose::Field};
use crate::{Error, ErrorKind, Locus, Reader, Result};

/// Checksum of a whole file at a store, or of some of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredSum {
    /// CRC-64/NVME, ours.
    Crc64(Checksum),
    /// CRC-32C, which Google keeps of every object, and S3 of those that others stored.
    Crc32c(Crc32c),
    /// CRC-32 of zlib, which S3 keeps of what some of its tools wrote.
    Crc32(u32),
    /// SHA-256, which S3 and web servers report.
    Sha256([u8; 32]),
    /// SHA-512, which web servers report.
    Sha512([u8; 64]),
    /// SHA-1, which S3 and WebDAV servers report.
    Sha1([u8; 20]),
    /// MD5, which S3 keeps of objects stored in one request, and Azure of those that its own tools
    /// wrote. It does not compose: a whole file is hashed from its start to its end.
    Md5([u8; 16]),
    /// Adler-32 of zlib, which grid storage keeps.
    Adler32(u32),
}

/// Field of [`StoredSum::Crc32`].
static CRC32: Field = Field::new(0xedb8_8320, 32);

/// Modulus of Adler-32 (RFC 1950, section 8.2).
const ADLER: u32 = 65_521;

/// Returns the Adler-32 of bytes with that of `first`, followed by `next_len` bytes with that of
/// `next`.
fn adler_then(first: u32, next: u32, next_len: u64) -> u32 {
    let len = u32::try_from(next_len % u64::from(ADLER)).unwrap_or(0);
    let (low, high) = (first & 0xffff, first >> 16);
    let (next_low, next_high) = (next & 0xffff, next >> 16);
    // Both sums of the next bytes were begun with 1, and go on from the low sum here.
    let low_then = (low + next_low + ADLER - 1) % ADLER;
    let moved = u64::from(len) * u64::from(low + ADLER - 1) % u64::from(ADLER);
    let moved = u32::try_from(moved).unwrap_or(0);
    (((high + next_high + moved) % ADLER) << 16) | low_then
}

fn low_bits(sum: u64) -> u32 {
    u32::try_from(sum & 0xffff_ffff).unwrap_or(0)
}

impl StoredSum {
    /// Returns whether checksums of pieces compose to that of the whole.
    #[must_use]
    pub fn adds_up(self) -> bool {
        match self {
            Self::Crc64(_) | Self::Crc32c(_) | Self::Crc32(_) | Self::Adler32(_) => true,
            Self::Sha256(_) | Self::Sha512(_) | Self::Sha1(_) | Self::Md5(_) => false,
        }
    }

    /// Returns whether two stores report contradictory checksums of one file.
    #[must_use]
    pub fn contradicts(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other) && self != other
    }

    /// Returns the incremental form of this kind.
    #[must_use]
    pub fn summer(self) -> StoredSummer {
        match self {
            Self::Crc64(_) => StoredSummer::Crc64(Summer::default()),
            Self::Crc32c(_) => StoredSummer::Crc32c(Crc32cSummer::default()),
            Self::Crc32(_) => {
                StoredSummer::Crc32(crc_fast::Digest::new(CrcAlgorithm::Crc32IsoHdlc))
            }
            Self::Sha256(_) => StoredSummer::Sha256(Sha256::new()),
            Self::Sha512(_) => StoredSummer::Sha512(Sha512::new()),
            Self::Sha1(_) => StoredSummer::Sha1(Sha1::new()),
            Self::Md5(_) => StoredSummer::Md5(Md5::new()),
            Self::Adler32(_) => StoredSummer::Adler32(Adler32::new()),
        }
    }

    /// Returns the checksum of this kind of bytes in pieces.
    #[must_use]
    pub fn of(self, pieces: &[bytes::Bytes]) -> Self {
        let mut summer = self.summer();
        pieces.iter().for_each(|piece| summer.add(piece));
        summer.sum()
    }

    /// Returns the preferred one of several: those that compose come first, then the strongest.
    #[must_use]
    pub fn best(sums: impl IntoIterator<Item = Self>) -> Option<Self> {
        sums.into_iter().min_by_key(|sum| match sum {
            Self::Crc64(_) => 0,
            Self::Crc32c(_) => 1,
            Self::Crc32(_) => 2,
            Self::Sha256(_) => 3,
            Self::Sha512(_) => 4,
            Self::Sha1(_) => 5,
            Self::Md5(_) => 6,
            // It says little about short files.
            Self::Adler32(_) => 7,
        })
    }

    /// Checks that a whole file, `shown` in messages, has this checksum.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it does not.
    pub fn expect(self, found: Self, shown: &str) -> Result<()> {
        if found == self {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "read", shown)
            .cause("what was read has not the checksum the store keeps for it")
            .hint("if it stays, the stored object is damaged")
            .at(Locus::Source))
    }

    /// Returns the checksum of these bytes followed by `next_len` bytes whose checksum is `next`;
    /// none if their kinds differ, or do not compose.
    #[must_use]
    pub fn then(self, next: Self, next_len: u64) -> Option<Self> {
        match (self, next) {
            (Self::Crc64(sum), Self::Crc64(next)) => Some(Self::Crc64(sum.then(next, next_len))),
            (Self::Crc32c(sum), Self::Crc32c(next)) => Some(Self::Crc32c(sum.then(next, next_len))),
            (Self::Crc32(sum), Self::Crc32(next)) => {
                let then = CRC32.then(sum.into(), next.into(), next_len);
                Some(Self::Crc32(low_bits(then)))
            }
            (Self::Adler32(sum), Self::Adler32(next)) => {
                Some(Self::Adler32(adler_then(sum, next, next_len)))
            }
            _ => None,
        }
    }
}

/// Incremental checksum of bytes as they pass.
#[derive(Debug)]
pub enum StoredSummer {
    /// Computation of [`StoredSum::Crc64`].
    Crc64(Summer),
    /// Computation of [`StoredSum::Crc32c`].
    Crc32c(Crc32cSummer),
    /// Computation of [`StoredSum::Crc32`].
    Crc32(crc_fast::Digest),
    /// Computation of [`StoredSum::Sha256`].
    Sha256(Sha256),
    /// Computation of [`StoredSum::Sha512`].
    Sha512(Sha512),
    /// Computation of [`StoredSum::Sha1`].
    Sha1(Sha1),
    /// Computation of [`StoredSum::Md5`].
    Md5(Md5),
    /// Computation of [`StoredSum::Adler32`].
    Adler32(Adler32),
}

impl StoredSummer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc64(summer) => summer.add(bytes),
            Self::Crc32c(summer) => summer.add(bytes),
            Self::Crc32(summer) => summer.update(bytes),
            Self::Sha256(summer) => summer.update(bytes),
            Self::Sha512(summer) => summer.update(bytes),
            Self::Sha1(summer) => summer.update(bytes),
            Self::Md5(summer) => summer.update(bytes),
            Self::Adler32(summer) => summer.write_slice(bytes),
        }
    }

    /// Returns the checksum so far.
    #[must_use]
    pub fn sum(&self) -> StoredSum {
        match self {
            Self::Crc64(summer) => StoredSum::Crc64(summer.sum()),
            Self::Crc32c(summer) => StoredSum::Crc32c(summer.sum()),
            Self::Crc32(summer) => StoredSum::Crc32(low_bits(summer.finalize())),
            Self::Sha256(summer) => StoredSum::Sha256(summer.clone().finalize().into()),
            Self::Sha512(summer) => StoredSum::Sha512(summer.clone().finalize().into()),
            Self::Sha1(summer) => StoredSum::Sha1(summer.clone().finalize().into()),
            Self::Md5(summer) => StoredSum::Md5(summer.clone().finalize().into()),
            Self::Adler32(summer) => StoredSum::Adler32(summer.checksum()),
        }
    }
}

/// Comparison of the bytes read of a file with its store's checksum.
#[derive(Debug)]
pub struct Compared {
    wanted: StoredSum,
    size: u64,
    summer: StoredSummer,
}

impl Compared {
    /// Begins to read a range of a file; none if the store keeps no checksum of it, or only one to
    /// which a range contributes nothing.
    #[must_use]
    pub fn begin(reader: &dyn Reader, range: &Range<u64>) -> Option<Self> {
        let (wanted, size) = (reader.stored_sum()?, reader.entry().size);
        let is_of_use = wanted.adds_up() || *range == (0..size);
        is_of_use.then(|| Self {
            wanted,
            size,
            summer: wanted.summer(),
        })
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.summer.add(bytes);
    }

    /// Returns the checksum of the bytes read, which were this range of `shown`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it was the whole file and differs from its store's checksum.
    pub fn end(self, range: &Range<u64>, shown: &str) -> Result<StoredSum> {
        let found = self.summer.sum();
        if *range == (0..self.size) {
            self.wanted.expect(found, shown)?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_way_add_up_and_those_of_two_do_not() {
        let sum =
            |way: StoredSum, bytes: &'static [u8]| way.of(&[bytes::Bytes::from_static(bytes)]);
        let ways = [
            StoredSum::Crc64(Checksum::EMPTY),
            StoredSum::Crc32c(Crc32c::EMPTY),
            StoredSum::Crc32(0),
            StoredSum::Adler32(0),
        ];
        for way in ways {
            let whole = sum(way, b"a file in two pieces");
            let [head, tail] = [&b"a file "[..], b"in two pieces"].map(|bytes| sum(way, bytes));
            assert_eq!(head.then(tail, 13), Some(whole));
        }
        assert_eq!(ways[0].then(ways[1], 0), None);
    }

    #[test]
    fn sums_are_those_of_other_tools() {
        let bytes = [bytes::Bytes::from_static(b"123456789")];
        // Check values of the catalogue of CRCs and of zlib.
        let crc32 = StoredSum::Crc32(0).of(&bytes);
        assert_eq!(crc32, StoredSum::Crc32(0xcbf4_3926));
        let adler = StoredSum::Adler32(0).of(&bytes);
        assert_eq!(adler, StoredSum::Adler32(0x091e_01de));
        // Of a length at which the modulus shows.
        let long = bytes::Bytes::from(vec![0xff; 200_000]);
        let [head, tail] = [long.slice(..70_001), long.slice(70_001..)];
        let [head, tail] = [head, tail].map(|piece| StoredSum::Adler32(0).of(&[piece]));
        let whole = StoredSum::Adler32(0).of(&[long]);
        assert_eq!(head.then(tail, 129_999), Some(whole));
        assert_eq!(StoredSum::best([adler, crc32]), Some(crc32));
        assert_eq!(StoredSum::best([]), None);
    }

    #[test]
    fn md5_is_of_the_whole_only() {
        let mut summer = StoredSum::Md5([0; 16]).summer();
        summer.add(b"1234");
        summer.add(b"56789");
        let found = summer.sum();
        let StoredSum::Md5(digest) = found else {
            panic!("{found:?}");
        };
        // Values of RFC 1321 and of other tools.
        assert_eq!(digest[..4], [0x25, 0xf9, 0xe7, 0x94]);
        assert_eq!(found.then(found, 9), None);
        assert!(!found.adds_up() && found.contradicts(StoredSum::Md5([0; 16])));
        assert!(!found.contradicts(found) && !found.contradicts(StoredSum::Crc64(Checksum::EMPTY)));
    }
}
