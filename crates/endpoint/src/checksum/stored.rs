//! The checksum that a store keeps of a whole file, whichever of three it is.

use std::ops::Range;

use md5::{Digest as _, Md5};

use super::{Checksum, Crc32c, Crc32cSummer, Summer};
use crate::{Error, ErrorKind, Locus, Reader, Result};

/// What a store says the checksum of a whole file is, or what some of its bytes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredSum {
    /// Ours.
    Crc64(Checksum),
    /// What Google keeps of every object, and S3 of those that others put there.
    Crc32c(Crc32c),
    /// What S3 keeps of objects that were put in one request, and Azure of those that its own tools wrote. It adds up to nothing: a
    /// whole file is summed from its start to its end.
    Md5([u8; 16]),
}

impl StoredSum {
    /// Whether the checksums of pieces add up to that of the whole.
    #[must_use]
    pub fn adds_up(self) -> bool {
        match self {
            Self::Crc64(_) | Self::Crc32c(_) => true,
            Self::Md5(_) => false,
        }
    }

    /// Whether two stores say of one file what can't both be.
    #[must_use]
    pub fn contradicts(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other) && self != other
    }

    /// What sums bytes in the same way.
    #[must_use]
    pub fn summer(self) -> StoredSummer {
        match self {
            Self::Crc64(_) => StoredSummer::Crc64(Summer::default()),
            Self::Crc32c(_) => StoredSummer::Crc32c(Crc32cSummer::default()),
            Self::Md5(_) => StoredSummer::Md5(Md5::new()),
        }
    }

    /// Sees that the whole of a file, which people call `shown`, came to this.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when it did not.
    pub fn expect(self, found: Self, shown: &str) -> Result<()> {
        if found == self {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "read", shown)
            .cause("what was read has not the checksum the store keeps for it")
            .hint("if it stays, the stored object is damaged")
            .at(Locus::Source))
    }

    /// The checksum of these bytes followed by `next_len` bytes whose checksum is `next`; none where they are not of one way, or of one
    /// that does not add up.
    #[must_use]
    pub fn then(self, next: Self, next_len: u64) -> Option<Self> {
        match (self, next) {
            (Self::Crc64(sum), Self::Crc64(next)) => Some(Self::Crc64(sum.then(next, next_len))),
            (Self::Crc32c(sum), Self::Crc32c(next)) => Some(Self::Crc32c(sum.then(next, next_len))),
            _ => None,
        }
    }
}

/// Sums bytes as they pass.
#[derive(Debug)]
pub enum StoredSummer {
    /// To [`StoredSum::Crc64`].
    Crc64(Summer),
    /// To [`StoredSum::Crc32c`].
    Crc32c(Crc32cSummer),
    /// To [`StoredSum::Md5`].
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

    /// The checksum so far.
    #[must_use]
    pub fn sum(&self) -> StoredSum {
        match self {
            Self::Crc64(summer) => StoredSum::Crc64(summer.sum()),
            Self::Crc32c(summer) => StoredSum::Crc32c(summer.sum()),
            Self::Md5(summer) => StoredSum::Md5(summer.clone().finalize().into()),
        }
    }
}

/// Compares what is read of a file with the checksum that its store keeps.
#[derive(Debug)]
pub struct Compared {
    wanted: StoredSum,
    size: u64,
    summer: StoredSummer,
}

impl Compared {
    /// Begins to read a range of a file; none where nothing is kept of it, or nothing that some of the file tells anything of.
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

    /// The checksum of what was read, which was this range of what people call `shown`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when it was the whole file and is not what its store keeps.
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
        // RFC 1321's own, of other tools.
        assert_eq!(digest[..4], [0x25, 0xf9, 0xe7, 0x94]);
        assert_eq!(found.then(found, 9), None);
        assert!(!found.adds_up() && found.contradicts(StoredSum::Md5([0; 16])));
        assert!(!found.contradicts(found) && !found.contradicts(StoredSum::Crc64(Checksum::EMPTY)));
    }
}
