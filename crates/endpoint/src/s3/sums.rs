//! Choice of the checksum that uploads to a store carry.
//!
//! Not every store knows CRC-64/NVME, which Amazon added at the end of 2024. The first writes show
//! it. A store that refuses its header or does not return it gets CRC-32C, which Amazon has known
//! since 2022 and which composes as well. A store that does not know that either gets MD5 (RFC
//! 1864), which all of them check. MD5 does not compose, so such a store keeps no checksum of a
//! large object.

use std::{
    future::Future,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use bytes::Bytes;
use http::HeaderMap;
use md5::{Digest as _, Md5};
use reqsign_core::hash::base64_encode;

use super::{
    refusal::is_not_understood,
    wire::{CHECKSUM, CHECKSUM_CRC32C},
};
use crate::{Checksum, Result, checksum::Crc32c};

/// Checksum that a write carries, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sum {
    Crc64,
    Crc32c,
    Md5,
}

/// Checksum that a store accepts: the best one not refused, and from `KNOWN` on the confirmed one.
#[derive(Debug, Default)]
pub(super) struct Sums(AtomicU8);

const KNOWN: u8 = 8;

impl Sums {
    /// Returns the best checksum that the store is not known to reject.
    pub(super) fn preferred(&self) -> Sum {
        match self.0.load(Relaxed) % KNOWN {
            0 => Sum::Crc64,
            1 => Sum::Crc32c,
            _ => Sum::Md5,
        }
    }

    fn is_known(&self) -> bool {
        self.0.load(Relaxed) >= KNOWN
    }

    /// Records that nothing better than `sum` is accepted, or that `sum` itself is. The first
    /// result stays.
    fn note(&self, sum: Sum, is_known: bool) {
        // Nothing comes after MD5.
        let known = if is_known || sum == Sum::Md5 {
            KNOWN
        } else {
            0
        };
        let found = sum as u8 + known;
        let better = |now: u8| (now < KNOWN && now <= sum as u8).then_some(found);
        let _ = self.0.fetch_update(Relaxed, Relaxed, better);
    }

    /// Records the answer to a write that carried `sum`: a store that understood returns it.
    pub(super) fn learn(&self, sum: Sum, answer: &HeaderMap) {
        match sum.name() {
            Some(name) if answer.contains_key(name) => self.note(sum, true),
            Some(_) => self.note(sum.next(), false),
            None => {}
        }
    }

    /// Writes with the checksum that the store accepts. While that is unknown, a refused write is
    /// repeated with the next best.
    pub(super) async fn write<T, F: Future<Output = Result<T>>>(
        &self,
        request: impl Fn(Sum) -> F,
    ) -> Result<T> {
        self.write_with(self.preferred(), Sum::next, request).await
    }

    /// Writes like [`Sums::write`], as part of an upload begun with `sum`, which accepts no other
    /// but MD5.
    pub(super) async fn write_on<T, F: Future<Output = Result<T>>>(
        &self,
        sum: Sum,
        request: impl Fn(Sum) -> F,
    ) -> Result<T> {
        self.write_with(sum, |_| Sum::Md5, request).await
    }

    async fn write_with<T, F: Future<Output = Result<T>>>(
        &self,
        first: Sum,
        next: impl Fn(Sum) -> Sum,
        request: impl Fn(Sum) -> F,
    ) -> Result<T> {
        let is_known = self.is_known();
        let refusal = match request(first).await {
            Err(error) if !is_known && is_not_understood(&error) => error,
            ended => return ended,
        };
        let mut sum = first;
        while sum != Sum::Md5 {
            sum = next(sum);
            match request(sum).await {
                Ok(done) => {
                    self.note(sum, false);
                    return Ok(done);
                }
                Err(error) if is_not_understood(&error) => {}
                Err(_) => break,
            }
        }
        Err(refusal)
    }
}

impl Sum {
    fn next(self) -> Self {
        match self {
            Self::Crc64 => Self::Crc32c,
            Self::Crc32c | Self::Md5 => Self::Md5,
        }
    }

    /// Returns the header or trailer that carries it.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::Crc64 => Some(CHECKSUM),
            Self::Crc32c => Some(CHECKSUM_CRC32C),
            Self::Md5 => None,
        }
    }

    /// Returns the algorithm that an upload declares.
    pub(super) fn algorithm(self) -> Option<&'static str> {
        match self {
            Self::Crc64 => Some("CRC64NVME"),
            Self::Crc32c => Some("CRC32C"),
            Self::Md5 => None,
        }
    }

    /// Returns the header that makes the store check these bytes.
    pub(super) fn header(self, sum: Checksum, data: &[Bytes]) -> (&'static str, String) {
        match self {
            Self::Crc64 => (CHECKSUM, sum.to_base64()),
            Self::Crc32c => (CHECKSUM_CRC32C, Crc32c::of_pieces(data).to_base64()),
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

    async fn asked(sums: &Sums, takes: &[Sum]) -> Result<Sum> {
        sums.write(|sum| async move {
            if takes.contains(&sum) {
                return Ok(sum);
            }
            let error = Error::new(ErrorKind::Unsupported, "write", "x");
            Err(error.with("status", 501).with("code", "NotImplemented"))
        })
        .await
    }

    fn answer(name: &'static str) -> HeaderMap {
        let mut answer = HeaderMap::new();
        answer.insert(name, "AAAAAAAAAAA=".parse().unwrap());
        answer
    }

    #[tokio::test]
    async fn a_store_is_asked_for_each_once() {
        let sums = Sums::default();
        assert_eq!(asked(&sums, &[Sum::Md5]).await.unwrap(), Sum::Md5);
        assert_eq!(sums.preferred(), Sum::Md5);
        let changed = asked(&sums, &[Sum::Crc64]).await;
        assert!(changed.is_err(), "it changed its mind");
        let sums = Sums::default();
        let newer = [Sum::Crc32c, Sum::Md5];
        assert_eq!(asked(&sums, &newer).await.unwrap(), Sum::Crc32c);
        sums.learn(Sum::Crc32c, &answer(CHECKSUM_CRC32C));
        sums.learn(Sum::Crc32c, &HeaderMap::new());
        assert_eq!(sums.preferred(), Sum::Crc32c);
    }

    #[test]
    fn who_says_nothing_is_sent_the_next_best() {
        let sums = Sums::default();
        sums.learn(Sum::Crc64, &answer(CHECKSUM));
        sums.learn(Sum::Crc64, &HeaderMap::new());
        assert_eq!(sums.preferred(), Sum::Crc64);
        let sums = Sums::default();
        for next in [Sum::Crc32c, Sum::Md5, Sum::Md5] {
            sums.learn(sums.preferred(), &HeaderMap::new());
            assert_eq!(sums.preferred(), next);
        }
        // Late answers to earlier writes no longer count.
        sums.learn(Sum::Crc64, &answer(CHECKSUM));
        assert_eq!(sums.preferred(), Sum::Md5);
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
