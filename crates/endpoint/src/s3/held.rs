//! Proof that a store holds the bytes that were sent to it.
//!
//! A gateway may return the checksum header of a request without having compared it. Most stores
//! compute the ETag of an object stored in one request: it is the MD5 of the bytes. Where it is not
//! what was sent, the object is read back once. If that is right, the ETags of this store are no
//! MD5s, and say nothing from then on.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::StreamExt;
use http::{HeaderMap, Method};

use super::{
    client::{Call, S3Client},
    headers::{md5_from_hex, md5_in},
    wire::CHECKSUM,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Status, Summer,
    objects::{Removed, other_bytes},
    web::{About, check_status, stream, text_of},
};

/// Kind of a store's ETags, once found.
#[derive(Debug, Default)]
pub(super) struct Etags(AtomicU8);

const MD5S: u8 = 1;
const OTHERS: u8 = 2;

/// Comparison of an ETag with the bytes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// Their MD5.
    Same,
    /// Perhaps an MD5, and not theirs.
    Other,
    /// No MD5.
    Nothing,
}

impl Etags {
    /// Returns whether they are known to be no MD5s.
    pub(super) fn are_others(&self) -> bool {
        self.0.load(Relaxed) == OTHERS
    }

    /// Returns whether one was the MD5 of what was sent.
    pub(super) fn are_md5s(&self) -> bool {
        self.0.load(Relaxed) == MD5S
    }

    /// Compares the ETag in the answer to a write with the MD5 of its bytes.
    pub(super) fn compare(&self, answer: &HeaderMap, md5: impl FnOnce() -> [u8; 16]) -> Says {
        let told = md5_in(answer).filter(|_| !self.are_others());
        match told.map(|told| told == md5()) {
            None => Says::Nothing,
            Some(false) => Says::Other,
            Some(true) => {
                self.0.store(MD5S, Relaxed);
                Says::Same
            }
        }
    }
}

/// Returns whether two ETags are MD5s of different bytes, as far as is known.
pub(super) fn are_two(client: &S3Client, one: &str, other: &str) -> bool {
    let digest = |etag: &str| md5_from_hex(etag.trim_matches('"'));
    let both = digest(one).zip(digest(other));
    both.is_some_and(|(one, other)| one != other) && !client.etags.are_others()
}

/// Returns the error for an object of other bytes than were sent.
pub(super) fn differs(client: &S3Client, key: &str) -> Error {
    Error::new(ErrorKind::Corrupt, "write", client.show(key))
        .cause("the store holds other bytes than were sent")
        .status_is(Status::Temporary)
        .at(Locus::Destination)
}

/// Reads an object back that was just written and got an `etag` that does not fit. An object of
/// other bytes is removed: by its size and time it would be the file.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it has not these bytes.
pub(super) async fn prove(
    client: &S3Client,
    key: &str,
    etag: &str,
    wanted: (u64, Checksum),
) -> Result<()> {
    match read_back(client, key).await {
        Ok(read) if (read.size, read.sum) == wanted => {
            client.etags.0.store(OTHERS, Relaxed);
            Ok(())
        }
        Ok(_) => Err(differs_there(client, key, Some(etag)).await),
        // Who may only write has the store's word.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !client.etags.are_md5s() => {
            Ok(())
        }
        // It may be right, which nothing shows.
        Err(_) => Err(other_bytes(client, key, Removed::Stays(etag))),
    }
}

/// Sends a small object with the checksum of other bytes, which a store that compares nothing takes.
pub(super) async fn put_damaged(client: &S3Client, key: &str) -> Result<()> {
    let call = Call::new(Method::PUT, key, "try")
        .header(CHECKSUM, Checksum::of(b"other").to_base64())
        .payload(vec![Bytes::from_static(b"posthaste")])
        .at(Locus::Destination);
    client.ask(call).await.map(|_| ())
}

/// Removes an object of other bytes that was just written, and returns the error.
pub(super) async fn differs_there(client: &S3Client, key: &str, etag: Option<&str>) -> Error {
    let etag = etag.unwrap_or_default();
    other_bytes(client, key, remove_ours(client, key, etag).await)
}

/// Removes an object that was just written, as long as it is still the one with this ETag.
async fn remove_ours<'a>(client: &S3Client, key: &str, etag: &'a str) -> Removed<'a> {
    let bare = |etag: &str| etag.trim_matches('"').to_owned();
    let call = Call::new(Method::HEAD, key, "look at");
    let there = match client.ask(call).await {
        Ok((there, _)) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Removed::Gone,
        Err(_) => return Removed::Stays(etag),
    };
    if etag.is_empty() {
        return Removed::Stays(etag);
    }
    if text_of(&there, "etag").map(bare) != Some(bare(etag)) {
        return Removed::Gone;
    }
    let call = Call::new(Method::DELETE, key, "remove")
        .header("if-match", format!("\"{}\"", bare(etag)))
        .at(Locus::Destination);
    Removed::by(&client.ask(call).await, etag)
}

/// Size and checksum of an object that was read back.
pub(super) struct Read {
    size: u64,
    sum: Checksum,
}

impl Read {
    pub(super) fn facts(&self) -> (u64, Checksum) {
        (self.size, self.sum)
    }
}

/// Reads a whole object.
pub(super) async fn read_back(client: &S3Client, key: &str) -> Result<Read> {
    let about = About::writing("read back", client.show(key));
    let answer = client
        .send(Call::new(Method::GET, key, "read back"))
        .await?;
    check_status(&answer, &about)?;
    let mut body = stream(answer.into_body(), about.subject.clone());
    let (mut summer, mut size) = (Summer::default(), 0);
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        summer.add(&bytes);
        size += bytes.len() as u64;
    }
    Ok(Read {
        size,
        sum: summer.sum(),
    })
}
