//! Objects that travel in one request.

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;

use super::{
    client::{AzureClient, Call},
    object::{BODY_SUM, Metadata, damaged, dressed, entry_of, md5_of, show_sum, sum_in, sum_of},
    refusal::{UNKNOWN_FEATURE, has_code},
};
use crate::{
    Checksum, Condition, Entry, Error, ErrorKind, FileSpec, Kind, Result, Status, Summer, Whole,
    objects::{Removed, check_held, other_bytes},
    web::{Sent, check_status, gathered, quoted, stream, text_of},
};

/// Reads one object and compares it with the checksum that is kept with it.
pub(super) async fn fetch(
    client: &AzureClient,
    key: &str,
    entry: &Entry,
    operation: &'static str,
) -> Result<Whole> {
    let about = client.reading(operation, key);
    let mut call = Call::new("GET", key, about.clone());
    if let Some(version) = entry.version.as_deref() {
        call = call.header("if-match", version);
    }
    let answer = client.send(call).await?;
    check_status(&answer, &about)?;
    let (head, body) = answer.into_parts();
    let mut body = gathered(stream(body, about.subject.clone()), entry, about.clone());
    let (mut data, mut summer) = (Vec::new(), Summer::default());
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        summer.add(&bytes);
        data.push(bytes);
    }
    let checksum = summer.sum();
    let md5 = text_of(&head.headers, "content-md5");
    let is_right = match (Metadata::of(&head.headers).checksum, md5) {
        (Some(wanted), _) => wanted == checksum,
        (None, Some(wanted)) => wanted.trim() == md5_of(&data),
        (None, None) => true,
    };
    if !is_right {
        return Err(damaged(&about));
    }
    // Everything arrived: a body without a length marks its own end.
    let size = data.iter().map(|bytes| bytes.len() as u64).sum();
    Ok(Whole {
        entry: entry_of(&head.headers, size, Kind::File),
        data,
        checksum,
    })
}

/// Stores one blob; the service refuses it unless the checksum is right.
pub(super) async fn store(
    client: &AzureClient,
    key: &str,
    (spec, kind): (&FileSpec, Kind),
    (data, sum): (Vec<Bytes>, Checksum),
    condition: Option<&Condition>,
) -> Result<()> {
    let mut headers = dressed(spec, kind, Some(sum));
    match condition {
        Some(Condition::Absent) => headers.push(("if-none-match", "*".to_owned())),
        Some(Condition::Version(version)) => headers.push(("if-match", version.to_string())),
        None => {}
    }
    let call = || {
        Call::new("PUT", key, client.writing("write", key))
            .headers(headers.clone())
            .header("x-ms-blob-type", "BlockBlob")
            .body(Sent::payload(data.clone()))
    };
    if client.knows_sums() {
        let summed = call().header(BODY_SUM, show_sum(sum));
        match client.store(summed).await {
            Err(error) if has_code(&error, UNKNOWN_FEATURE) => client.learn_no_sums(),
            Err(error) => return Err(error),
            Ok(headers) if got(&headers, sum, &data) => {
                return match tells_sum(&headers) {
                    true => Ok(()),
                    false => check_held(client, key, spec, spec.size).await,
                };
            }
            Ok(headers) => return Err(differs(client, key, &headers).await),
        }
    }
    // Emulators only know MD5; then the bytes are compared with their checksum here.
    if sum_of(&data) != sum {
        let error = client.writing("write", key).fail(ErrorKind::Corrupt);
        return Err(error
            .cause("it has not the checksum it should have")
            .status_is(Status::Temporary));
    }
    let summed = call().header("content-md5", md5_of(&data));
    let headers = client.store(summed).await?;
    match tells_sum(&headers) {
        true if got(&headers, sum, &data) => Ok(()),
        true => Err(differs(client, key, &headers).await),
        false => check_held(client, key, spec, spec.size).await,
    }
}

/// Sends a small blob with the checksum of other bytes, which a service that compares nothing takes.
pub(super) async fn put_damaged(client: &AzureClient, key: &str) -> Result<()> {
    let call = || {
        Call::new("PUT", key, client.writing("try", key))
            .header("x-ms-blob-type", "BlockBlob")
            .body(Sent::payload(vec![Bytes::from_static(b"posthaste")]))
    };
    let summed = call().header(BODY_SUM, show_sum(Checksum::of(b"other")));
    let stored = match client.store(summed).await {
        Err(error) if has_code(&error, UNKNOWN_FEATURE) => {
            let md5 = md5_of(&[Bytes::from_static(b"other")]);
            client.store(call().header("content-md5", md5)).await
        }
        stored => stored,
    };
    stored.map(|_| ())
}

/// Removes a blob of other bytes than were sent, which by its size and time would be the file, and
/// returns the error.
async fn differs(client: &AzureClient, key: &str, answer: &HeaderMap) -> Error {
    let Some(version) = text_of(answer, "etag") else {
        return other_bytes(client, key, Removed::Stays(""));
    };
    let call = Call::new("DELETE", key, client.writing("remove", key));
    let answer = client.ask(call.header("if-match", quoted(version))).await;
    other_bytes(client, key, Removed::by(&answer, version))
}

fn tells_sum(headers: &HeaderMap) -> bool {
    sum_in(headers).is_some() || headers.contains_key("content-md5")
}

/// Returns whether the service confirms these bytes, by everything that it reports: one that checks
/// nothing may return the checksum that it was sent, and computes their MD5.
fn got(headers: &HeaderMap, sum: Checksum, data: &[Bytes]) -> bool {
    let md5 = text_of(headers, "content-md5");
    sum_in(headers).is_none_or(|found| found == sum)
        && md5.is_none_or(|md5| md5.trim() == md5_of(data))
}
