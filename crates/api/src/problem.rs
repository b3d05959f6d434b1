//! Why the service says no.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why the service said no: a problem of RFC 9457.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URN of the kind of problem: its code after `urn:posthaste:problem:`.
    #[schema(example = "urn:posthaste:problem:not-found")]
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in a few words.
    #[schema(example = "not found")]
    pub title: String,
    /// HTTP status of the answer.
    #[schema(example = 404)]
    pub status: u16,
    /// Single line: what, while doing what, to what, what to try.
    pub detail: String,
    /// The page under `docs/errors/` that explains it.
    #[schema(example = "not-found")]
    pub code: String,
}

impl Problem {
    /// Content type of an answer that is a problem.
    pub const CONTENT_TYPE: &str = "application/problem+json";

    /// Describes the problem `code` of an answer with `status`; `detail` is one line.
    #[must_use]
    pub fn new(status: u16, code: &str, detail: String) -> Self {
        Self {
            kind: format!("urn:posthaste:problem:{code}"),
            title: code.replace('-', " "),
            status,
            detail,
            code: code.to_owned(),
        }
    }
}
