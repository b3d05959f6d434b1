use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::{horizon::Schedule, tuner::Method};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    SourceId, Timestamp, record,
};

use crate::contract::{
    ArrivalSpec, CircuitTerms, DepotPrices, DepotTerms, Drain, Encode, Fault, FileAtFault,
    GiverEnd, Holding, LentTerms, News, Priority, RequestSpec, SpaceNews, StageInNews, Wishes,
};

record! {
    /// Inputs of the mind.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Input {
        /// The driver starts (again), and the end of all transfers is unknown. The mind asks the
        /// depots for their inventory and sends again only what they lack.
        0 = DriverStarted,
        /// A depot was registered at the centre, or its facts changed.
        1 = DepotAdded {
            /// The depot.
            depot: DepotId,
            /// Name shown to people.
            name: String,
            /// Space lent to us.
            capacity: Bytes,
            /// Rate lent by the owner, if given.
            rate_max: Option<ByteRate>,
        },
        /// A depot's registration was removed.
        2 = DepotRemoved { #[doc = "The depot."] depot: DepotId },
        /// A depot answered.
        3 = DepotUp {
            /// The depot.
            depot: DepotId,
            /// Free space for us, not counting what is in flight.
            free: Bytes,
            /// Rate the depot reports, if any.
            rate_max: Option<ByteRate>,
        },
        /// A depot did not answer.
        4 = DepotDown {
            /// The depot.
            depot: DepotId,
            /// Reason, as far as known.
            fault: Fault,
        },
        /// Inventory of a request's dataset at a depot: answer to `Inventory`.
        5 = DepotInventory {
            /// The depot.
            depot: DepotId,
            /// The request.
            request: RequestId,
            /// Fragments stored with the right digest.
            held: Vec<(ChunkIndex, FragmentIndex)>,
        },
        /// A user submitted a stage-out; its dataset is sealed.
        6 = RequestSubmitted {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: RequestSpec,
        },
        /// A user cancelled the request.
        7 = RequestCancelled { #[doc = "Its number."] request: RequestId },
        /// A depot stored a fragment and checked its digest.
        8 = FragmentStored {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk.
            fragment: FragmentIndex,
        },
        /// A send ended without the fragment being stored.
        9 = FragmentFailed {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk.
            fragment: FragmentIndex,
            /// Reason.
            fault: Fault,
        },
        /// A send was withdrawn before anything of it had left.
        134 = Recalled {
            #[doc = "For this request."] request: RequestId,
            #[doc = "To this depot."] depot: DepotId,
            #[doc = "This chunk."] chunk: ChunkIndex,
            #[doc = "This fragment of it."] fragment: FragmentIndex,
        },
        /// Throughput of a depot over a window, measured on real sends of all requests.
        10 = Throughput {
            /// The depot.
            depot: DepotId,
            /// Bytes acknowledged by the network in the window.
            bytes: Bytes,
            /// Length of the window.
            window: Duration,
            /// True if the window never lacked fragments to send: else the sample is only a lower
            /// bound (a censored sample: `docs/algorithms/bandwidth-forecast.md`).
            saturated: bool,
        },
        /// The source was removed from scratch, as commanded.
        11 = SourceReleased {
            /// The request.
            request: RequestId,
        },
        /// The source could not be removed; it stays.
        12 = SourceKept { #[doc = "The request."] request: RequestId, #[doc = "Why."] fault: Fault },
        /// Somebody pulled and verified the whole dataset.
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
        /// Like [`Input::RequestSubmitted`], with a named optimizer instead of the default.
        15 = RequestSubmittedWith {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: RequestSpec,
            /// Optimizer of the number of fragments in flight to a depot.
            optimizer: Method,
        },
        /// An owner set the terms of a depot.
        16 = DepotLent {
            /// The depot.
            depot: DepotId,
            /// The terms.
            terms: DepotTerms,
        },
        /// A depot's hops from the centre, set by an operator. Without it, the level is 1.
        56 = DepotLevelled { #[doc = "The depot."] depot: DepotId, #[doc = "Its level, from 1."] level: u8 },
        /// True if a depot can forward what it still receives. Without it, it can't.
        115 = DepotFollows { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it can."] follows: bool },
        /// True if a depot lies in a store, which sends and gathers nothing. Default: false.
        139 = DepotStores { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it does."] stores: bool },
        /// True if a depot can reserve space for datasets. Without it, it can't.
        117 = DepotReserves { #[doc = "The depot."] depot: DepotId, #[doc = "Whether it can."] reserves: bool },
        /// News of a stage-in.
        127 = StageInTold {
            /// The stage-in.
            request: RequestId,
            /// The news.
            news: StageInNews,
        },
        /// A depot was asked to remove its data of a request.
        123 = Forgotten {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// True if nothing is left; false if the depot did not answer or failed.
            done: bool,
        },
        /// Result of a command `ReserveSpace` or `ReleaseSpace`.
        118 = SpaceTold {
            #[doc = "For this request."] request: RequestId,
            #[doc = "At this depot."] depot: DepotId,
            #[doc = "What."] news: SpaceNews,
        },
        /// A depot starts or stops draining: nothing new goes there while it drains.
        120 = DepotDrained {
            /// The depot.
            depot: DepotId,
            /// Treatment of stored data.
            drain: Drain,
            /// True if the depot reports it, else an operator. Either one suffices.
            is_own: bool,
        },
        /// A source of stage-ins answered.
        64 = SourceFound {
            /// The source.
            source: SourceId,
            /// Name shown to people.
            name: String,
            /// Highest rate of the source, if known.
            rate_max: Option<ByteRate>,
        },
        /// A user submitted a stage-in; its sources agree, and their listing was recorded.
        65 = ArrivalAsked {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: ArrivalSpec,
        },
        /// Like [`Input::ArrivalAsked`], for sources that hold different files.
        90 = ArrivalGathered {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: ArrivalSpec,
            /// Holdings, in the order of the byte stream.
            holdings: Vec<Holding>,
        },
        /// A chunk came from a source and was written, and its digest was noted durably.
        66 = ChunkArrived {
            /// The stage-in.
            request: RequestId,
            /// The source.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
        },
        /// A chunk did not come from its source, or could not be written.
        67 = ChunkMissed {
            /// The stage-in.
            request: RequestId,
            /// The source.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Reason. [`Fault::Full`]: there is no room for it here.
            fault: Fault,
        },
        /// Throughput of a source over a window, for all stage-ins together.
        68 = Inbound {
            /// The source.
            source: SourceId,
            /// Bytes that came in the window.
            bytes: Bytes,
            /// Length of the window.
            window: Duration,
            /// True if the window never lacked chunks to fetch: else the sample is a lower bound.
            saturated: bool,
        },
        /// The wanted time of a live stage-in became known or changed, e.g. by a job's start.
        122 = ArrivalMoved {
            /// The stage-in.
            request: RequestId,
            /// Earliest welcome time. Before it, data comes only as the deadline needs it.
            not_before: Timestamp,
            /// Deadline: all of it must be here.
            deadline: Timestamp,
        },
        /// Chunks of a stage-in that are here: answer to
        /// [`Command::Survey`](super::Command::Survey).
        69 = ArrivalSurveyed {
            /// The stage-in.
            request: RequestId,
            /// Chunks that are here with their digests noted.
            chunks: Vec<ChunkIndex>,
        },
        /// The files of a stage-in got their names, as commanded.
        70 = Landed {
            /// The stage-in.
            request: RequestId,
        },
        /// The files of a stage-in could not get their names.
        71 = LandingFailed {
            /// The stage-in.
            request: RequestId,
            /// Reason.
            fault: Fault,
        },
        /// Result of a [`Command::Probe`](super::Command::Probe).
        32 = Probed {
            /// The depot.
            depot: DepotId,
            /// Bytes sent in all.
            sent: Bytes,
            /// Bytes that arrived during the averaging.
            bytes: Bytes,
            /// Length of the averaging; zero on failure.
            window: Duration,
            /// True if it ended before enough averaging: the path carries at least this.
            is_bound: bool,
        },
        /// Result of a [`Command::ProbeCrossing`](super::Command::ProbeCrossing).
        112 = CrossingProbed {
            /// Sending depot.
            from: DepotId,
            /// Receiving depot.
            to: DepotId,
            /// Bytes sent in all.
            sent: Bytes,
            /// Bytes that arrived during the averaging.
            bytes: Bytes,
            /// Length of the averaging; zero on failure.
            window: Duration,
            /// True if it ended before enough averaging: the path carries at least this.
            is_bound: bool,
            /// Round trip between the depots; none on failure.
            round_trip: Option<Duration>,
        },
        /// Shortest recent round trip to a depot. Without it, its distance is unknown.
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
            /// Sending depot.
            from: DepotId,
            /// Receiving depot.
            to: DepotId,
        },
        /// A user set, changed or removed the rate limit of a running request.
        73 = RateLimited {
            /// The request.
            request: RequestId,
            /// The new limit; none for no limit.
            rate_max: Option<ByteRate>,
        },
        /// A user gave a running request another priority.
        128 = PriorityMoved { #[doc = "The request."] request: RequestId, #[doc = "The new one."] priority: Priority },
        /// A user paused a running request: nothing of it is begun from now on.
        129 = Paused { #[doc = "The request."] request: RequestId, #[doc = "Who."] by: String },
        /// A user resumed a paused request.
        130 = Resumed { #[doc = "The request."] request: RequestId, #[doc = "Who."] by: String },
        /// Result of a [`Command::Solve`](super::Command::Solve).
        80 = PlanSolved {
            /// Number of the question.
            number: u64,
            /// The plan; none for an invalid problem.
            schedule: Option<Schedule>,
        },
        /// Like [`Input::RequestAsked`], for a source that somebody else will purge.
        72 = RequestAskedBy {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: RequestSpec,
            /// Optimizer of the number of fragments in flight to a depot.
            optimizer: Method,
            /// Further wishes.
            wishes: Wishes,
            /// Purge time of the first file of the source.
            purge_at: Timestamp,
        },
        /// The purge time of a running request's source became known or changed.
        74 = PurgeMoved {
            /// The request.
            request: RequestId,
            /// Purge time of the first file; none for never.
            purge_at: Option<Timestamp>,
        },
        /// A user set, changed or removed the deliver-by time of a running request.
        100 = DeliveryMoved {
            /// The request.
            request: RequestId,
            /// Deliver-by time; none for any time.
            deliver_by: Option<Timestamp>,
        },
        /// Results of the senders of a gather, reported before the end of the gather.
        84 = GatherTold {
            /// The request.
            request: RequestId,
            /// The destination.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Senders that were asked and ended.
            givers: Vec<GiverEnd>,
        },
        /// A depot did not begin a scatter: nothing is stored by it.
        91 = ScatterFailed {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Reason. [`Fault::Other`]: the depot is not able to.
            fault: Fault,
        },
        /// Duration of a forward by an encoding depot, reported before the fragment is stored.
        92 = PieceTold {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Time since the sender had the fragment.
            span: Duration,
        },
        /// An operator set the place of encoding. Without it, the centre encodes.
        93 = EncodeChosen {
            /// Place of encoding.
            encode: Encode,
        },
        /// The rate of the centre's egress was set, or set to unknown.
        94 = EgressTold { #[doc = "What; none where nobody knows."] rate: Option<ByteRate> },
        /// Rate can be reserved on a circuit, on these terms from now on.
        101 = CircuitOffered {
            /// The circuit.
            circuit: CircuitId,
            /// Terms of the circuit.
            terms: CircuitTerms,
        },
        /// No more rate can be reserved on the circuit; reservations stay.
        102 = CircuitWithdrawn { #[doc = "The circuit."] circuit: CircuitId },
        /// Result of `Reserve`, `Rearrange` or `GiveBack`, or spontaneous news of a reservation.
        103 = ReservationTold {
            /// The reservation.
            reservation: ReservationId,
            /// The news.
            news: News,
        },
        /// Ways to a depot, by name, in their order of preference while unmeasured: the straight
        /// one last. Without it, that is the only one.
        110 = WaysFound {
            /// The depot.
            depot: DepotId,
            /// Names of the ways.
            ways: Vec<String>,
        },
        /// Data for a depot takes this way by itself from now on: the commanded way does not open
        /// or broke, or opens again.
        111 = WayTold {
            /// The depot.
            depot: DepotId,
            /// Place among the depot's ways.
            way: u8,
        },
        /// Like [`Input::PurgeMoved`], by a rule of the site.
        126 = PurgeForeseen {
            /// The request.
            request: RequestId,
            /// Purge time of the first file; none for never.
            purge_at: Option<Timestamp>,
            /// First file to be purged and the rule, for people.
            rule: String,
        },
        /// An owner set prices of a depot beyond its terms. Without it, there are none.
        125 = DepotPriced {
            /// The depot.
            depot: DepotId,
            /// The prices.
            prices: DepotPrices,
        },
        /// Terms of depots lent to the next submitted request alone.
        131 = LentTold { #[doc = "Its number."] request: RequestId, #[doc = "The terms, one of a depot."] terms: Vec<LentTerms> },
        /// Load of a depot's machine, in thousandths of its cores. None, or no report: unknown.
        132 = LoadTold { #[doc = "The depot."] depot: DepotId, #[doc = "Its load."] load_permille: Option<u32> },
        /// Load, in thousandths, from which on a depot is not lent. None or not set: no bound.
        133 = LoadBounded { #[doc = "The depot."] depot: DepotId, #[doc = "The load."] load_max_permille: Option<u32> },
        /// A source file is at fault. Reported before a send that ended with it.
        135 = SourceFileTold { #[doc = "Its number."] request: RequestId, #[doc = "How."] fault: Fault, #[doc = "What was found."] what: String },
        /// A source file can't be removed, or is another one and stays. Precedes the report that the
        /// source was kept.
        140 = SourceFileKept { #[doc = "Its number."] request: RequestId, #[doc = "What was found."] what: String },
        /// A user pulled everything: depots need not keep it any longer.
        136 = ForgetAsked { #[doc = "Its number."] request: RequestId },
        /// A source file changed, vanished or is unreadable. Precedes the send's withdrawal.
        137 = FileAtFault { #[doc = "Of this request."] request: RequestId, #[doc = "Which, and how."] file: FileAtFault },
        /// A chunk with a left-out file was read again and differs now. Precedes the withdrawal.
        138 = ChunkRenewed { #[doc = "Of this request."] request: RequestId, #[doc = "The chunk."] chunk: ChunkIndex },
        /// A depot belongs to an owner: only that owner's requests use it. Without it, all do.
        141 = DepotOwned { #[doc = "The depot."] depot: DepotId, #[doc = "Its owner."] owner: String },
        /// Like [`Input::RequestAsked`], with pinned depots.
        124 = RequestPinned {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: RequestSpec,
            /// Optimizer of the number of fragments in flight to a depot.
            optimizer: Method,
            /// Further wishes.
            wishes: Wishes,
            /// Purge time of the first file of the source; none if unknown.
            purge_at: Option<Timestamp>,
            /// Depots that must hold their share of every chunk.
            pinned: Vec<DepotId>,
        },
        /// Like [`Input::RequestSubmittedWith`], with wishes; the other two have none.
        48 = RequestAsked {
            /// Number of the request.
            request: RequestId,
            /// Specification of the request.
            spec: RequestSpec,
            /// Optimizer of the number of fragments in flight to a depot.
            optimizer: Method,
            /// Further wishes.
            wishes: Wishes,
        },
    }
}
