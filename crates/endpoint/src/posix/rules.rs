//! Rules for writing files, here and elsewhere.

/// Rules for unfinished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftRules {
    /// True to read files back after writing and compare checksums.
    pub verify: bool,
    /// True to flush each file to the disk before it gets its final name.
    pub fsync: bool,
    /// True to replace an existing file under the final name; otherwise the new file is refused.
    pub replaces: bool,
}

impl DraftRules {
    /// Returns the rules for bytes from a network. They were hashed as they arrived and the
    /// checksum is compared with the sender's; reading them back from the page cache would add
    /// nothing.
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
