use core::{fmt, str::FromStr};

use crate::record;

record! {
    /// A BLAKE3 digest. This crate only carries it; the hands compute it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Digest {
        bytes: [u8; 32],
    }
}

/// Text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestError;

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a digest is 64 hexadecimal digits")
    }
}

impl core::error::Error for DigestError {}

impl Digest {
    /// Wraps the 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self { bytes }
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.as_bytes();
        if hex.len() != 64 {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let nibble = |c: u8| char::from(c).to_digit(16).ok_or(DigestError);
            *byte =
                u8::try_from(nibble(pair[0])? << 4 | nibble(pair[1])?).map_err(|_| DigestError)?;
        }
        Ok(Self { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};

    #[test]
    fn a_digest_is_read_as_it_is_shown() {
        let digest = Digest::new(core::array::from_fn(|i| u8::try_from(i * 7).unwrap()));
        assert_eq!(format!("{digest}").parse(), Ok(digest));
        assert!("00".parse::<Digest>().is_err());
        assert!(String::from("zz").repeat(32).parse::<Digest>().is_err());
    }
}
