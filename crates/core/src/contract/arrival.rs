use alloc::{string::String, vec, vec::Vec};
use core::{ops::Range, time::Duration};
use posthaste_forecast::{Quantiles, Score};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, DepotId, RequestId, SourceId, Timestamp, record,
};

use crate::contract::{DepotState, Fault, Forecast, Knowledge, Pause, Priority, SourcePrice};

record! {
    /// Specification of a stage-in: its sources, its size and its deadline at the centre.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArrivalSpec {
        /// Size of the byte stream of all its files.
        pub bytes: Bytes,
        /// Files of the stage-in.
        pub files: u64,
        /// Size of every chunk but the last.
        pub chunk_size: Bytes,
        /// Deadline: all of it must be at the centre.
        pub deadline: Timestamp,
        /// Earliest welcome time. Before it, data comes only as far as the deadline needs it.
        pub not_before: Option<Timestamp>,
        /// Sources to read from.
        pub sources: Vec<SourceId>,
        /// Priority among requests that can't all be on time.
        pub priority: Priority,
        /// Limit on the rate of its reads.
        pub rate_max: Option<ByteRate>,
        /// Accepts the stage-in even if the deadline can't be met, and does what is possible.
        pub best_effort: bool,
    }
}

record! {
    /// Files of a stage-in that lie at the same sources. They form one run of the byte stream, in
    /// chunks of their own, so that each named source holds every byte of each chunk.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Holding {
        /// Bytes of the files.
        pub bytes: Bytes,
        /// Sources that hold the files, all of them sources of the stage-in.
        pub sources: Vec<SourceId>,
    }
}

record! {
    /// A depot near the centre, on which a stage-in may wait.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct NearDepot {
        /// Depot that stores the chunks.
        pub depot: DepotId,
        /// Source under which the depot is read.
        pub source: SourceId,
    }
}

record! {
    /// News of a stage-in: its direction, and the state of depots near the centre on which it may
    /// wait.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum StageInNews {
        /// The stage-in may wait at these depots.
        0 = MayWait {
            /// The depots, with the sources under which they are read.
            near: Vec<NearDepot>,
        },
        /// A near depot stored a chunk and verified its digest, which is noted.
        1 = Stored {
            /// Source the chunk was read from.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
            /// The depot.
            depot: DepotId,
        },
        /// A near depot did not store a chunk that the source gave.
        2 = Failed {
            /// Source the chunk was read from.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
            /// The depot.
            depot: DepotId,
            /// Reason.
            fault: Fault,
        },
        /// The stage-in goes from scratch to an address elsewhere. Reported before it is submitted.
        3 = GoesOut {
            /// True if the source is removed from scratch once all of it is delivered.
            release: bool,
        },
        /// The stage-in goes to an address elsewhere, read from the depots of a request once that
        /// is safe. Reported before either is submitted.
        4 = GoesOn {
            /// The request.
            of: RequestId,
        },
        /// Owner and project of the stage-in, for even sharing among what can't be on time.
        /// Reported right after submission; without it, the stage-in has no owner.
        5 = IsFor {
            /// Owner; empty if not given.
            owner: String,
            /// Project that pays; empty if not given.
            project: String,
        },
        /// Budget, and prices of reading from the sources. Reported before submission; without it,
        /// all sources are free.
        6 = Costs {
            /// Budget, in millionths of a dollar; none means unlimited.
            budget: Option<u64>,
            /// Sources that have a price.
            prices: Vec<SourcePrice>,
        },
        /// The destination refuses what came. Reported before the chunk that it refused.
        7 = Refused {
            /// Error of the system and the name it is about.
            said: String,
        },
        /// The destination can't store some attributes of files. Reported before the files get
        /// their names.
        8 = Unkept {
            /// Files without their mode.
            modes: u64,
            /// Files without their modification time.
            times: u64,
        },
        /// Some files are missing at the destination, and the rest is there. Reported before the
        /// arrival.
        9 = LeftOut {
            /// The missing files.
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
    /// Files missing at the destination of a stage-in, each for its own reason.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct LeftOut {
        /// Number of files.
        pub files: u64,
        /// Bytes of the files.
        pub bytes: Bytes,
        /// Name and cause for each of the first [`LeftOut::NAMED_MAX`] files, one line each.
        pub named: Vec<String>,
    }
}

impl LeftOut {
    /// Lines kept for one request.
    pub const NAMED_MAX: usize = 100;
}

impl NearDepot {
    /// Most near depots for one stage-in.
    pub const MOST: usize = 8;
    /// Time that near depots keep data after the deadline: jobs may start late.
    pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
}

impl ArrivalSpec {
    /// Cuts the stage-in into chunks; none if its sizes do not fit `holdings`.
    ///
    /// `holdings` is in the order of the byte stream, and empty if each source holds all of it.
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
    /// Division of a stage-in into chunks. Each holding is cut by itself, so its last chunk may be
    /// short.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Cut {
        chunk_size: Bytes,
        /// Offset of each holding in the byte stream, and the end of the last one.
        starts: Vec<u64>,
        /// First chunk of each holding, and the number of all chunks.
        firsts: Vec<u32>,
    }
}

impl Cut {
    /// Most chunks of a stage-in: two bits for each must fit into memory.
    const CHUNKS_MAX: u64 = 1 << 26;
    /// Most holdings of a stage-in: each look weighs all of them.
    pub const HOLDINGS_MAX: usize = 256;

    /// Cuts holdings of these sizes; none if there are too many chunks.
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

    /// Returns the size of each chunk but the last of a holding.
    #[must_use]
    pub fn chunk_size(&self) -> Bytes {
        self.chunk_size
    }

    /// Returns the number of holdings.
    #[must_use]
    pub fn holdings(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Returns the number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Returns the size of the byte stream.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::new(self.starts.last().copied().unwrap_or(0))
    }

    /// Returns the chunks of a holding.
    ///
    /// # Panics
    /// Panics if there is no such holding.
    #[must_use]
    pub fn chunks_of(&self, holding: usize) -> Range<u32> {
        self.firsts[holding]..self.firsts[holding + 1]
    }

    /// Returns the size of a holding.
    ///
    /// # Panics
    /// Panics if there is no such holding.
    #[must_use]
    pub fn bytes_of(&self, holding: usize) -> Bytes {
        Bytes::new(self.starts[holding + 1] - self.starts[holding])
    }

    /// Returns the place of the holding of a chunk; of the last holding for a chunk out of range.
    #[must_use]
    pub fn holding_of(&self, chunk: u32) -> usize {
        let after = self.firsts.partition_point(|first| *first <= chunk);
        after
            .saturating_sub(1)
            .min(self.holdings().saturating_sub(1))
    }

    /// Returns the range of a chunk in the byte stream; an empty range for a chunk out of range.
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

    /// Returns the size of a chunk: the chunk size, or the remainder for the last of a holding.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> Bytes {
        let range = self.range(chunk);
        Bytes::new(range.end - range.start)
    }

    /// Returns whether a cut from outside data is consistent.
    pub(crate) fn is_sound(&self) -> bool {
        let is_ordered = self.starts.is_sorted() && self.firsts.len() == self.starts.len();
        let sizes = self.starts.windows(2);
        let sizes = sizes.map(|pair| Bytes::new(pair[1].saturating_sub(pair[0])));
        let sizes: Vec<Bytes> = sizes.collect();
        is_ordered && Self::new(&sizes, self.chunk_size).as_ref() == Some(self)
    }
}

record! {
    /// Data that only some sources of a stage-in hold, and that is forecast to arrive last.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Binding {
        /// Names of the sources.
        pub names: Vec<String>,
        /// Bytes still missing.
        pub bytes: Bytes,
    }
}

record! {
    /// State of a stage-in.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ArrivalState {
        /// Rejected.
        0 = Refused,
        /// Accepted; nothing was fetched yet.
        1 = Waiting,
        /// Chunks are being fetched.
        2 = Moving,
        /// Every chunk is here; the files get their names.
        3 = Landing,
        /// All of it is here.
        4 = Arrived,
        /// Cancelled by a user.
        5 = Cancelled,
        /// Unable to go on; nothing of it is here.
        6 = Failed,
        /// Delivered in full, and its source was removed.
        7 = Released,
    }
}

impl ArrivalState {
    /// Returns the name shown to people and programs.
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

    /// Returns whether work remains for the stage-in.
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
    /// Share of one source in one stage-in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SourceShareView {
        /// The source.
        pub source: SourceId,
        /// Name shown to people.
        pub name: String,
        /// State.
        pub state: DepotState,
        /// True if the source lost what it held: this stage-in reads no more from it.
        pub is_gone: bool,
        /// Chunks that came from the source first.
        pub arrived: u32,
        /// Bytes of those chunks.
        pub bytes: Bytes,
        /// Chunks in flight from the source.
        pub in_flight: u32,
        /// Bytes of the stage-in that the source holds.
        pub holds: Bytes,
        /// Bytes that no other source holds.
        pub alone: Bytes,
        /// Forecast rate for all stage-ins together.
        pub rates: Quantiles,
        /// Near depot that this source stands for; none for any other source. What it `holds` is
        /// what lies there now and is not here yet.
        pub near: Option<DepotId>,
    }
}

record! {
    /// State of a stage-in, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArrivalView {
        /// The request.
        pub request: RequestId,
        /// Specification of the stage-in.
        pub spec: ArrivalSpec,
        /// State.
        pub state: ArrivalState,
        /// Pause and its user; none while the stage-in may go on.
        pub paused: Option<Pause>,
        /// True if it goes from scratch to an address elsewhere.
        pub goes_out: bool,
        /// True if its source is still to be removed after delivery.
        pub releases: bool,
        /// True if its source stays for good because its removal failed.
        pub source_kept: bool,
        /// Request whose depots it is read from; none if it is read elsewhere.
        pub of: Option<RequestId>,
        /// True if the deadline is in danger.
        pub at_risk: bool,
        /// True if the deadline passed before the arrival.
        pub missed: bool,
        /// Time of submission.
        pub submitted: Timestamp,
        /// Latest start that still meets the deadline with its margin; none once it is over or
        /// without such a moment.
        pub begin_by: Option<Timestamp>,
        /// Time of the first fetch.
        pub begun_at: Option<Timestamp>,
        /// Time of arrival of all of it.
        pub arrived_at: Option<Timestamp>,
        /// Forecast finish; none after the arrival, or while no source answers.
        pub finish: Option<Forecast>,
        /// Chunks of the stage-in.
        pub chunks: u32,
        /// Data that determines the finish, if only some sources hold it.
        pub binding: Option<Binding>,
        /// Chunks that are here.
        pub chunks_here: u32,
        /// Bytes of those chunks.
        pub bytes_here: Bytes,
        /// Chunks requested a second time because the first source was late.
        pub duplicates: u32,
        /// Budget, in millionths of a dollar; none means unlimited.
        pub budget_micro_usd: Option<u64>,
        /// Cost of what was begun for it, in millionths of a dollar.
        pub spent_micro_usd: u64,
        /// Forecast of its total cost, in millionths of a dollar.
        pub cost_micro_usd: u64,
        /// Files missing at the destination.
        pub left_out: LeftOut,
        /// Share of each source, in the user's order.
        pub shares: Vec<SourceShareView>,
    }
}

record! {
    /// State of a source, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SourceView {
        /// The source.
        pub source: SourceId,
        /// Name shown to people.
        pub name: String,
        /// State.
        pub state: DepotState,
        /// Forecast rate.
        pub rates: Quantiles,
        /// Origin of the forecast.
        pub knowledge: Knowledge,
        /// Time of the last measurement; none without one.
        pub measured_at: Option<Timestamp>,
        /// Measurements so far.
        pub transfers: u64,
        /// Accuracy of the forecasts so far.
        pub score: Score,
    }
}
