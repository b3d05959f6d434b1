//! Checksums that a plug-in compares with those of its store.

use crc_fast::{CrcAlgorithm, Digest};
use md5::{Digest as _, Md5};

use crate::{Checksum, Summer};

/// Checksum that both sides can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// CRC-64/NVME: costs nothing, since copies compute it anyway.
    Crc64Nvme,
    Crc32c,
    Md5,
}

impl Algorithm {
    /// All algorithms, the cheapest first.
    pub(super) const ALL: [Self; 3] = [Self::Crc64Nvme, Self::Crc32c, Self::Md5];

    /// Returns its name in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crc64Nvme => "crc64nvme",
            Self::Crc32c => "crc32c",
            Self::Md5 => "md5",
        }
    }
}

/// Incremental checksums of bytes as they pass, for us and for the plug-in.
pub(super) struct Tally {
    own: Summer,
    theirs: Theirs,
}

enum Theirs {
    None,
    Own,
    Crc32c(Box<Digest>),
    Md5(Md5),
}

impl Tally {
    pub(super) fn new(algorithm: Option<Algorithm>) -> Self {
        Self {
            own: Summer::default(),
            theirs: match algorithm {
                None => Theirs::None,
                Some(Algorithm::Crc64Nvme) => Theirs::Own,
                Some(Algorithm::Crc32c) => {
                    Theirs::Crc32c(Box::new(Digest::new(CrcAlgorithm::Crc32Iscsi)))
                }
                Some(Algorithm::Md5) => Theirs::Md5(Md5::new()),
            },
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.own.add(bytes);
        match &mut self.theirs {
            Theirs::None | Theirs::Own => {}
            Theirs::Crc32c(digest) => digest.update(bytes),
            Theirs::Md5(digest) => digest.update(bytes),
        }
    }

    pub(super) fn sum(&self) -> Checksum {
        self.own.sum()
    }

    /// Returns the plug-in's sum in hexadecimal digits; `None` if it accepts none.
    pub(super) fn theirs(&self) -> Option<String> {
        match &self.theirs {
            Theirs::None => None,
            Theirs::Own => Some(self.own.sum().to_string()),
            Theirs::Crc32c(digest) => Some(format!("{:08x}", digest.finalize())),
            Theirs::Md5(digest) => {
                let digest = digest.clone().finalize();
                Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_catalogues() {
        for (algorithm, wanted) in [
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
        ] {
            let mut tally = Tally::new(Some(algorithm));
            tally.add(b"1234");
            tally.add(b"56789");
            assert_eq!(tally.theirs().as_deref(), Some(wanted));
            assert_eq!(tally.sum(), Checksum::of(b"123456789"));
        }
        assert_eq!(Tally::new(None).theirs(), None);
    }
}
