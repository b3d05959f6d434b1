//! Checksum that a store keeps of a whole file, of any of three kinds.

use std::ops::Range;

use md5::{Digest as _, Md5};

use super::{Checksum, Crc32c, Crc32cSummer, Summer};
use crate::{Error, ErrorKind, Locus, Reader, Result};

/// Checksum of a whole file at a store, or of some of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredSum {
    /// CRC-64/NVME, ours.
    Crc64(Checksum),
    /// CRC-32C, which Google keeps of every object, and S3 of those that others stored.
    Crc32c(Crc32c),
    /// MD5, which S3 keeps of objects stored in one request, and Azure of those that its own tools
    /// wrote. It does not compose: a whole file is hashed from its start to its end.
    Md5([u8; 16]),
}

impl StoredSum {
    /// Returns whether checksums of pieces compose to that of the whole.
    #[must_use]
    pub fn adds_up(self) -> bool {
        match self {
            Self::Crc64(_) | Self::Crc32c(_) => true,
            Self::Md5(_) => false,
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
            Self::Md5(_) => StoredSummer::Md5(Md5::new()),
        }
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
    /// Computation of [`StoredSum::Md5`].
    Md5(Md5),
}

impl StoredSummer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc64(summer) => summer.add(bytes),
            Self::Crc32c(summer) => summer.add(bytes),
            Self::Md5(summer) => summer.update(bytes),
        }
    }

    /// Returns the checksum so far.
    #[must_use]
    pub fn sum(&self) -> StoredSum {
        match self {
            Self::Crc64(summer) => StoredSum::Crc64(summer.sum()),
            Self::Crc32c(summer) => StoredSum::Crc32c(summer.sum()),
            Self::Md5(summer) => StoredSum::Md5(summer.clone().finalize().into()),
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
        let sum = |way: StoredSum, bytes: &[u8]| {
            let mut summer = way.summer();
            summer.add(bytes);
            summer.sum()
        };
        let ways = [
            StoredSum::Crc64(Checksum::EMPTY),
            StoredSum::Crc32c(Crc32c::EMPTY),
        ];
        for way in ways {
            let whole = sum(way, b"a file in two pieces");
            let [head, tail] = [&b"a file "[..], b"in two pieces"].map(|bytes| sum(way, bytes));
            assert_eq!(head.then(tail, 13), Some(whole));
        }
        assert_eq!(ways[0].then(ways[1], 0), None);
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
