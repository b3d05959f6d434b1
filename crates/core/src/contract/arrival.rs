use alloc::{string::String, vec, vec::Vec};
use core::{ops::Range, time::Duration};
use posthaste_forecast::{Quantiles, Score};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, DepotId, RequestId, SourceId, Timestamp, record,
};

use super::{DepotState, Fault, Forecast, Knowledge, Pause, Priority, SourcePrice};

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
        /// Where it can be read.
        pub sources: Vec<SourceId>,
        /// How much it matters beside others that can't be on time either.
        pub priority: Priority,
        /// Most that may be read for it.
        pub rate_max: Option<ByteRate>,
        /// Take it even if the deadline can't be met, and do what can be done.
        pub best_effort: bool,
    }
}

record! {
    /// Files of a stage-in that lie at the same sources: a run of its byte stream, in chunks of its own, so
    /// that each source that is named gives every one of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Holding {
        /// Bytes of those files.
        pub bytes: Bytes,
        /// Where they lie; each is a source of the stage-in.
        pub sources: Vec<SourceId>,
    }
}

record! {
    /// A depot near the centre, on which a stage-in may wait.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NearDepot {
        /// To which it is sent.
        pub depot: DepotId,
        /// As which it is read.
        pub source: SourceId,
    }
}

record! {
    /// What became known of a stage-in: which way it goes, and how it stands with depots near the centre, on which it may
    /// wait.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum StageInNews {
        /// It may wait at these.
        0 = MayWait {
            /// Those depots, and as what they are read.
            near: Vec<NearDepot>,
        },
        /// One stored a chunk and checked its digest, which is noted.
        1 = Stored {
            /// Read from this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// At this depot.
            depot: DepotId,
        },
        /// One did not take a chunk; its source did give it.
        2 = Failed {
            /// Read from this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// At this depot.
            depot: DepotId,
            /// Why.
            fault: Fault,
        },
        /// It goes the other way: from scratch to an address elsewhere. Told before it is asked for.
        3 = GoesOut {
            /// Whether what it reads is removed from scratch once all of it is there.
            release: bool,
        },
        /// It goes to an address elsewhere, and is read from the depots of a request once that is safe. Told before either is
        /// asked for.
        4 = GoesOn {
            /// That request.
            of: RequestId,
        },
        /// Whose it is, told right after it is asked for: what can't be on time is shared evenly. Otherwise it is nobody's.
        5 = IsFor {
            /// Whose; empty: nobody said.
            owner: String,
            /// On whose account it comes; empty: nobody said.
            project: String,
        },
        /// What it may cost, and what reading from its sources costs. Told before it is asked for; otherwise all of them give for
        /// nothing.
        6 = Costs {
            /// Most that it may cost, in millionths of a dollar; none: anything.
            budget: Option<u64>,
            /// Those that cost something.
            prices: Vec<SourcePrice>,
        },
        /// Where it goes refuses what came. Told before what was refused is.
        7 = Refused {
            /// What the system said of what.
            said: String,
        },
        /// Where it goes keeps some of its files without something. Told before they have their names.
        8 = Unkept {
            /// How many without their mode.
            modes: u64,
            /// How many without their time.
            times: u64,
        },
        /// Some of its files are not where it goes, and the rest is. Told before it is told that all of it is there.
        9 = LeftOut {
            /// Those.
            left_out: LeftOut,
        },
        /// Some of its files come from one source each though several hold them. Told right after it is asked for.
        10 = FromOne {
            /// Which, why, and what would help.
            said: String,
        },
    }
}

record! {
    /// Files that are not where a stage-in goes, each for a reason of its own.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct LeftOut {
        /// How many.
        pub files: u64,
        /// Bytes of those.
        pub bytes: Bytes,
        /// A line for each of the first of them, with its name and what was found.
        pub named: Vec<String>,
    }
}

impl LeftOut {
    /// Lines that are kept of one request.
    pub const NAMED_MAX: usize = 100;
}

impl NearDepot {
    /// Most that one stage-in may wait on.
    pub const MOST: usize = 8;
    /// How long after a deadline it keeps what waits there: jobs may start late.
    pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
}

impl ArrivalSpec {
    /// How it is cut into chunks, where its sources hold this; none when it can't be.
    ///
    /// `holdings` is in the order of the byte stream, and empty where each source holds all of it.
    #[must_use]
    pub fn cut(&self, holdings: &[Holding]) -> Option<Cut> {
        if holdings.is_empty() {
            return Cut::new(&[self.bytes], self.chunk_size);
        }
        let sizes: Vec<Bytes> = holdings.iter().map(|holding| holding.bytes).collect();
        let cut = Cut::new(&sizes, self.chunk_size);
        cut.filter(|cut| cut.bytes() == self.bytes)
    }
}

record! {
    /// How a stage-in is cut into chunks: each holding for itself, so the last chunk of each may be short.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Cut {
        chunk_size: Bytes,
        /// Where each holding begins in the byte stream, and where the last one ends.
        starts: Vec<u64>,
        /// The first chunk of each, and the number of all.
        firsts: Vec<u32>,
    }
}

impl Cut {
    /// Chunks of a stage-in: a bit for each, twice, must fit into memory.
    const CHUNKS_MAX: u64 = 1 << 26;
    /// Holdings of a stage-in: each is weighed at every look.
    pub const HOLDINGS_MAX: usize = 256;

    /// Cuts holdings of these sizes; none when that makes too many chunks.
    #[must_use]
    pub fn new(sizes: &[Bytes], chunk_size: Bytes) -> Option<Self> {
        let is_cut = chunk_size > Bytes::ZERO || sizes.iter().all(|size| *size == Bytes::ZERO);
        if !is_cut || sizes.len() > Self::HOLDINGS_MAX {
            return None;
        }
        let (mut starts, mut firsts) = (vec![0u64], vec![0u32]);
        let (mut end, mut chunks) = (0u64, 0u64);
        for size in sizes {
            end = end.checked_add(size.get())?;
            if *size > Bytes::ZERO {
                chunks = chunks.checked_add(size.pieces(chunk_size))?;
            }
            if chunks > Self::CHUNKS_MAX {
                return None;
            }
            starts.push(end);
            firsts.push(u32::try_from(chunks).ok()?);
        }
        Some(Self {
            chunk_size,
            starts,
            firsts,
        })
    }

    /// Bytes of each chunk but the last of a holding.
    #[must_use]
    pub fn chunk_size(&self) -> Bytes {
        self.chunk_size
    }

    /// Number of holdings.
    #[must_use]
    pub fn holdings(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Size of the byte stream.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.starts.last().copied().unwrap_or(0))
    }

    /// The chunks of a holding.
    ///
    /// # Panics
    /// When there is no such holding.
    #[must_use]
    pub fn chunks_of(&self, holding: usize) -> Range<u32> {
        self.firsts[holding]..self.firsts[holding + 1]
    }

    /// The size of a holding.
    ///
    /// # Panics
    /// When there is no such holding.
    #[must_use]
    pub fn bytes_of(&self, holding: usize) -> Bytes {
        Bytes::new(self.starts[holding + 1] - self.starts[holding])
    }

    /// The place of the holding that a chunk is of; that of the last one for a chunk that is none.
    #[must_use]
    pub fn holding_of(&self, chunk: u32) -> usize {
        let after = self.firsts.partition_point(|first| *first <= chunk);
        after
            .saturating_sub(1)
            .min(self.holdings().saturating_sub(1))
    }

    /// Where a chunk lies in the byte stream; nowhere if it is none.
    #[must_use]
    pub fn range(&self, chunk: u32) -> Range<u64> {
        if chunk >= self.chunks() {
            return self.bytes().get()..self.bytes().get();
        }
        let holding = self.holding_of(chunk);
        let before = self.chunk_size.times((chunk - self.firsts[holding]).into());
        let (start, end) = (self.starts[holding], self.starts[holding + 1]);
        let from = start.saturating_add(before.get()).min(end);
        from..from.saturating_add(self.chunk_size.get()).min(end)
    }

    /// Size of a chunk: the chunk size, or what is left for the last one of a holding.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let range = self.range(chunk);
        Bytes::new(range.end - range.start)
    }

    /// Whether bytes from outside made a cut of these sizes.
    pub(crate) fn is_sound(&self) -> bool {
        let is_ordered = self.starts.is_sorted() && self.firsts.len() == self.starts.len();
        let sizes = self.starts.windows(2);
        let sizes = sizes.map(|pair| Bytes::new(pair[1].saturating_sub(pair[0])));
        let sizes: Vec<Bytes> = sizes.collect();
        is_ordered && Self::new(&sizes, self.chunk_size).as_ref() == Some(self)
    }
}

record! {
    /// What lies at some of a stage-in's sources only, and is forecast to be here last.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Binding {
        /// Names of those sources.
        pub names: Vec<String>,
        /// How much of it is missing.
        pub bytes: Bytes,
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
        /// All of it is where it was to go, and its source was removed.
        7 = Released,
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
            Self::Released => "released",
        }
    }

    /// Whether something is still to be done for it.
    #[must_use]
    pub const fn is_live(self) -> bool {
        match self {
            Self::Waiting | Self::Moving | Self::Landing => true,
            Self::Refused | Self::Arrived | Self::Cancelled | Self::Failed | Self::Released => {
                false
            }
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
        /// How much of the stage-in lies there.
        pub holds: Bytes,
        /// Of those, what no other source holds.
        pub alone: Bytes,
        /// What it is forecast to give, to all stage-ins together.
        pub rates: Quantiles,
        /// The depot near the centre that it is, on which the stage-in waits; none of any other source. What it holds
        /// is what lies there now and is not here yet.
        pub near: Option<DepotId>,
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
        /// Who lets it wait; none while it may go on.
        pub paused: Option<Pause>,
        /// Whether it goes the other way: from scratch to an address elsewhere.
        pub goes_out: bool,
        /// Whether its source is still to be removed, once all of it is there.
        pub releases: bool,
        /// Whether that stays for good, since it could not be removed.
        pub source_kept: bool,
        /// The request from whose depots it is read; none of what is read elsewhere.
        pub of: Option<RequestId>,
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
        /// Chunks it has.
        pub chunks: u32,
        /// What binds its finish, where that lies at some of its sources only.
        pub binding: Option<Binding>,
        /// Chunks that are here.
        pub chunks_here: u32,
        /// Bytes of those.
        pub bytes_here: Bytes,
        /// Chunks that were asked for a second time because the first source was late.
        pub duplicates: u32,
        /// Most that it may cost, in millionths of a dollar; none: anything.
        pub budget_micro_usd: Option<u64>,
        /// What was begun for it cost, in millionths of a dollar.
        pub spent_micro_usd: u64,
        /// What it is forecast to cost in all, in millionths of a dollar.
        pub cost_micro_usd: u64,
        /// Files of it that are not where it goes.
        pub left_out: LeftOut,
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
        /// How that is known.
        pub knowledge: Knowledge,
        /// When it was last measured; none when it never was.
        pub measured_at: Option<Timestamp>,
        /// Measurements taken so far.
        pub transfers: u64,
        /// How well it was forecast so far.
        pub score: Score,
    }
}
