//! Which checksum a store is sent with what it is to keep.
//!
//! Not every store knows CRC-64/NVME, which Amazon added at the end of 2024. The first write tells:
//! a store that refuses the header or says nothing of it is sent MD5 (RFC 1864), which all of them
//! check. MD5 composes with nothing, so such a store keeps no checksum of a whole large object.

use std::{
    future::Future,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest as _, Md5};
use reqsign_core::hash::base64_encode;

use super::{client::is_not_understood, wire::CHECKSUM};
use crate::{Checksum, Result};

/// The checksum a write carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Crc64,
    Md5,
}

const UNKNOWN: u8 = 0;
const CRC64: u8 = 1;
const MD5: u8 = 2;

/// What a store was found to take.
#[derive(Debug, Default)]
pub(super) struct Sums(AtomicU8);

impl Sums {
    /// What to send; CRC-64/NVME before anything is known.
    pub(super) fn preferred(&self) -> Sum {
        match self.0.load(Relaxed) {
            MD5 => Sum::Md5,
            _ => Sum::Crc64,
        }
    }

    /// Takes note of the answer to a write that carried CRC-64/NVME: who understood says it back.
    pub(super) fn learn(&self, answer: &HeaderMap) {
        let found = if answer.contains_key(CHECKSUM) {
            CRC64
        } else {
            MD5
        };
        // What was found first stays.
        let _ = self.0.compare_exchange(UNKNOWN, found, Relaxed, Relaxed);
    }

    /// Makes a write with what the store takes. Where that is not known yet, a store that refuses
    /// CRC-64/NVME is asked once more.
    pub(super) async fn write<T, F: Future<Output = Result<T>>>(
        &self,
        request: impl Fn(Sum) -> F,
    ) -> Result<T> {
        let is_known = self.0.load(Relaxed) != UNKNOWN;
        match request(self.preferred()).await {
            Err(error) if !is_known && is_not_understood(&error) => {
                let Ok(done) = request(Sum::Md5).await else {
                    return Err(error);
                };
                let _ = self.0.compare_exchange(UNKNOWN, MD5, Relaxed, Relaxed);
                Ok(done)
            }
            ended => ended,
        }
    }
}

impl Sum {
    /// The header that makes the store check these bytes.
    pub(super) fn header(self, sum: Checksum, data: &[Bytes]) -> (&'static str, String) {
        match self {
            Self::Crc64 => (CHECKSUM, sum.to_base64()),
            Self::Md5 => ("content-md5", base64_encode(&md5_of(data))),
        }
    }
}

pub(super) fn md5_of(data: &[Bytes]) -> [u8; 16] {
    let mut md5 = Md5::new();
    data.iter().for_each(|bytes| md5.update(bytes));
    md5.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    async fn asked(sums: &Sums, takes: Sum) -> Result<Sum> {
        sums.write(|sum| async move {
            if sum == takes {
                return Ok(sum);
            }
            let error = Error::new(ErrorKind::Unsupported, "write", "x");
            Err(error.with("status", 501).with("code", "NotImplemented"))
        })
        .await
    }

    #[tokio::test]
    async fn a_store_is_asked_twice_once() {
        let sums = Sums::default();
        assert_eq!(asked(&sums, Sum::Md5).await.unwrap(), Sum::Md5);
        assert_eq!(sums.preferred(), Sum::Md5);
        assert!(
            asked(&sums, Sum::Crc64).await.is_err(),
            "it changed its mind"
        );
        let sums = Sums::default();
        let mut answer = HeaderMap::new();
        answer.insert(CHECKSUM, "AAAAAAAAAAA=".parse().unwrap());
        sums.learn(&answer);
        sums.learn(&HeaderMap::new());
        assert_eq!(sums.preferred(), Sum::Crc64);
    }

    #[test]
    fn md5_is_sent_in_base64() {
        let data = [
            Bytes::from_static(b"Check "),
            Bytes::from_static(b"Integrity!"),
        ];
        let (name, value) = Sum::Md5.header(Checksum::EMPTY, &data);
        assert_eq!((name, &*value), ("content-md5", "nwqq6b6ua/tTDk7B5M184w=="));
    }
}
