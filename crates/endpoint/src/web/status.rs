//! Meanings of answers.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::{About, text_of};
use crate::{Error, ErrorKind, clock, dates};

/// Longest pause that a server may request; a longer one is cut, so that a wrong date stops nobody.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Returns the kind of error that a status alone means, and a hint.
pub(crate) fn kind_of_status(status: StatusCode) -> (ErrorKind, &'static str) {
    match status.as_u16() {
        401 => (
            ErrorKind::Unauthenticated,
            "check the credentials, see docs/reference/profiles.md",
        ),
        403 => (
            ErrorKind::PermissionDenied,
            "check what these credentials allow",
        ),
        407 => (
            ErrorKind::Unauthenticated,
            "put user:password@ before the host in HTTP_PROXY or HTTPS_PROXY",
        ),
        404 | 410 => (ErrorKind::NotFound, ""),
        405 | 501 => (ErrorKind::Unsupported, "this server doesn't allow it"),
        409 | 423 => (ErrorKind::Conflict, ""),
        412 | 416 => (
            ErrorKind::Changed,
            "copy it again when nothing writes to it",
        ),
        408 | 429 | 500 | 502..=504 => (ErrorKind::Busy, ""),
        413 => (
            ErrorKind::Unsupported,
            "it is larger than this server takes",
        ),
        414 => (ErrorKind::Unsupported, "shorten the path"),
        507 => (ErrorKind::Full, "free space there"),
        _ => (ErrorKind::Other, ""),
    }
}

/// Returns the error that an unsuccessful answer means.
pub(crate) fn refused(
    about: &About,
    status: StatusCode,
    headers: &HeaderMap,
    (kind, hint): (ErrorKind, &str),
    cause: String,
) -> Error {
    let cause = if cause.is_empty() {
        format!("the server answered {status}")
    } else {
        cause
    };
    let mut error = about
        .fail(kind)
        .cause(cause)
        .with("status", status.as_u16());
    if !hint.is_empty() {
        error = error.hint(hint);
    }
    match retry_after(headers) {
        Some(pause) if kind == ErrorKind::Busy => error.retry_after(pause),
        Some(_) | None => error,
    }
}

/// Returns the pause that the server requests (RFC 9110, section 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = text_of(headers, "retry-after")?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let then = u64::try_from(dates::parse_http(text)?.secs).ok()?;
            Duration::from_secs(then.saturating_sub(clock::unix_secs()))
        }
    };
    Some(pause.min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileTime;

    fn asked(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", text.parse().unwrap());
        retry_after(&headers)
    }

    #[test]
    fn servers_say_when_to_come_back() {
        assert_eq!(asked("7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("999999999"), Some(PAUSE_MAX));
        let secs = i64::try_from(clock::unix_secs()).unwrap() + 100;
        let date = dates::show_http(FileTime { secs, nanos: 0 });
        let pause = asked(&date).unwrap().as_secs();
        assert!((98..=100).contains(&pause), "{pause}");
        assert_eq!(asked("soon"), None);
    }

    #[test]
    fn a_busy_server_is_asked_again_when_it_wants() {
        let about = About::reading("read", "https://h/x".to_owned());
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let error = refused(
            &about,
            status,
            &headers,
            kind_of_status(status),
            String::new(),
        );
        assert_eq!(error.pause(), Some(Duration::from_secs(3)));
        assert!(error.is_temporary());
        let status = StatusCode::NOT_FOUND;
        let error = refused(
            &about,
            status,
            &headers,
            kind_of_status(status),
            String::new(),
        );
        assert!(!error.is_temporary(), "it will not come into being");
    }
}
