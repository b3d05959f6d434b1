//! Answers to requests for a range: their content is read from them, never assumed.
//!
//! A server, a cache or a gateway may ignore the range and send the whole (RFC 9110, section 14.2).
//! The answer may also hold another range.

use std::ops::Range;

use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use super::{About, Rest, check_status, exactly, quoted, stream, text_of};
use crate::{
    ErrorKind, Result,
    endpoint::{ByteStream, Entry},
};

/// Most bytes skipped if a server sends the whole file for each range of it: more would cost many
/// times what the file is worth.
const PASSED_BYTES_MAX: u64 = 256 << 20;

/// Bytes that an answer holds, and the size of the file if the answer reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    bytes: Range<u64>,
    size: Option<u64>,
}

/// Returns the bytes of `range` from the answer to a request for it, of a file of `size` bytes.
///
/// # Errors
/// [`ErrorKind::Changed`] if the file has another size now. [`ErrorKind::Other`] if the answer
/// doesn't say which bytes it holds, or holds others. [`ErrorKind::Unsupported`] if the server
/// sends the whole and the range lies far behind its start. The errors of [`check_status`].
pub(crate) fn cut(
    answer: Response<Incoming>,
    range: &Range<u64>,
    size: u64,
    about: About,
) -> Result<ByteStream> {
    check_status(&answer, &about)?;
    let passed = passed(answer.status(), answer.headers(), range, size, &about)?;
    let rest = match range.end == size {
        true => Rest::Nothing,
        false => Rest::Unread,
    };
    let body = stream(answer.into_body(), about.subject.clone());
    Ok(exactly(body, passed, range.end - range.start, rest, about))
}

/// Returns how many bytes of an answer come before the range.
fn passed(
    status: StatusCode,
    headers: &HeaderMap,
    range: &Range<u64>,
    size: u64,
    about: &About,
) -> Result<u64> {
    let span = if status == StatusCode::PARTIAL_CONTENT {
        span_of(headers).ok_or_else(|| {
            let error = about.fail(ErrorKind::Other);
            error.cause("the server doesn't say which bytes it sends")
        })?
    } else {
        let told = content_length(headers);
        Span {
            bytes: 0..told.unwrap_or(size),
            size: told,
        }
    };
    if span.size.is_some_and(|told| told != size) {
        return Err(about
            .fail(ErrorKind::Changed)
            .cause("it changed while it was read")
            .hint("copy it again when nothing writes to it"));
    }
    if span.bytes.start > range.start || span.bytes.end < range.end {
        return Err(about.fail(ErrorKind::Other).cause(format!(
            "the server sends bytes {}-{} where {}-{} were asked for",
            span.bytes.start,
            span.bytes.end.saturating_sub(1),
            range.start,
            range.end - 1
        )));
    }
    let passed = range.start - span.bytes.start;
    if passed > PASSED_BYTES_MAX {
        return Err(about
            .fail(ErrorKind::Unsupported)
            .cause("the server sends the whole file where a part was asked for")
            .hint("ask for it without the gateway or cache that drops the Range header"));
    }
    Ok(passed)
}

/// Checks that an answer with `range` is about the version that was asked for: not every store heeds
/// conditions. An answer with a part has to name the version.
///
/// # Errors
/// [`ErrorKind::Changed`].
pub(crate) fn check_version(
    headers: &HeaderMap,
    entry: &Entry,
    range: &Range<u64>,
    about: &About,
) -> Result<()> {
    let is_range = *range != (0..entry.size);
    match (text_of(headers, "etag"), entry.version.as_deref()) {
        (Some(found), Some(wanted)) if quoted(found) != quoted(wanted) => Err(about
            .fail(ErrorKind::Changed)
            .cause("it changed while it was read")
            .hint("copy it again when nothing writes to it")),
        (None, Some(_)) if is_range => Err(about
            .fail(ErrorKind::Changed)
            .cause("it may have changed: the server told its version before, and does no more")
            .hint("copy it again when nothing writes to it")),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// Reads `Content-Range: bytes 0-9/1234`, in which the size may be `*`.
fn span_of(headers: &HeaderMap) -> Option<Span> {
    let text = text_of(headers, "content-range")?.strip_prefix("bytes ")?;
    let (span, size) = text.split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let size = match size.trim() {
        "*" => None,
        size => Some(size.parse().ok()?),
    };
    (first <= last).then(|| Span {
        bytes: first..last.saturating_add(1),
        size,
    })
}

/// Returns the size of the file that an answer holds a range of, if the answer reports it.
pub(crate) fn size_behind(headers: &HeaderMap) -> Option<u64> {
    span_of(headers)?.size
}

/// Returns the length of an answer's body or, after HEAD, its would-be length.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    text_of(headers, "content-length")?.parse().ok()
}

/// Reads the file size from the answer to HEAD.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if the answer has none: a missing size is not zero.
pub(crate) fn told_size(headers: &HeaderMap, about: &About) -> Result<u64> {
    content_length(headers).ok_or_else(|| {
        about
            .fail(ErrorKind::Unsupported)
            .cause("the server doesn't say how long it is")
            .hint("check what stands between here and the store: it drops Content-Length")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn answer(status: u16, headers: &[(&'static str, &str)], range: Range<u64>) -> Result<u64> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let about = About::reading("read", "s3://b/k".to_owned());
        let status = StatusCode::from_u16(status).unwrap();
        passed(status, &map, &range, SIZE, &about)
    }

    fn kind(answer: Result<u64>) -> ErrorKind {
        answer.unwrap_err().kind()
    }

    #[test]
    fn the_range_asked_for_is_taken_as_it_is() {
        let range = [("content-range", "bytes 100-199/1073741824")];
        assert_eq!(answer(206, &range, 100..200).unwrap(), 0);
        let unknown = [("content-range", "bytes 100-199/*")];
        assert_eq!(answer(206, &unknown, 100..200).unwrap(), 0);
    }

    #[test]
    fn what_comes_before_the_range_is_passed_by() {
        let wider = [("content-range", "bytes 0-299/1073741824")];
        assert_eq!(answer(206, &wider, 100..200).unwrap(), 100);
        let whole = [("content-length", "1073741824")];
        assert_eq!(answer(200, &whole, 100..200).unwrap(), 100);
        assert_eq!(answer(200, &[], 0..SIZE).unwrap(), 0);
    }

    #[test]
    fn another_range_is_refused() {
        for other in ["bytes 0-99/1073741824", "bytes 150-249/1073741824"] {
            let other = answer(206, &[("content-range", other)], 100..200);
            assert_eq!(kind(other), ErrorKind::Other);
        }
        assert_eq!(kind(answer(206, &[], 100..200)), ErrorKind::Other);
        for nonsense in ["bytes 9-1/5", "bytes a-b/c", "items 0-1/2", "bytes 100-199"] {
            let nonsense = answer(206, &[("content-range", nonsense)], 100..200);
            assert_eq!(kind(nonsense), ErrorKind::Other);
        }
    }

    #[test]
    fn another_size_is_a_change() {
        let range = [("content-range", "bytes 100-199/5000")];
        assert_eq!(kind(answer(206, &range, 100..200)), ErrorKind::Changed);
        let whole = [("content-length", "5000")];
        assert_eq!(kind(answer(200, &whole, 100..200)), ErrorKind::Changed);
    }

    #[test]
    fn a_whole_file_is_not_read_once_more_for_each_far_range() {
        let whole = [("content-length", "1073741824")];
        let far = answer(200, &whole, SIZE - 10..SIZE);
        assert_eq!(kind(far), ErrorKind::Unsupported);
    }
}
