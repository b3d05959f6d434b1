use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::{horizon::Schedule, tuner::Method};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    SourceId, Timestamp, record,
};

use super::{
    ArrivalSpec, CircuitTerms, DepotPrices, DepotTerms, Drain, Encode, Fault, FileAtFault,
    GiverEnd, Holding, LentTerms, News, Priority, RequestSpec, SpaceNews, StageInNews, Wishes,
};

record! {
    /// Everything that can happen to the mind.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Input {
        /// The driver starts (again). Whatever was in flight has an unknown end: the mind asks the
        /// depots what they hold and sends again only what they do not.
        0 = DriverStarted,
        /// A depot was added to the centre's books, or its facts were changed.
        1 = DepotAdded {
            /// The depot.
            depot: DepotId,
            /// The name people use.
            name: String,
            /// Most that we may keep there.
            capacity: Bytes,
            /// The rate its owner lends, when said.
            rate_max: Option<ByteRate>,
        },
        /// A depot was taken out of the books.
        2 = DepotRemoved { #[doc = "The depot."] depot: DepotId },
        /// A depot answered.
        3 = DepotUp {
            /// The depot.
            depot: DepotId,
            /// Space it still has for us, not counting what is in flight.
            free: Bytes,
            /// The rate it says it takes, when it says so.
            rate_max: Option<ByteRate>,
        },
        /// A depot did not answer.
        4 = DepotDown {
            /// The depot.
            depot: DepotId,
            /// Why, as far as can be told.
            fault: Fault,
        },
        /// What a depot really holds of a request's dataset, asked for by a command `Inventory`.
        5 = DepotInventory {
            /// The depot.
            depot: DepotId,
            /// The request.
            request: RequestId,
            /// Every fragment it holds with the right digest.
            held: Vec<(ChunkIndex, FragmentIndex)>,
        },
        /// A user submitted a stage-out; its dataset is sealed.
        6 = RequestSubmitted {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: RequestSpec,
        },
        /// A user no longer wants it.
        7 = RequestCancelled { #[doc = "Its number."] request: RequestId },
        /// A depot stored a fragment and checked its digest.
        8 = FragmentStored {
            /// For this request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it.
            fragment: FragmentIndex,
        },
        /// A send ended without the fragment being stored.
        9 = FragmentFailed {
            /// For this request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it.
            fragment: FragmentIndex,
            /// Why.
            fault: Fault,
        },
        /// A send was taken back before anything of it had left.
        134 = Recalled {
            #[doc = "For this request."] request: RequestId,
            #[doc = "To this depot."] depot: DepotId,
            #[doc = "This chunk."] chunk: ChunkIndex,
            #[doc = "This fragment of it."] fragment: FragmentIndex,
        },
        /// What a depot took over a window, measured on real sends, for all requests together.
        10 = Throughput {
            /// The depot.
            depot: DepotId,
            /// Bytes acknowledged by the network in the window.
            bytes: Bytes,
            /// Length of the window.
            window: Duration,
            /// Whether the window was never short of fragments to send: else the sample is only a
            /// lower bound (a censored sample: `docs/algorithms/bandwidth-forecast.md`).
            saturated: bool,
        },
        /// The source was removed from scratch, as commanded.
        11 = SourceReleased {
            /// The request.
            request: RequestId,
        },
        /// The source could not be removed; it stays.
        12 = SourceKept { #[doc = "The request."] request: RequestId, #[doc = "Why."] fault: Fault },
        /// The destination pulled and verified the whole dataset.
        13 = Delivered {
            /// The request.
            request: RequestId,
        },
        /// A user moved the deadline of a running request.
        14 = DeadlineMoved {
            /// The request.
            request: RequestId,
            /// The new deadline.
            deadline: Timestamp,
        },
        /// As [`Input::RequestSubmitted`], with an optimizer asked for by name; else it is the default one.
        15 = RequestSubmittedWith {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: RequestSpec,
            /// What chooses how many fragments go to a depot at once.
            optimizer: Method,
        },
        /// An owner said on which terms a depot is lent.
        16 = DepotLent {
            /// The depot.
            depot: DepotId,
            /// The terms.
            terms: DepotTerms,
        },
        /// Somebody said how many hops from the centre a depot lies, more near destinations. Without it, it is of level 1.
        56 = DepotLevelled {
            /// The depot.
            depot: DepotId,
            /// Its level, from 1.
            level: u8,
        },
        /// Whether a depot can send on what it still receives. Without it, it can't.
        115 = DepotFollows { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it can."] follows: bool },
        /// Whether a depot lies in a store, which neither sends nor takes anything by itself. Without it, it does not.
        139 = DepotStores { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it does."] stores: bool },
        /// Whether a depot can keep space for datasets. Without it, it can't.
        117 = DepotReserves { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it can."] reserves: bool },
        /// Something became known of a stage-in.
        127 = StageInTold {
            /// The stage-in.
            request: RequestId,
            /// What.
            news: StageInNews,
        },
        /// A depot was told to remove what it holds of a request.
        123 = Forgotten {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// Nothing is left there; else it did not answer or could not do it.
            done: bool,
        },
        /// What became of a command `ReserveSpace` or `ReleaseSpace`.
        118 = SpaceTold {
            #[doc = "For this request."] request: RequestId,
            #[doc = "At this depot."] depot: DepotId,
            #[doc = "What."] news: SpaceNews,
        },
        /// A depot is to be switched off, or no longer: nothing new goes there.
        120 = DepotDrained {
            /// The depot.
            depot: DepotId,
            /// What becomes of what it holds.
            drain: Drain,
            /// Whether the depot itself says so; else an operator does. It is drained while one of them wants it.
            is_own: bool,
        },
        /// A source of stage-ins was looked at and answered.
        64 = SourceFound {
            /// The source.
            source: SourceId,
            /// The name people use.
            name: String,
            /// The most it gives, when that is known.
            rate_max: Option<ByteRate>,
        },
        /// A user asked for a stage-in; its sources hold the same, and what that is was written down.
        65 = ArrivalAsked {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: ArrivalSpec,
        },
        /// As [`Input::ArrivalAsked`], of sources that hold different files.
        90 = ArrivalGathered {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: ArrivalSpec,
            /// What lies where, in the order of the byte stream.
            holdings: Vec<Holding>,
        },
        /// A chunk came from a source, was written, and its digest was noted durably.
        66 = ChunkArrived {
            /// For this stage-in.
            request: RequestId,
            /// From this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
        },
        /// A chunk asked of a source did not come, or could not be written.
        67 = ChunkMissed {
            /// For this stage-in.
            request: RequestId,
            /// From this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// Why. [`Fault::Full`]: there is no room for it here.
            fault: Fault,
        },
        /// What a source gave over a window, for all stage-ins together.
        68 = Inbound {
            /// The source.
            source: SourceId,
            /// Bytes that came in the window.
            bytes: Bytes,
            /// Length of the window.
            window: Duration,
            /// Whether the window was never short of chunks to fetch: else the sample is only a lower bound.
            saturated: bool,
        },
        /// It became known, or changed, when what a live stage-in brings is wanted: when a job will start, for example.
        122 = ArrivalMoved {
            /// The stage-in.
            request: RequestId,
            /// Before this it is in the way, and comes only as far as the deadline needs it.
            not_before: Timestamp,
            /// When all of it must be here.
            deadline: Timestamp,
        },
        /// What is really here of a stage-in, asked for by [`Command::Survey`](super::Command::Survey).
        69 = ArrivalSurveyed {
            /// The stage-in.
            request: RequestId,
            /// Every chunk that is here with its digest noted.
            chunks: Vec<ChunkIndex>,
        },
        /// The files of a stage-in have their names, as commanded.
        70 = Landed {
            /// The stage-in.
            request: RequestId,
        },
        /// They could not get them.
        71 = LandingFailed {
            /// The stage-in.
            request: RequestId,
            /// Why.
            fault: Fault,
        },
        /// How a [`Command::Probe`](super::Command::Probe) ended.
        32 = Probed {
            /// The depot.
            depot: DepotId,
            /// Bytes it sent in all.
            sent: Bytes,
            /// Bytes that arrived while it was averaged.
            bytes: Bytes,
            /// How long that was; zero when it failed.
            window: Duration,
            /// Whether it ended before it was averaged long enough: the path carries at least this.
            is_bound: bool,
        },
        /// How a [`Command::ProbeCrossing`](super::Command::ProbeCrossing) ended.
        112 = CrossingProbed {
            /// The depot that sent.
            from: DepotId,
            /// The one it sent to.
            to: DepotId,
            /// Bytes it sent in all.
            sent: Bytes,
            /// Bytes that arrived while it was averaged.
            bytes: Bytes,
            /// How long that was; zero when it failed.
            window: Duration,
            /// Whether it ended before it was averaged long enough: the path carries at least this.
            is_bound: bool,
            /// The round trip between them; none when it failed.
            round_trip: Option<Duration>,
        },
        /// The shortest round trip to a depot that was seen lately. Without it, nothing is known of how far it is.
        113 = DistanceTold {
            /// The depot.
            depot: DepotId,
            /// The round trip.
            round_trip: Duration,
        },
        /// A person asks for a probe of the path to a depot.
        33 = ProbeAsked { #[doc = "The depot."] depot: DepotId },
        /// A person asks for a probe of the path from one depot to another.
        114 = CrossingProbeAsked {
            /// The depot that is to send.
            from: DepotId,
            /// The one it is to send to.
            to: DepotId,
        },
        /// A user set, changed or took away the most that may be sent for a running request.
        73 = RateLimited {
            /// The request.
            request: RequestId,
            /// The new limit; none for no limit.
            rate_max: Option<ByteRate>,
        },
        /// A user gave a running request another priority.
        128 = PriorityMoved { #[doc = "The request."] request: RequestId, #[doc = "The new one."] priority: Priority },
        /// A user lets a running request wait: nothing of it is begun from now on.
        129 = Paused { #[doc = "The request."] request: RequestId, #[doc = "Who."] by: String },
        /// A user lets it go on.
        130 = Resumed { #[doc = "The request."] request: RequestId, #[doc = "Who."] by: String },
        /// How a [`Command::Solve`](super::Command::Solve) ended.
        80 = PlanSolved {
            /// The number of the question.
            number: u64,
            /// The plan; none when the problem was none.
            schedule: Option<Schedule>,
        },
        /// As [`Input::RequestAsked`], of a source that is going to be purged by somebody else.
        72 = RequestAskedBy {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: RequestSpec,
            /// What chooses how many fragments go to a depot at once.
            optimizer: Method,
            /// What is wished beyond that.
            wishes: Wishes,
            /// When the first file of the source is to be purged.
            purge_at: Timestamp,
        },
        /// It became known, or changed, when the source of a running request is to be purged.
        74 = PurgeMoved {
            /// The request.
            request: RequestId,
            /// When the first of its files is to be purged; none for never.
            purge_at: Option<Timestamp>,
        },
        /// A user said, changed or took away when a running request is wanted at its destinations.
        100 = DeliveryMoved {
            /// The request.
            request: RequestId,
            /// By when; none for any time.
            deliver_by: Option<Timestamp>,
        },
        /// How those did who sent fragments of a chunk to a destination that gathers it, whose end is said after this.
        84 = GatherTold {
            /// For this request.
            request: RequestId,
            /// The destination.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Each that was asked and ended.
            givers: Vec<GiverEnd>,
        },
        /// A depot did not begin to code and send on a chunk: nothing of it is stored by that.
        91 = ScatterFailed {
            /// For this request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Why. [`Fault::Other`]: it can't.
            fault: Fault,
        },
        /// How long a depot that coded a chunk took to send a fragment on, which is said to be stored after this.
        92 = PieceTold {
            /// For this request.
            request: RequestId,
            /// The depot that got it.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// From when its sender had it.
            span: Duration,
        },
        /// Somebody said where chunks are coded. Without it, at the centre.
        93 = EncodeChosen {
            /// Where.
            encode: Encode,
        },
        /// Somebody said what the centre's way out carries, or that nobody knows.
        94 = EgressTold { #[doc = "What; none where nobody knows."] rate: Option<ByteRate> },
        /// Rate can be reserved on a circuit, on these terms from now on.
        101 = CircuitOffered {
            /// The circuit.
            circuit: CircuitId,
            /// On which terms.
            terms: CircuitTerms,
        },
        /// Nothing more can be reserved on it; what is reserved stays.
        102 = CircuitWithdrawn { #[doc = "The circuit."] circuit: CircuitId },
        /// What became of a command `Reserve`, `Rearrange` or `GiveBack`, or of what was reserved by itself.
        103 = ReservationTold {
            /// The reservation.
            reservation: ReservationId,
            /// What.
            news: News,
        },
        /// These ways lead to a depot, by name, in the order in which they are wanted while nothing is known of them: the
        /// straight one last. Without it there is only that.
        110 = WaysFound {
            /// The depot.
            depot: DepotId,
            /// Their names.
            ways: Vec<String>,
        },
        /// Data for a depot goes this way by itself from now on: the one that was commanded does not open or broke, or
        /// opens again.
        111 = WayTold {
            /// The depot.
            depot: DepotId,
            /// Its place among the ways.
            way: u8,
        },
        /// As [`Input::PurgeMoved`], by a rule of the site.
        126 = PurgeForeseen {
            /// The request.
            request: RequestId,
            /// When the first of its files is to be purged; none for never.
            purge_at: Option<Timestamp>,
            /// Which file goes first, by which rule: for people.
            rule: String,
        },
        /// An owner said what a depot costs beyond its terms. Without it, nothing.
        125 = DepotPriced {
            /// The depot.
            depot: DepotId,
            /// What.
            prices: DepotPrices,
        },
        /// On which terms depots are lent for one request, which is asked for next.
        131 = LentTold { #[doc = "Its number."] request: RequestId, #[doc = "The terms, one of a depot."] terms: Vec<LentTerms> },
        /// How much the machine of a depot has to do, in thousandths of a core's for each core; none where it does not say. Without
        /// it, nobody knows.
        132 = LoadTold { #[doc = "The depot."] depot: DepotId, #[doc = "Its load."] load_permille: Option<u32> },
        /// An owner lends a depot only while its load is less than this, in thousandths; none whatever it is, as without it.
        133 = LoadBounded { #[doc = "The depot."] depot: DepotId, #[doc = "The load."] load_max_permille: Option<u32> },
        /// A file of the source is at fault, and what was found of which: told before a send that ended with it.
        135 = SourceFileTold { #[doc = "Its number."] request: RequestId, #[doc = "How."] fault: Fault, #[doc = "What was found."] what: String },
        /// A source file can't be removed, or is another one and stays. Told before it is told that the source was kept.
        140 = SourceFileKept { #[doc = "Its number."] request: RequestId, #[doc = "What was found."] what: String },
        /// Depots need not keep any longer what somebody pulled all of.
        136 = ForgetAsked { #[doc = "Its number."] request: RequestId },
        /// A file of a source changed, vanished or can't be read: told before the send that met it is taken back.
        137 = FileAtFault { #[doc = "Of this request."] request: RequestId, #[doc = "Which, and how."] file: FileAtFault },
        /// A chunk with something of a file that was left out was read again, and is another one now. Told before that send is taken back.
        138 = ChunkRenewed { #[doc = "Of this request."] request: RequestId, #[doc = "The chunk."] chunk: ChunkIndex },
        /// As [`Input::RequestAsked`], with depots that must hold their share of every chunk.
        124 = RequestPinned {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: RequestSpec,
            /// What chooses how many fragments go to a depot at once.
            optimizer: Method,
            /// What is wished beyond that.
            wishes: Wishes,
            /// When the first file of the source is to be purged; none where nobody said.
            purge_at: Option<Timestamp>,
            /// Those depots.
            pinned: Vec<DepotId>,
        },
        /// As [`Input::RequestSubmittedWith`], with what else is wished; the other two wish nothing.
        48 = RequestAsked {
            /// Its number.
            request: RequestId,
            /// What is wanted.
            spec: RequestSpec,
            /// What chooses how many fragments go to a depot at once.
            optimizer: Method,
            /// What is wished beyond that.
            wishes: Wishes,
        },
    }
}
