use alloc::{string::String, vec::Vec};
use posthaste_forecast::{Quantiles, Score};
use posthaste_types::{ByteRate, Bytes, RequestId, SourceId, Timestamp, record};

use super::{DepotState, Forecast, Priority};

record! {
    /// A stage-in as the mind sees it: what its sources hold, and when it must be at the centre.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArrivalSpec {
        /// Size of the byte stream of all its files.
        pub bytes: Bytes,
        /// How many those are.
        pub files: u64,
        /// Size of every chunk but the last.
        pub chunk_size: Bytes,
        /// When all of it must be here.
        pub deadline: Timestamp,
        /// Before this it is in the way, and comes only as far as the deadline needs it.
        pub not_before: Option<Timestamp>,
        /// Where it can be read: each holds all of it.
        pub sources: Vec<SourceId>,
        /// How much it matters beside others that can't be on time either.
        pub priority: Priority,
        /// Most that may be read for it.
        pub rate_max: Option<ByteRate>,
        /// Take it even if the deadline can't be met, and do what can be done.
        pub best_effort: bool,
    }
}

impl ArrivalSpec {
    /// Chunks of a stage-in: a bit for each, twice, must fit into memory.
    const CHUNKS_MAX: u64 = 1 << 26;

    /// Number of chunks; none when it can't be cut into them.
    #[must_use]
    pub fn chunks(&self) -> Option<u32> {
        if self.bytes == Bytes::ZERO {
            return Some(0);
        }
        let chunks = self.bytes.pieces(self.chunk_size);
        let chunks = (1..=Self::CHUNKS_MAX).contains(&chunks).then_some(chunks);
        chunks.and_then(|chunks| u32::try_from(chunks).ok())
    }

    /// Size of chunk `chunk`: the chunk size, or what is left for the last one.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let start = self.chunk_size.times(u64::from(chunk));
        (self.bytes - start).min(self.chunk_size)
    }
}

record! {
    /// Where a stage-in stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ArrivalState {
        /// Not taken.
        0 = Refused,
        /// Taken, and nothing was fetched yet.
        1 = Waiting,
        /// Chunks are being fetched.
        2 = Moving,
        /// Every chunk is here; the files get their names.
        3 = Landing,
        /// All of it is here.
        4 = Arrived,
        /// Cancelled by a user.
        5 = Cancelled,
        /// Can't go on; nothing of it is here.
        6 = Failed,
    }
}

impl ArrivalState {
    /// The word people and programs know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Waiting => "waiting",
            Self::Moving => "moving",
            Self::Landing => "landing",
            Self::Arrived => "arrived",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Whether something is still to be done for it.
    #[must_use]
    pub const fn is_live(self) -> bool {
        match self {
            Self::Waiting | Self::Moving | Self::Landing => true,
            Self::Refused | Self::Arrived | Self::Cancelled | Self::Failed => false,
        }
    }
}

record! {
    /// What one source gave to one stage-in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SourceShareView {
        /// The source.
        pub source: SourceId,
        /// The name people use.
        pub name: String,
        /// How it is doing.
        pub state: DepotState,
        /// It no longer holds what it held: nothing more is read from it for this stage-in.
        pub is_gone: bool,
        /// Chunks that came from it first.
        pub arrived: u32,
        /// Bytes of those.
        pub bytes: Bytes,
        /// Chunks on their way from it.
        pub in_flight: u32,
        /// What it is forecast to give, to all stage-ins together.
        pub rates: Quantiles,
    }
}

record! {
    /// One stage-in, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArrivalView {
        /// The request.
        pub request: RequestId,
        /// What was asked for.
        pub spec: ArrivalSpec,
        /// Where it stands.
        pub state: ArrivalState,
        /// Whether its deadline is in danger.
        pub at_risk: bool,
        /// Whether the deadline passed before it was here.
        pub missed: bool,
        /// When it was submitted.
        pub submitted: Timestamp,
        /// The latest moment to begin, or go on, that still holds the deadline with its margin; none
        /// once it is over or when there is no such moment.
        pub begin_by: Option<Timestamp>,
        /// When the first chunk was asked for.
        pub begun_at: Option<Timestamp>,
        /// When all of it was here.
        pub arrived_at: Option<Timestamp>,
        /// When it is forecast to be here; none once it is, or while no source answers.
        pub finish: Option<Forecast>,
        /// Chunks that are here.
        pub chunks_here: u32,
        /// Bytes of those.
        pub bytes_here: Bytes,
        /// Chunks that were asked for a second time because the first source was late.
        pub duplicates: u32,
        /// What each source does for it, in the user's order.
        pub shares: Vec<SourceShareView>,
    }
}

record! {
    /// One source, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SourceView {
        /// The source.
        pub source: SourceId,
        /// The name people use.
        pub name: String,
        /// How it is doing.
        pub state: DepotState,
        /// What it is forecast to give.
        pub rates: Quantiles,
        /// When it was last measured; none when it never was.
        pub measured_at: Option<Timestamp>,
        /// Measurements taken so far.
        pub transfers: u64,
        /// How well it was forecast so far.
        pub score: Score,
    }
}
