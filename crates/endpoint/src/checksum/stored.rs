//! The checksum that a store keeps of a whole file, whichever of two it is.

use std::ops::Range;

use super::{Checksum, Crc32c, Crc32cSummer, Summer};
use crate::{Error, ErrorKind, Locus, Reader, Result};

/// What a store says the checksum of a whole file is, or what some of its bytes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredSum {
    /// Ours.
    Crc64(Checksum),
    /// What Google keeps of every object, and S3 of those that others put there.
    Crc32c(Crc32c),
}

impl StoredSum {
    /// What sums bytes in the same way.
    #[must_use]
    pub fn summer(self) -> StoredSummer {
        match self {
            Self::Crc64(_) => StoredSummer::Crc64(Summer::default()),
            Self::Crc32c(_) => StoredSummer::Crc32c(Crc32cSummer::default()),
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

    /// The checksum of these bytes followed by `next_len` bytes whose checksum is `next`; none where they are not of one way.
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
}

impl StoredSummer {
    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc64(summer) => summer.add(bytes),
            Self::Crc32c(summer) => summer.add(bytes),
        }
    }

    /// The checksum so far.
    #[must_use]
    pub fn sum(&self) -> StoredSum {
        match self {
            Self::Crc64(summer) => StoredSum::Crc64(summer.sum()),
            Self::Crc32c(summer) => StoredSum::Crc32c(summer.sum()),
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
    /// Begins to read some of a file; none where nothing is kept of it.
    #[must_use]
    pub fn begin(reader: &dyn Reader) -> Option<Self> {
        let wanted = reader.stored_sum()?;
        Some(Self {
            wanted,
            size: reader.entry().size,
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
}
