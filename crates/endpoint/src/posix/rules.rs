//! Rules for writing files, here and elsewhere.

/// Rules for unfinished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftRules {
    /// Read written blocks back and compare checksums.
    pub verify: bool,
    /// True to flush each file to the disk before it gets its final name.
    pub fsync: bool,
    /// Replace a file that has the final name; otherwise the file is refused.
    pub replaces: bool,
}

impl DraftRules {
    /// Returns the rules for bytes from a network. Their sum was computed on arrival and is
    /// compared with the sender's; reading them back from the page cache would add nothing.
    #[must_use]
    pub fn of_received(self) -> Self {
        Self {
            verify: false,
            ..self
        }
    }
}

impl Default for DraftRules {
    fn default() -> Self {
        Self {
            verify: true,
            fsync: false,
            replaces: true,
        }
    }
}
