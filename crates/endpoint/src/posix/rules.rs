//! The rules by which files are written, here and elsewhere.

/// Rules for unfinished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftRules {
    /// Read back what was written and compare checksums.
    pub verify: bool,
    /// Flush each file to the disk before it gets its final name.
    pub fsync: bool,
    /// Replace a file that has the final name; otherwise the file is refused.
    pub replaces: bool,
}

impl DraftRules {
    /// The rules for bytes that come from a network: they were summed as they came and the sum is
    /// compared with the sender's, which reading them back from the page cache would not add to.
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
