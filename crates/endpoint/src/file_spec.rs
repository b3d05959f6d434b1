//! Specification of a file: the attributes to keep, and the identity of an unfinished copy.

use std::sync::Arc;

use crate::FileTime;

/// Attributes that a destination keeps of a file beside its bytes, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Size in bytes.
    pub size: u64,
    /// Modification time, kept at the destination.
    pub mtime: Option<FileTime>,
    /// Permission bits, kept at the destination.
    pub mode: Option<u32>,
    /// Full address of the source. With size, mtime and version it identifies the source of an
    /// unfinished copy.
    pub origin: Arc<str>,
    /// Source's own version, if it has one.
    pub version: Option<Box<str>>,
}

impl FileSpec {
    /// Returns the identity of the copy: with another value an unfinished copy starts anew.
    #[must_use]
    pub fn identity(&self) -> String {
        let text = format!(
            "{}\n{}\n{}\n{}",
            self.origin,
            self.size,
            self.mtime
                .map_or_else(String::new, |mtime| mtime.to_string()),
            self.version.as_deref().unwrap_or_default()
        );
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    }

    /// Returns the specification for a file of unknown length, which is found again whatever its
    /// length is.
    pub(crate) fn open_ended(&self) -> Self {
        Self {
            size: 0,
            ..self.clone()
        }
    }
}
