//! Meanings of the store's refusals.

use http::{Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;

use crate::{
    Error, ErrorKind, Status,
    web::{About, kind_of_status, read_refusal, refused},
};

/// Longest excerpt of an answer that is not JSON, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: Reason,
}

#[derive(Debug, Default, Deserialize)]
struct Reason {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Detail>,
}

#[derive(Debug, Default, Deserialize)]
struct Detail {
    #[serde(default)]
    reason: String,
}

/// Returns the error that an unsuccessful answer means.
pub(super) async fn read(response: Response<Incoming>, about: &About) -> Error {
    let (head, body) = response.into_parts();
    let body = read_refusal(body).await;
    let (reason, message) = parse(&body);
    let kind = kind_of(head.status, &reason, &message);
    let cause = match (&*reason, &*message) {
        ("", "") => String::new(),
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    let error = refused(about, head.status, &head.headers, kind, cause);
    if kind.0 == ErrorKind::Corrupt {
        return error.status_is(Status::Temporary);
    }
    error
}

/// Returns the reason and the message of a refusal. Downloads are refused in plain text.
fn parse(body: &[u8]) -> (String, String) {
    let one_line = |text: &str| -> String {
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or_default().trim().trim_end_matches('.');
        line.chars().take(EXCERPT_CHARS_MAX).collect()
    };
    match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { error }) => {
            let reason = error.errors.into_iter().next().unwrap_or_default().reason;
            (one_line(&reason), one_line(&error.message))
        }
        Err(_) if body.starts_with(b"<") => Default::default(),
        Err(_) => (String::new(), one_line(&String::from_utf8_lossy(body))),
    }
}

fn kind_of(status: StatusCode, reason: &str, message: &str) -> (ErrorKind, &'static str) {
    let message = message.to_ascii_lowercase();
    match reason {
        "rateLimitExceeded" | "userRateLimitExceeded" | "backendError" => {
            return (ErrorKind::Busy, "");
        }
        "quotaExceeded" | "dailyLimitExceeded" => {
            return (ErrorKind::Full, "ask for a larger quota");
        }
        "retentionPolicyNotMet" | "objectUnderActiveHold" => {
            return (
                ErrorKind::Unsupported,
                "the bucket keeps what is there for a time: give it another name",
            );
        }
        _ => {}
    }
    match status.as_u16() {
        400 if message.contains("doesn't match calculated") => (ErrorKind::Corrupt, ""),
        // Concerns one object, even if its neighbours are public.
        401 if message.contains("anonymous caller") => (
            ErrorKind::PermissionDenied,
            "it is not public: give credentials, see docs/reference/profiles.md",
        ),
        401 => (
            ErrorKind::Unauthenticated,
            "check the credentials, see docs/reference/profiles.md",
        ),
        403 => (
            ErrorKind::PermissionDenied,
            "ask the bucket's owner for access",
        ),
        404 if message.contains("bucket does not exist") => {
            (ErrorKind::NotFound, "create the bucket first")
        }
        _ => kind_of_status(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_mean_what_the_reason_says() {
        let json = |reason: &str, message: &str| {
            format!(
                r#"{{"error":{{"code":1,"message":"{message}","errors":[{{"domain":"global",
                "reason":"{reason}","message":"{message}"}}]}}}}"#
            )
        };
        for (status, body, wanted) in [
            (403, json("rateLimitExceeded", "slow"), ErrorKind::Busy),
            (403, json("forbidden", "no"), ErrorKind::PermissionDenied),
            (401, json("authError", "who"), ErrorKind::Unauthenticated),
            (
                401,
                json(
                    "required",
                    "Anonymous caller does not have storage.objects.get access",
                ),
                ErrorKind::PermissionDenied,
            ),
            (
                403,
                json("retentionPolicyNotMet", "no"),
                ErrorKind::Unsupported,
            ),
            (412, json("conditionNotMet", "no"), ErrorKind::Changed),
            (429, json("rateLimitExceeded", "slow"), ErrorKind::Busy),
            (503, json("backendError", ""), ErrorKind::Busy),
            (
                400,
                json(
                    "invalid",
                    "Provided CRC32C x doesn't match calculated CRC32C y.",
                ),
                ErrorKind::Corrupt,
            ),
            (404, "No such object: b/o".to_owned(), ErrorKind::NotFound),
            (500, "<html>".to_owned(), ErrorKind::Busy),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let (reason, message) = parse(body.as_bytes());
            assert_eq!(kind_of(status, &reason, &message).0, wanted, "{body}");
        }
    }

    #[test]
    fn plain_text_is_shown_as_one_line() {
        assert_eq!(
            parse(b"\nNo such object: b/o\nmore").1,
            "No such object: b/o"
        );
        assert_eq!(parse(b"<html>x"), Default::default());
        assert_eq!(parse(b""), Default::default());
    }
}
