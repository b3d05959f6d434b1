//! Presigned URLs: each permits to read or write one object for a while, without credentials. The
//! store's own signature is in the address.

use std::fmt;

use http::HeaderMap;
use md5::{Digest as _, Md5};
use reqsign_core::hash::{base64_decode, base64_encode};

use crate::Checksum;

/// Operation that a presigned URL permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Read of the object.
    Read,
    /// Write of the object: these bytes alone, which the store checks.
    Write(BodySum),
}

/// Checksum that the store compares with the bytes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySum {
    /// CRC-64/NVME.
    Crc64(Checksum),
    /// MD5 (RFC 1864), which every store knows.
    Md5([u8; 16]),
}

impl BodySum {
    /// Returns the MD5 of some bytes.
    #[must_use]
    pub fn md5_of(bytes: &[u8]) -> Self {
        Self::Md5(Md5::digest(bytes).into())
    }

    /// Parses an MD5 in base64.
    #[must_use]
    pub fn md5_from_base64(text: &str) -> Option<Self> {
        Some(Self::Md5(base64_decode(text).ok()?.try_into().ok()?))
    }

    /// Returns the checksum in base64, as in headers.
    #[must_use]
    pub fn to_base64(self) -> String {
        match self {
            Self::Crc64(sum) => sum.to_base64(),
            Self::Md5(sum) => base64_encode(&sum),
        }
    }
}

/// Presigned URL, which is a secret while it is valid: it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Pass {
    /// URL `https://host/path?query`, or `http://`.
    pub url: String,
    /// Headers that a request must send beside `host` and `content-length`, and no others of that
    /// kind.
    pub headers: HeaderMap,
}

impl Pass {
    /// Returns the URL without its query, for people.
    #[must_use]
    pub fn shown(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pass").field(&self.shown()).finish()
    }
}
