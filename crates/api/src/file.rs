//! Files of requests, and how far each is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Some of a request's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilePage {
    /// In the order of their paths, by bytes.
    pub files: Vec<FileProgress>,
    /// Where the next page begins: `?from=` that. Nothing after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Progress of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileProgress {
    /// Its path from the source; bytes that are no UTF-8 are shown as `\u{fffd}`.
    pub path: String,
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes of it that are safe, or here of a stage-in.
    pub done: u64,
    /// Sentence that says what the state means.
    pub state: FileState,
}

/// State of a file, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// Nothing of it is safe, or here.
    Waiting,
    /// Some of it is.
    Moving,
    /// All of it is.
    Done,
}
