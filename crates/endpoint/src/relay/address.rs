//! Names of relays, of their keys and of the datasets they hold.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Result};

/// Reads exactly `N` bytes of lowercase or uppercase hexadecimal.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(nibble(pair[0])? << 4 | nibble(pair[1])?).ok()?;
    }
    Some(bytes)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// A dataset's name at depots: 128 random bits, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatasetId([u8; 16]);

/// Error for a text that is not the name of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetIdError;

impl fmt::Display for DatasetIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dataset is named by 32 hexadecimal digits")
    }
}

impl std::error::Error for DatasetIdError {}

impl DatasetId {
    /// Wraps 16 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns a new random name.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if the operating system has no randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|cause| {
            Error::new(ErrorKind::Other, "name", "a dataset").cause(cause.to_string())
        })?;
        Ok(Self(bytes))
    }

    /// Returns the 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for DatasetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for DatasetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DatasetId {
    type Err = DatasetIdError;

    fn from_str(text: &str) -> Result<Self, DatasetIdError> {
        from_hex(text).map(Self).ok_or(DatasetIdError)
    }
}

impl Serialize for DatasetId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DatasetId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// SHA-256 of a relay's public key (its DER `SubjectPublicKeyInfo`), shown as `sha256:` and 64
/// hexadecimal digits. OpenSSL can compute it, so that people can check it by other means.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Error for a text that is not a fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FingerprintError;

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a fingerprint is `sha256:` and 64 hexadecimal digits, as `posthaste relay` prints it",
        )
    }
}

impl std::error::Error for FingerprintError {}

impl Fingerprint {
    /// Wraps a SHA-256 digest.
    #[must_use]
    pub const fn new(sha256: [u8; 32]) -> Self {
        Self(sha256)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        text.strip_prefix("sha256:")
            .and_then(from_hex)
            .map(Self)
            .ok_or(FingerprintError)
    }
}

/// Address of a relay, and the key it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAddress {
    /// `https://host:port`.
    pub url: String,
    /// Fingerprint of its key.
    pub fingerprint: Fingerprint,
}

impl RelayAddress {
    /// Returns the host (without the brackets of an IPv6 address) and the port.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] unless the URL is `https://host:port`, with at most a `/` after it.
    pub fn host_and_port(&self) -> Result<(String, u16)> {
        let invalid = || {
            Error::new(ErrorKind::Invalid, "use the depot", self.url.clone())
                .hint("write it as https://host:port")
        };
        let uri: http::Uri = self.url.parse().map_err(|_| invalid())?;
        let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
            return Err(invalid());
        };
        if host.is_empty() || uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") {
            return Err(invalid());
        }
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Ok((host.to_owned(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        let dataset = DatasetId::random().unwrap();
        assert_eq!(dataset.to_string().parse(), Ok(dataset));
        let fingerprint = Fingerprint::new([0xa5; 32]);
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        assert!("a5".repeat(32).parse::<Fingerprint>().is_err());
        assert!("+1".repeat(16).parse::<DatasetId>().is_err());
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let parse = |url: &str| {
            RelayAddress {
                url: url.into(),
                fingerprint: Fingerprint::new([0; 32]),
            }
            .host_and_port()
        };
        assert_eq!(
            parse("https://127.0.0.1:7421").unwrap(),
            ("127.0.0.1".into(), 7421)
        );
        assert_eq!(parse("https://[::1]:7421/").unwrap(), ("::1".into(), 7421));
        for url in [
            "http://a:1",
            "https://a",
            "https://a:1/x",
            "a:1",
            "",
            "https://:1",
        ] {
            assert_eq!(parse(url).unwrap_err().kind(), ErrorKind::Invalid, "{url}");
        }
    }
}
