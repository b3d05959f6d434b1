use core::{fmt, str::FromStr};

use crate::{Bytes, record};

record! {
    /// An erasure code `k+m`: a chunk becomes `k` data fragments and `m` parity fragments, any `k`
    /// of which rebuild it. `1+m` is replication.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Code {
        data: u8,
        parity: u8,
    }
}

/// A code that could not be read or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeError;

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a code is written k+m with k from 1 to 32 and m from 0 to 32, like 4+1"
        )
    }
}

impl core::error::Error for CodeError {}

impl Code {
    /// Most data or parity fragments: people name the depots of a placement one by one.
    pub const FRAGMENTS_MAX: u8 = 32;
    /// Bare chunk: one fragment, no loss survived.
    pub const NONE: Self = Self { data: 1, parity: 0 };

    /// Returns the code with `data` + `parity` fragments.
    ///
    /// # Errors
    /// [`CodeError`] if `data` is 0 or either count exceeds [`Code::FRAGMENTS_MAX`].
    pub const fn new(data: u8, parity: u8) -> Result<Self, CodeError> {
        if data == 0 || data > Self::FRAGMENTS_MAX || parity > Self::FRAGMENTS_MAX {
            return Err(CodeError);
        }
        Ok(Self { data, parity })
    }

    /// Returns the number of fragments that rebuild a chunk: k.
    #[must_use]
    pub const fn data(self) -> u8 {
        self.data
    }

    /// Returns the number of fragments that may be lost: m.
    #[must_use]
    pub const fn parity(self) -> u8 {
        self.parity
    }

    /// Returns the number of fragments of a chunk: k + m.
    #[must_use]
    pub const fn total(self) -> u8 {
        self.data + self.parity
    }

    /// Returns the size of each fragment of a chunk of `chunk` bytes; the last data fragment is
    /// zero-padded.
    #[must_use]
    pub const fn fragment_size(self, chunk: Bytes) -> Bytes {
        Bytes::new(chunk.get().div_ceil(self.data as u64))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (data, parity) = text.split_once('+').ok_or(CodeError)?;
        Self::new(
            data.parse().map_err(|_| CodeError)?,
            parity.parse().map_err(|_| CodeError)?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_code_is_read_as_it_is_shown() {
        let code: Code = "4+1".parse().unwrap();
        assert_eq!((code.data(), code.parity(), code.total()), (4, 1, 5));
        assert_eq!(format!("{code}"), "4+1");
        for text in ["", "4", "0+1", "33+1", "4+33", "4+-1", "a+b", "4+1+1"] {
            assert!(text.parse::<Code>().is_err(), "{text} was taken");
        }
    }

    #[test]
    fn fragments_cover_the_chunk() {
        let code = Code::new(3, 1).unwrap();
        assert_eq!(code.fragment_size(Bytes::new(10)), Bytes::new(4));
        assert_eq!(code.fragment_size(Bytes::ZERO), Bytes::ZERO);
    }
}
