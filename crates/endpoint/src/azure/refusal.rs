//! Meanings of refusals: the only place that knows Azure's error codes.

use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use crate::{
    Error, ErrorKind, Status,
    web::{About, kind_of_status, refused, text_of},
};

/// Code of a refusal because another writer's blocks replaced ours.
pub(super) const BLOCKS_GONE: &str = "InvalidBlockList";

/// Code of a refusal because of a header that compatible services may not know.
pub(super) const UNKNOWN_FEATURE: &str = "FeatureNotSupported";

/// Refusal in an answer's body.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Returns the error that an unsuccessful answer means. Its code is in the context as `code`.
pub(super) fn refusal(
    about: &About,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Error {
    let told: Refusal = quick_xml::de::from_reader(body).unwrap_or_default();
    // Answers to HEAD have no body.
    let code = text_of(headers, "x-ms-error-code").unwrap_or(&told.code);
    let message = told.message.lines().next().unwrap_or_default();
    let cause = match (code, message.trim_end_matches('.')) {
        ("", _) => String::new(),
        (code, "") => code.to_owned(),
        (code, message) => format!("{code}: {message}"),
    };
    let kind = match code {
        // Azurite reports a wrong signature this way.
        "AuthorizationFailure" if message.contains("failed to authenticate") => {
            kind_of(status, "AuthenticationFailed")
        }
        code => kind_of(status, code),
    };
    let error = refused(about, status, headers, kind, cause);
    let error = if error.kind() == ErrorKind::Corrupt {
        // Damaged in transit: another attempt sends the bytes again.
        error.status_is(Status::Temporary)
    } else {
        error
    };
    match code {
        "" => error,
        code => error.with("code", code),
    }
}

/// Returns whether an error has this code.
pub(super) fn has_code(error: &Error, code: &str) -> bool {
    let mut context = error.context().iter();
    context.any(|(key, value)| *key == "code" && value == code)
}

/// Hint for rejected or insufficient credentials.
const CHECK_KEY: &str = "check the account and its key or token, and this machine's clock";
const CHECK_RIGHTS: &str = "check what these credentials allow";

/// Meanings of codes, and hints ("Common REST API error codes", "Blob service error codes"). Other
/// codes mean what their status does.
#[rustfmt::skip]
const CODES: [(&str, ErrorKind, &str); 35] = [
    ("ContainerNotFound", ErrorKind::NotFound, "create the container first"),
    ("FilesystemNotFound", ErrorKind::NotFound, "create the container first"),
    ("AuthenticationFailed", ErrorKind::Unauthenticated, CHECK_KEY),
    ("InvalidAuthenticationInfo", ErrorKind::Unauthenticated, CHECK_KEY),
    ("NoAuthenticationInformation", ErrorKind::Unauthenticated, CHECK_KEY),
    ("PublicAccessNotPermitted", ErrorKind::Unauthenticated, "give credentials, see docs/reference/profiles.md"),
    ("KeyBasedAuthenticationNotPermitted", ErrorKind::PermissionDenied, "this account wants a bearer token"),
    ("AuthorizationFailure", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AuthorizationPermissionMismatch", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AuthorizationProtocolMismatch", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AuthorizationResourceTypeMismatch", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AuthorizationServiceMismatch", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AuthorizationSourceIPMismatch", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("InsufficientAccountPermissions", ErrorKind::PermissionDenied, CHECK_RIGHTS),
    ("AccountIsDisabled", ErrorKind::PermissionDenied, "ask the account's owner"),
    ("BlobImmutableDueToPolicy", ErrorKind::Unsupported, "a policy keeps what is there: give it another name"),
    ("ServerBusy", ErrorKind::Busy, ""),
    ("OperationTimedOut", ErrorKind::Busy, ""),
    ("InternalError", ErrorKind::Busy, ""),
    ("ContainerBeingDeleted", ErrorKind::Busy, ""),
    ("PendingCopyOperation", ErrorKind::Busy, ""),
    ("Md5Mismatch", ErrorKind::Corrupt, ""),
    ("Crc64Mismatch", ErrorKind::Corrupt, ""),
    ("BlobArchived", ErrorKind::Unsupported, "it is archived: rehydrate it first"),
    ("BlobBeingRehydrated", ErrorKind::Unsupported, "it is archived: wait until it is rehydrated"),
    ("LeaseIdMissing", ErrorKind::Conflict, "somebody holds a lease on it"),
    ("SnapshotsPresent", ErrorKind::Conflict, "it has snapshots: remove them first"),
    ("InvalidBlobType", ErrorKind::Conflict, "it is no block blob: remove it first"),
    ("InvalidBlobOrBlock", ErrorKind::Conflict, OTHER_BLOCKS),
    ("InvalidBlockId", ErrorKind::Conflict, OTHER_BLOCKS),
    (BLOCKS_GONE, ErrorKind::Conflict, "run the same command again"),
    (UNKNOWN_FEATURE, ErrorKind::Unsupported, ""),
    ("InvalidResourceName", ErrorKind::Unsupported, "rename it"),
    ("InvalidUri", ErrorKind::Unsupported, "rename it"),
    ("OutOfRangeInput", ErrorKind::Unsupported, "rename it"),
];

/// Blocks of one name must have ids of one length.
const OTHER_BLOCKS: &str =
    "another program left an unfinished upload of this name, which Azure forgets after a week";

fn kind_of(status: StatusCode, code: &str) -> (ErrorKind, &'static str) {
    // Source of a copy: a missing one is distinguished from an unreadable one.
    if code == "CannotVerifyCopySource" && status != StatusCode::NOT_FOUND {
        return (ErrorKind::Unsupported, "");
    }
    let found = CODES.iter().find(|(known, ..)| *known == code);
    found.map_or_else(|| kind_of_status(status), |(_, kind, hint)| (*kind, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(status: u16, code: &str, body: &str) -> Error {
        let about = About::reading("read", "azblob://c/k".to_owned());
        let mut headers = HeaderMap::new();
        if !code.is_empty() {
            headers.insert("x-ms-error-code", code.parse().unwrap());
        }
        headers.insert("retry-after", "3".parse().unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        refusal(&about, status, &headers, body.as_bytes())
    }

    #[test]
    fn codes_decide_what_an_error_is() {
        let body = "<?xml version=\"1.0\"?><Error><Code>ContainerNotFound</Code>\
            <Message>The specified container does not exist.\nRequestId:1</Message></Error>";
        let error = error_of(404, "", body);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let shown = error.to_string();
        assert!(
            shown.contains("does not exist (create the container first)"),
            "{shown}"
        );
        for (status, code, kind) in [
            (403, "AuthenticationFailed", ErrorKind::Unauthenticated),
            (403, "AuthorizationFailure", ErrorKind::PermissionDenied),
            (412, "ConditionNotMet", ErrorKind::Changed),
            (409, "BlobAlreadyExists", ErrorKind::Conflict),
            (409, "BlobArchived", ErrorKind::Unsupported),
            (503, "ServerBusy", ErrorKind::Busy),
            (400, "Crc64Mismatch", ErrorKind::Corrupt),
            (404, "CannotVerifyCopySource", ErrorKind::NotFound),
            (403, "CannotVerifyCopySource", ErrorKind::Unsupported),
            (429, "", ErrorKind::Busy),
        ] {
            let error = error_of(status, code, "");
            assert_eq!(error.kind(), kind, "{code}");
            assert!(has_code(&error, code) != code.is_empty(), "{code}");
        }
    }

    #[test]
    fn what_passes_is_tried_again() {
        let busy = error_of(503, "ServerBusy", "");
        assert_eq!(busy.pause(), Some(std::time::Duration::from_secs(3)));
        assert!(error_of(400, "Md5Mismatch", "").is_temporary());
        assert!(!error_of(403, "AuthenticationFailed", "").is_temporary());
    }
}
