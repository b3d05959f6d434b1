//! Meanings of a store's refusals.

use http::{HeaderMap, StatusCode};

use super::wire::Refusal;
use crate::{
    Error, ErrorKind, Status,
    web::{self, About, kind_of_status},
};

/// Parses the reason in a body; empty if it is no refusal of S3.
pub(super) fn parse_refusal(body: &[u8]) -> Refusal {
    quick_xml::de::from_reader(body).unwrap_or_default()
}

/// Returns the error that a refusal means.
pub(super) fn refused(
    about: &About,
    status: StatusCode,
    headers: &HeaderMap,
    refusal: &Refusal,
) -> Error {
    let cause = match (&*refusal.code, &*refusal.message) {
        ("", _) => format!("the store answered {status}"),
        (code, "") => code.to_owned(),
        (code, message) => format!("{code}: {}", message.trim_end_matches('.')),
    };
    let (kind, hint) = kind_of(status, &refusal.code);
    let mut error = web::refused(about, status, headers, (kind, hint), cause);
    if !refusal.code.is_empty() {
        error = error.with("code", &refusal.code);
    }
    // The bytes were right when sent; the transfer damaged them.
    if kind == ErrorKind::Corrupt {
        return error.status_is(Status::Temporary);
    }
    error
}

/// Returns whether a refusal can mean that the store does not support the request.
pub(super) fn is_not_understood(error: &Error) -> bool {
    let told = |key| error.context().iter().find(|(name, _)| *name == key);
    let is_general = told("code").is_none_or(|(_, code)| {
        [
            "InvalidArgument",
            "InvalidRequest",
            "NotImplemented",
            "MalformedXML",
        ]
        .contains(&&**code)
    });
    is_general && told("status").is_some_and(|(_, status)| status == "400" || status == "501")
}

fn kind_of(status: StatusCode, code: &str) -> (ErrorKind, &'static str) {
    match code {
        "NoSuchBucket" => return (ErrorKind::NotFound, "create the bucket first"),
        "NoSuchKey" | "NoSuchUpload" => return (ErrorKind::NotFound, ""),
        "InvalidAccessKeyId"
        | "SignatureDoesNotMatch"
        | "InvalidToken"
        | "ExpiredToken"
        | "XAdminUserNotFound" => {
            return (
                ErrorKind::Unauthenticated,
                "check the access key and its secret",
            );
        }
        "RequestTimeTooSkewed" => return (ErrorKind::Unauthenticated, "set this machine's clock"),
        "AccessDenied" => {
            return (
                ErrorKind::PermissionDenied,
                "ask the bucket's owner for access; if who asks has to pay, set requester_pays = true in a profile",
            );
        }
        "SlowDown" | "RequestTimeout" | "InternalError" | "ServiceUnavailable" => {
            return (ErrorKind::Busy, "");
        }
        "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity" => {
            return (ErrorKind::Full, "free space in the store");
        }
        "BadDigest" | "XAmzContentChecksumMismatch" => return (ErrorKind::Corrupt, ""),
        "InvalidObjectState" => {
            return (ErrorKind::Unsupported, "it is archived: restore it first");
        }
        "KeyTooLongError" => return (ErrorKind::Unsupported, "shorten the path"),
        "XMinioInvalidObjectName" => return (ErrorKind::Unsupported, "rename it"),
        "XMinioParentIsObject" => {
            return (
                ErrorKind::Conflict,
                "a file has the name of a directory above it",
            );
        }
        _ => {}
    }
    match status.as_u16() {
        // Wrong credentials have a code of their own: this is about one object, and others may be
        // allowed.
        403 => (
            ErrorKind::PermissionDenied,
            "check the credentials and what they allow; if who asks has to pay, set requester_pays = true in a profile",
        ),
        _ => kind_of_status(status),
    }
}
