//! Counts of what a stage-in's sources gave that is not what they have.

use alloc::collections::BTreeMap;
use posthaste_types::{ChunkIndex, SourceId, record};

/// Tries of a chunk from one source of which each brought bytes that are not those the source has by
/// its own checksum. What is damaged on the way comes right the next time; what is damaged there
/// never does.
const WRONG_MAX: u32 = 3;

record! {
    /// Chunk asked of a source.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Fetch {
        pub(crate) chunk: ChunkIndex,
        pub(crate) source: SourceId,
    }
}

record! {
    /// Counts of what came wrong of a stage-in.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Wrong {
        /// Times in a row that a chunk came wrong from a source: those that never came right.
        pub(crate) chunks: BTreeMap<Fetch, u32>,
        /// Times that all of it was there, and some file was not what its source has.
        pub(crate) wholes: u32,
    }
}

impl Wrong {
    /// Counts a chunk that came wrong from a source. Returns whether that is often enough: more
    /// tries would bring the same bytes.
    pub(crate) fn came(&mut self, fetch: Fetch) -> bool {
        let times = self.chunks.entry(fetch).or_default();
        *times += 1;
        *times >= WRONG_MAX
    }

    /// Counts that a file of it came wrong as a whole. Returns whether that is often enough.
    pub(crate) fn whole_came(&mut self) -> bool {
        self.wholes += 1;
        self.wholes >= WRONG_MAX
    }
}
