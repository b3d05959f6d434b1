//! Presigned URLs: permission to read or write one object for a while, for clients without
//! credentials. The store's own signature is part of the address.

use std::fmt;

use http::HeaderMap;
use md5::{Digest as _, Md5};
use reqsign_core::hash::{base64_decode, base64_encode};

use crate::Checksum;

/// Operation that a presigned URL allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Read the object.
    Read,
    /// Write the object: only these bytes, which the store checks.
    Write(BodySum),
}

/// Checksum against which the store checks the bytes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodySum {
    /// CRC-64/NVME.
    Crc64(Checksum),
    /// MD5 (RFC 1864), which every store knows.
    Md5([u8; 16]),
}

impl BodySum {
    /// Computes the MD5 of some bytes.
    #[must_use]
    pub fn md5_of(bytes: &[u8]) -> Self {
        Self::Md5(Md5::digest(bytes).into())
    }

    /// Parses an MD5 in base64.
    #[must_use]
    pub fn md5_from_base64(text: &str) -> Option<Self> {
        Some(Self::Md5(base64_decode(text).ok()?.try_into().ok()?))
    }

    /// Formats it for headers: base64.
    #[must_use]
    pub fn to_base64(self) -> String {
        match self {
            Self::Crc64(sum) => sum.to_base64(),
            Self::Md5(sum) => base64_encode(&sum),
        }
    }
}

/// Presigned URL: a secret while it is valid, and so never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Pass {
    /// URL `https://host/path?query`, or `http://`.
    pub url: String,
    /// Headers that a request with it must have beside `host` and `content-length`, and no others
    /// of that kind.
    pub headers: HeaderMap,
}

impl Pass {
    /// Returns its target, for messages.
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
