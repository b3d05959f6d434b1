//! Chunks that wait to be sent, in the order of their turn.

use posthaste_types::ChunkIndex;

use crate::{state::Bitmap, state::replica::Replica};

impl Replica {
    /// Returns the next chunk to send in fragments, which the caller then opens, parks or puts
    /// back.
    pub(crate) fn next(&mut self) -> Option<ChunkIndex> {
        let chunk = self.todo.pop().or_else(|| self.again.pop());
        let chunk = chunk.or_else(|| self.copies_todo.pop());
        chunk.map(ChunkIndex::new)
    }

    /// Returns the next chunk to send whole, which the caller treats likewise. Chunks that no depot
    /// can take come first, then those from behind, so that both ways meet and hardly a chunk goes
    /// both. There are no others if all of it at one destination is not safe.
    pub(crate) fn next_whole(&mut self) -> Option<ChunkIndex> {
        let chunk = self.parked.pop_last();
        if !self.is_safe_whole() {
            return chunk.map(ChunkIndex::new);
        }
        let chunk = chunk.or_else(|| self.todo.pop_last());
        let chunk = chunk.or_else(|| self.again.pop_last());
        chunk.map(ChunkIndex::new)
    }

    /// Returns whether some chunk could be sent whole.
    pub(crate) fn has_next_whole(&self) -> bool {
        let waiting = self.todo.len() > 0 || self.again.len() > 0;
        self.parked.len() > 0 || waiting && self.is_safe_whole()
    }

    /// Marks the chunk as being sent.
    pub(crate) fn open(&mut self, chunk: ChunkIndex) {
        self.todo.remove(chunk.get());
        self.again.remove(chunk.get());
        self.parked.remove(chunk.get());
        self.copies_todo.remove(chunk.get());
        self.copies_parked.remove(chunk.get());
    }

    /// Puts back a chunk that is not being sent any more, or not yet.
    pub(crate) fn put_back(&mut self, chunk: ChunkIndex) {
        if self.lacking(chunk) != 0 {
            self.await_turn(chunk.get());
        }
    }

    pub(super) fn await_turn(&mut self, chunk: u32) {
        if self.is_left(ChunkIndex::new(chunk)) {
            return self.open(ChunkIndex::new(chunk));
        }
        if self.is_for_copies(chunk) {
            self.open(ChunkIndex::new(chunk));
            self.copies_todo.insert(chunk);
            return;
        }
        self.copies_todo.remove(chunk);
        let (to, from) = if self.damaged.contains(chunk) {
            (&mut self.again, &mut self.todo)
        } else {
            (&mut self.todo, &mut self.again)
        };
        to.insert(chunk);
        from.remove(chunk);
    }

    /// Parks a chunk of which no depot fed now can take more.
    pub(crate) fn park(&mut self, chunk: ChunkIndex) {
        match self.is_for_copies(chunk.get()) {
            true => self.copies_parked.insert(chunk.get()),
            false => self.parked.insert(chunk.get()),
        }
    }

    /// Gives parked chunks another chance, as depots changed.
    pub(crate) fn unpark(&mut self) {
        self.todo.absorb(&mut self.parked);
        self.copies_todo.absorb(&mut self.copies_parked);
    }

    /// Gives a parked chunk another chance when something more of it was stored. That may be a copy
    /// of what others hold: one of those copies can make room.
    pub(super) fn unpark_one(&mut self, chunk: ChunkIndex) {
        let chunk = chunk.get();
        if self.parked.contains(chunk) || self.copies_parked.contains(chunk) {
            self.parked.remove(chunk);
            self.copies_parked.remove(chunk);
            self.await_turn(chunk);
        }
    }

    /// Returns whether chunks were parked because no depot fed could take more of them.
    pub(crate) fn has_parked(&self) -> bool {
        self.parked.len() > 0 || self.copies_parked.len() > 0
    }

    /// Returns whether no chunk waits to be sent.
    pub(crate) fn is_all_open(&self) -> bool {
        self.todo.len() == 0 && self.again.len() == 0 && self.copies_todo.len() == 0
    }

    /// Returns every set of waiting chunks.
    pub(super) fn queues(&self) -> [&Bitmap; 5] {
        [
            &self.todo,
            &self.again,
            &self.parked,
            &self.copies_todo,
            &self.copies_parked,
        ]
    }
}
