use alloc::vec::Vec;
use posthaste_plan::horizon::{Effort, Problem};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    SourceId, Timestamp, record,
};

use crate::contract::Reason;

record! {
    /// Commands of the mind. The driver answers each with an input.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Command {
        /// Reads the chunk, encodes it and sends this fragment. Answered by `FragmentStored` or
        /// `FragmentFailed`.
        0 = Send {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk; [`FragmentIndex::WHOLE`] for the chunk itself.
            fragment: FragmentIndex,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Withdraws a send that has not started. Answered by `Recalled` on success; otherwise the
        /// send goes on and is answered as usual.
        68 = Recall {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk.
            fragment: FragmentIndex,
            /// Reason.
            reason: Reason,
        },
        /// Stops every send of the request to the depot. Each unfinished one ends in
        /// `FragmentFailed` or without an answer: the mind no longer counts on them.
        1 = Abandon {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            depot: DepotId,
            /// Reason.
            reason: Reason,
        },
        /// Asks the depot for its inventory of the dataset. With `Reason::AllSafe` the source is
        /// removed by the answer: the depot reads what it holds. Answered by `DepotInventory` or
        /// `DepotDown`.
        2 = Inventory {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// Reason.
            reason: Reason,
        },
        /// Removes the source from scratch: the dataset is safe. Answered by `SourceReleased` or
        /// `SourceKept`.
        3 = Release {
            /// The request.
            request: RequestId,
            /// Reason.
            reason: Reason,
        },
        /// Leaves a file out of the dataset. Its bytes are zeros from now on, a pull creates no
        /// file for them, and its source is never removed. Not answered.
        69 = LeaveOut {
            /// The request.
            request: RequestId,
            /// Place in the list of files.
            file: u64,
            /// Reason.
            reason: Reason,
        },
        /// Adopts the content of the chunk's last read: earlier fragments no longer count. Not
        /// answered.
        70 = Renew {
            /// The request.
            request: RequestId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Reason.
            reason: Reason,
        },
        /// Deletes the dataset's fragments at the depot. Answered by `Forgotten`. Best effort if
        /// the request was cancelled or failed: the depot's own expiry deletes them in the end.
        4 = Forget {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// Reason.
            reason: Reason,
        },
        /// Makes a depot send a fragment that it holds to another depot. Answered, for the
        /// receiving depot, by `FragmentStored` or `FragmentFailed`. A fault of the source means
        /// that the sender does not hold the fragment.
        32 = Forward {
            /// The request.
            request: RequestId,
            /// Sending depot.
            from: DepotId,
            /// Receiving depot.
            to: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk.
            fragment: FragmentIndex,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Makes a depot send a fragment on while it still arrives from the centre. Answered as
        /// `Forward`, never before the send that it follows. If that send fails or is abandoned,
        /// the answer is `FragmentFailed` with the source vanished.
        59 = Follow {
            /// The request.
            request: RequestId,
            /// Sending depot, to which this fragment is in flight.
            from: DepotId,
            /// Receiving depot.
            to: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk.
            fragment: FragmentIndex,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Makes a destination gather fragments of a chunk, rebuild the chunk and keep it whole.
        /// Answered, for the destination and the whole chunk, by `FragmentStored` or
        /// `FragmentFailed`. A `GatherTold` precedes that if something is known of the senders.
        50 = Gather {
            /// The request.
            request: RequestId,
            /// Receiving destination.
            to: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Senders, each with a different fragment: as many as the code needs, fastest first,
            /// then some in reserve.
            from: Vec<(DepotId, FragmentIndex)>,
            /// Reason for these senders and this moment.
            reason: Reason,
        },
        /// Makes a depot gather fragments of a chunk, rebuild this one and keep it alone. Answered
        /// as `Gather`, for this fragment.
        66 = Mend {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            to: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment of the chunk that lies nowhere.
            fragment: FragmentIndex,
            /// Senders, each with a different fragment: as many as the code needs, fastest first,
            /// then some in reserve.
            from: Vec<(DepotId, FragmentIndex)>,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Reads the chunk and sends it once, whole, to a depot that encodes it, keeps one fragment
        /// and forwards the others. Answered for each fragment by `FragmentStored` or
        /// `FragmentFailed`, after a `PieceTold` if it was forwarded. If nothing was begun,
        /// `ScatterFailed` is the one answer.
        51 = Scatter {
            /// The request.
            request: RequestId,
            /// Receiving depot.
            depot: DepotId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Fragment that the depot keeps.
            fragment: FragmentIndex,
            /// Receivers of the other fragments.
            to: Vec<(DepotId, FragmentIndex)>,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Reads the chunk from the source, writes it to its place and notes its digest. Answered
        /// by `ChunkArrived` or `ChunkMissed`.
        40 = Fetch {
            /// The stage-in.
            request: RequestId,
            /// The source.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Reason for this source and this moment.
            reason: Reason,
        },
        /// Reads the chunk from the source, notes its digest and stores it whole at a depot near
        /// the centre for a later fetch. Answered by `StageInTold`, or by `ChunkMissed` if the
        /// source did not give it.
        67 = Prestage {
            /// The stage-in.
            request: RequestId,
            /// The source.
            source: SourceId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Receiving depot.
            depot: DepotId,
            /// Reason for this depot and this moment.
            reason: Reason,
        },
        /// Stops every read of the stage-in from the source, whatever its destination. Nothing of
        /// it is written here afterwards, and the mind no longer counts on it.
        41 = Quit {
            /// The stage-in.
            request: RequestId,
            /// The source.
            source: SourceId,
            /// Reason.
            reason: Reason,
        },
        /// Lists the chunks of the stage-in that are here. Answered by `ArrivalSurveyed`.
        42 = Survey {
            /// The stage-in.
            request: RequestId,
            /// Reason.
            reason: Reason,
        },
        /// Finishes a stage-in that fetches no more: its files get their names, or what was written
        /// is removed. Answered by `Landed` or `LandingFailed` if they are kept.
        43 = Settle {
            /// The stage-in.
            request: RequestId,
            /// True if the files are kept.
            keep: bool,
            /// Reason.
            reason: Reason,
        },
        /// Measures the path to the depot with bytes that the depot discards. Answered by `Probed`,
        /// also on failure.
        16 = Probe {
            /// Receiving depot.
            depot: DepotId,
            /// Most bytes to send.
            budget: Bytes,
            /// Reason.
            reason: Reason,
        },
        /// Makes a depot measure the path to another with bytes that are discarded there. Answered
        /// by `CrossingProbed`, also on failure.
        57 = ProbeCrossing {
            /// Sending depot.
            from: DepotId,
            /// Receiving depot.
            to: DepotId,
            /// Most bytes to send.
            budget: Bytes,
            /// Reason.
            reason: Reason,
        },
        /// Finds the best plan over time that the effort allows. Answered by `PlanSolved`. The
        /// greedy plan stays in force until the answer.
        48 = Solve {
            /// Number of the question: an answer to an earlier one is useless.
            number: u64,
            /// Problem to solve.
            problem: Problem,
            /// Most effort to spend.
            effort: Effort,
            /// Reason for the plan.
            reason: Reason,
        },
        /// Reserves rate on a circuit, or adopts an existing reservation of this number. Answered
        /// by `ReservationTold`: granted or refused, then up, down, failed or over as it comes.
        52 = Reserve {
            /// Permanent number of the reservation.
            reservation: ReservationId,
            /// The circuit.
            circuit: CircuitId,
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// End.
            until: Timestamp,
            /// Reason.
            reason: Reason,
        },
        /// Changes the rate or the end of a reservation. Answered by `ReservationTold`: changed or
        /// unchanged.
        53 = Rearrange {
            /// The reservation.
            reservation: ReservationId,
            /// New rate.
            rate: ByteRate,
            /// New end.
            until: Timestamp,
            /// Reason.
            reason: Reason,
        },
        /// Routes new data for a depot by this way while it opens; running transfers stay where
        /// they began. Not answered.
        56 = Take {
            /// The depot.
            depot: DepotId,
            /// Place among the depot's ways.
            way: u8,
            /// Reason.
            reason: Reason,
        },
        /// Makes a depot reserve space for the request's dataset, including what it stores already.
        /// The reservation may be new, or change the size or end of an older one. Answered by
        /// `SpaceTold`.
        64 = ReserveSpace {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// Space.
            bytes: Bytes,
            /// End.
            until: Timestamp,
            /// Reason.
            reason: Reason,
        },
        /// Ends a depot's reservation for the request's dataset beyond what it stores. Answered by
        /// `SpaceTold`: released, also without a reservation.
        65 = ReleaseSpace {
            /// The request.
            request: RequestId,
            /// The depot.
            depot: DepotId,
            /// Reason.
            reason: Reason,
        },
        /// Gives a reservation back, whatever its state. Answered by `ReservationTold`: over, also
        /// if there is none.
        54 = GiveBack {
            /// The reservation.
            reservation: ReservationId,
            /// Reason.
            reason: Reason,
        },
    }
}

impl Command {
    /// Returns the reason of the command.
    #[must_use]
    pub const fn reason(&self) -> &Reason {
        match self {
            Self::Send { reason, .. }
            | Self::Recall { reason, .. }
            | Self::Abandon { reason, .. }
            | Self::Inventory { reason, .. }
            | Self::Release { reason, .. }
            | Self::LeaveOut { reason, .. }
            | Self::Renew { reason, .. }
            | Self::Forget { reason, .. }
            | Self::Forward { reason, .. }
            | Self::Follow { reason, .. }
            | Self::Gather { reason, .. }
            | Self::Mend { reason, .. }
            | Self::Scatter { reason, .. }
            | Self::Fetch { reason, .. }
            | Self::Prestage { reason, .. }
            | Self::Quit { reason, .. }
            | Self::Survey { reason, .. }
            | Self::Settle { reason, .. }
            | Self::Probe { reason, .. }
            | Self::ProbeCrossing { reason, .. }
            | Self::Reserve { reason, .. }
            | Self::Rearrange { reason, .. }
            | Self::GiveBack { reason, .. }
            | Self::ReserveSpace { reason, .. }
            | Self::ReleaseSpace { reason, .. }
            | Self::Take { reason, .. }
            | Self::Solve { reason, .. } => reason,
        }
    }
}
