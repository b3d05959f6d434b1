//! Attributes to keep of a file, and the identity of an unfinished copy of it.

use std::sync::Arc;

use crate::FileTime;

/// Attributes that a destination is to keep of a file beside its bytes, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Size in bytes.
    pub size: u64,
    /// Modification time, kept at the destination.
    pub mtime: Option<FileTime>,
    /// Permission bits, kept at the destination.
    pub mode: Option<u32>,
    /// The source's full address. With size, mtime and version it identifies the source of an
    /// unfinished copy.
    pub origin: Arc<str>,
    /// The source's own version, if it has one.
    pub version: Option<Box<str>>,
}

impl FileSpec {
    /// Returns the identity of the copied content: another value means that an unfinished copy
    /// starts anew.
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
