//! What is offered, what is promised, and what is asked.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Code};

use crate::{Lane, Load, Supply, flow};

/// A request that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// What it still has to send, on the depots it is fed to.
    pub load: Load,
    /// When it must be done, from now.
    pub deadline: Duration,
}

/// Depots and promises as they stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scene {
    /// What each depot offers.
    pub supplies: Vec<Supply>,
    /// What was promised, the most urgent first.
    pub promises: Vec<Promise>,
    /// What the centre's way out carries, where that is known.
    pub egress: Option<ByteRate>,
}

/// A dataset somebody wants to be safe by a deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Size of its byte stream.
    pub bytes: Bytes,
    /// Size of every chunk but the last.
    pub chunk_size: Bytes,
    /// How chunks are coded.
    pub code: Code,
    /// When it must be safe, from now.
    pub deadline: Duration,
    /// Depots it may use, the best first, as places among the supplies.
    pub candidates: Vec<usize>,
}

/// How a proposal fares in a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// When it would be done; none for never.
    pub finish: Option<Duration>,
    /// Whether no promise that holds without it breaks with it.
    pub harmless: bool,
}

impl Fit {
    /// Whether the proposal is done by `deadline` and breaks no promise.
    #[must_use]
    pub fn holds_by(&self, deadline: Duration) -> bool {
        self.harmless && self.finish.is_some_and(|finish| finish <= deadline)
    }
}

impl Proposal {
    /// Bytes of all fragments with one index: what each depot of a full stripe gets.
    #[must_use]
    pub fn column(&self) -> Bytes {
        let chunks = self.bytes.pieces(self.chunk_size);
        if chunks == 0 {
            return Bytes::ZERO;
        }
        let last = self.bytes - self.chunk_size.times(chunks - 1);
        self.code.fragment_size(self.chunk_size).times(chunks - 1) + self.code.fragment_size(last)
    }

    /// The load it puts on the depots `chosen`, one fragment of a chunk each.
    #[must_use]
    pub fn load(&self, chosen: &[usize]) -> Load {
        let column = self.column();
        Load {
            bytes: column.times(u64::from(self.code.total())),
            lanes: chosen
                .iter()
                .map(|&supply| Lane {
                    supply,
                    room: column,
                })
                .collect(),
        }
    }
}

impl Scene {
    /// When each promise is done as things stand.
    #[must_use]
    pub fn finishes(&self) -> Vec<Option<Duration>> {
        let loads: Vec<Load> = self
            .promises
            .iter()
            .map(|promise| promise.load.clone())
            .collect();
        flow(&self.supplies, &loads, self.egress)
            .into_iter()
            .map(|outcome| outcome.finish)
            .collect()
    }

    /// How `proposal` fares on the depots `chosen`, inserted by its deadline (`docs/algorithms/greedy-planner.md`).
    #[must_use]
    pub fn fit(&self, proposal: &Proposal, chosen: &[usize]) -> Fit {
        let place = self
            .promises
            .partition_point(|promise| promise.deadline <= proposal.deadline);
        let mut loads: Vec<Load> = self
            .promises
            .iter()
            .map(|promise| promise.load.clone())
            .collect();
        loads.insert(place, proposal.load(chosen));
        let mut after = flow(&self.supplies, &loads, self.egress);
        let ours = after.remove(place);
        let holds = |finish: Option<Duration>, promise: &Promise| {
            finish.is_some_and(|finish| finish <= promise.deadline)
        };
        let harmless = self.promises.iter().zip(self.finishes()).zip(after).all(
            |((promise, before), after)| !holds(before, promise) || holds(after.finish, promise),
        );
        Fit {
            finish: ours.finish,
            harmless,
        }
    }

    /// The same scene with endless space everywhere: tells want of space from want of rate.
    #[must_use]
    pub fn with_endless_space(&self) -> Self {
        let mut scene = self.clone();
        for supply in &mut scene.supplies {
            supply.space = Bytes::new(u64::MAX >> 1);
        }
        scene
    }
}
