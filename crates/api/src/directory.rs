//! Directories of any endpoint, as the service lists them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EntryKind, Problem};

/// A page of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Directory {
    /// Address as it was asked for.
    pub address: String,
    /// By their names, byte by byte.
    pub entries: Vec<DirectoryEntry>,
    /// Time at which this was known to be so, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// True if the service knew it already, and did not list it for this.
    pub cached: bool,
    /// Path and query that the next page has; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A line of all that lies below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TreeLine {
    /// Which directory it is about: its path below the one that was asked for, which has none itself.
    pub path: String,
    /// Entries in it, by their names. A directory of more than a thousand comes in several lines, which follow each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<DirectoryEntry>,
    /// Time at which this was known to be so, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub as_of: Option<String>,
    /// True if the service knew it already, and did not list it for this.
    #[serde(default)]
    pub cached: bool,
    /// Why it could not be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// True for the last line, about no directory: without one not all was told.
    #[serde(default)]
    pub end: bool,
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectoryEntry {
    /// Its name. What is no UTF-8 in it is shown as U+FFFD.
    pub name: String,
    /// Its name, percent-encoded, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_encoded: Option<String>,
    /// Its kind.
    pub kind: EntryKind,
    /// Bytes; of a link, those of where it points. Absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time at which it was changed, RFC 3339, where a listing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub modified: Option<String>,
    /// Time at which the store took it, RFC 3339, where it tells that rather than when it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub stored: Option<String>,
    /// Permission bits in octal, like `0644`, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}
