//! Chunks that are no longer what they were.

use posthaste_types::ChunkIndex;

use super::{NOTHING, Replica};

impl Replica {
    /// The chunk is another one now: nothing of it lies anywhere.
    pub(crate) fn renew(&mut self, chunk: ChunkIndex) {
        let at = chunk.get();
        let lacked = self.lacks(at, self.have(at));
        let mut was_held = false;
        for lane in 0..self.columns.len() {
            let Some(fragment) = self.fragment_at(lane, chunk) else {
                continue;
            };
            let bytes = self.bytes_of(chunk, fragment);
            let column = &mut self.columns[lane];
            column.held[at as usize] = NOTHING;
            column.stored -= 1;
            column.stored_bytes -= bytes;
            column.held_unsafe -= u32::from(lacked > 0);
            was_held = true;
        }
        if was_held {
            self.damaged.insert(at);
        }
        let lacks = self.lacks(at, self.have(at));
        self.safe -= u32::from(lacked == 0);
        self.safe += u32::from(lacks == 0);
        self.missing = self.missing + u64::from(lacks) - u64::from(lacked);
        self.put_back(chunk);
    }
}
