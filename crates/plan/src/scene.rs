//! Capacity left after all promises, and the questions about it.

use posthaste_types::{ByteRate, Bytes, Code, Timestamp, record};

use crate::{Lane, Load, Outcome, Shut, Supplies, Supply, Whole};

record! {
    /// Depots as a newcomer finds them: all promises are taken already, as late as each allows. So
    /// a newcomer that fits breaks no promise, and may start at once.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Scene {
        /// Current time.
        pub now: Timestamp,
        /// Remaining capacity of each depot.
        pub supplies: Supplies,
    }
}

/// A dataset that should be safe by a deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Size of its byte stream.
    pub bytes: Bytes,
    /// Size of every chunk but the last.
    pub chunk_size: Bytes,
    /// Code of its chunks.
    pub code: Code,
    /// Deadline by which it must be safe.
    pub deadline: Timestamp,
    /// Depots it may use, best first, as places among the supplies.
    pub candidates: alloc::vec::Vec<usize>,
    /// Destination that may get whole chunks, as a place among the supplies.
    pub destination: Option<usize>,
    /// Most that may be sent for it, all depots together.
    pub rate_max: Option<ByteRate>,
    /// Number of leading candidates that are pinned: each gets a fragment of every chunk.
    pub pinned: usize,
    /// Depots that are closed to it alone at some times.
    pub shut: alloc::vec::Vec<Shut>,
}

impl Proposal {
    /// Returns the bytes of all fragments with one index: the share of each depot of a full stripe.
    #[must_use]
    pub fn column(&self) -> Bytes {
        let chunks = self.bytes.pieces(self.chunk_size);
        if chunks == 0 {
            return Bytes::ZERO;
        }
        let last = self.bytes - self.chunk_size.times(chunks - 1);
        self.code.fragment_size(self.chunk_size).times(chunks - 1) + self.code.fragment_size(last)
    }

    /// Returns the least number of candidates it needs: the number of fragments of its code, or one
    /// less if it needs all of them and its destination holds part of every chunk as well.
    #[must_use]
    pub fn least(&self) -> usize {
        let total = usize::from(self.code.total());
        let count = self.candidates.len();
        let stands_in = self.destination.is_some() && self.pinned == count && count + 1 == total;
        total - usize::from(stands_in)
    }

    fn is_pinned(&self, supply: usize) -> bool {
        let mut pinned = self.candidates.iter().take(self.pinned);
        pinned.any(|candidate| *candidate == supply)
    }

    /// Returns its load on the depots `chosen`, one fragment of a chunk each, and on its
    /// destination.
    #[must_use]
    pub fn load(&self, chosen: &[usize]) -> Load {
        if let Some(destination) = self.destination.filter(|_| chosen.is_empty()) {
            return Load {
                rate_max: self.rate_max,
                shut: self.shut.clone(),
                ..Load::whole(self.bytes, self.chunk_size, destination)
            };
        }
        let column = self.column();
        let piece = self.code.fragment_size(self.chunk_size);
        let whole = |supply| Whole {
            lane: Lane::new(supply, self.bytes, self.chunk_size),
            code: self.code,
        };
        Load {
            bytes: column.times(u64::from(self.code.total())),
            lanes: chosen
                .iter()
                .map(|&supply| Lane {
                    is_pinned: self.is_pinned(supply),
                    ..Lane::new(supply, column, piece)
                })
                .collect(),
            whole: self.destination.map(whole),
            rate_max: self.rate_max,
            shut: self.shut.clone(),
        }
    }
}

impl Scene {
    /// Returns when the proposal would finish on the depots `chosen`; none for never.
    #[must_use]
    pub fn finish(&self, proposal: &Proposal, chosen: &[usize]) -> Option<Timestamp> {
        self.supplies.early(&proposal.load(chosen), self.now).edge
    }

    /// Returns whether the proposal would finish on the depots `chosen` by `deadline`.
    #[must_use]
    pub fn holds(&self, proposal: &Proposal, chosen: &[usize], deadline: Timestamp) -> bool {
        self.finish(proposal, chosen)
            .is_some_and(|finish| finish <= deadline)
    }

    /// Promises a load as late as its deadline allows, and returns whether all of it fits. The part
    /// that fits is promised in any case.
    pub fn promise(&mut self, load: &Load, deadline: Timestamp) -> bool {
        let outcome = self.supplies.late(load, self.now, deadline);
        self.supplies.take(load, &outcome);
        outcome.edge.is_some()
    }

    /// Promises a load for which space is kept where it was `placed` when filled in early.
    ///
    /// # Panics
    /// If `placed` belongs to another load.
    pub fn promise_kept(&mut self, load: &Load, deadline: Timestamp, placed: &Outcome) {
        let outcome = self.supplies.late(load, self.now, deadline);
        self.supplies.take_time(load, &outcome);
        self.supplies.take_space(load, placed);
    }

    /// Returns the scene with unlimited space everywhere, to tell lack of space from lack of rate.
    #[must_use]
    pub fn with_endless_space(&self) -> Self {
        let mut scene = self.clone();
        for supply in &mut scene.supplies.depots {
            *supply = Supply::new(supply.curve.clone(), Bytes::new(u64::MAX >> 1));
        }
        scene
    }
}
