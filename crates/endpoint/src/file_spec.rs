//! What is to be kept of a file, and by what an unfinished copy of it is known.

use std::sync::Arc;

use crate::FileTime;

/// What a destination is to keep of a file beside its bytes, and whom it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// Bytes.
    pub size: u64,
    /// Kept at the destination.
    pub mtime: Option<FileTime>,
    /// Kept at the destination: permission bits.
    pub mode: Option<u32>,
    /// The source's full address. With size, mtime and version it names what an unfinished copy
    /// is a copy of.
    pub origin: Arc<str>,
    /// The source's own version, where it has one.
    pub version: Option<Box<str>>,
}

impl FileSpec {
    /// Names exactly what is copied: another value means that an unfinished copy starts anew.
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

    /// The same for a file of unknown length, which is found again whatever its length is.
    pub(crate) fn open_ended(&self) -> Self {
        Self {
            size: 0,
            ..self.clone()
        }
    }
}
