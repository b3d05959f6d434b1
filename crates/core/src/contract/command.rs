use alloc::vec::Vec;
use posthaste_plan::horizon::{Effort, Problem};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    SourceId, Timestamp, record,
};

use super::Reason;

record! {
    /// Everything the mind can want done. The driver answers each with an input.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Command {
        /// Read the chunk, encode it, send this fragment. Answered by `FragmentStored` or
        /// `FragmentFailed`.
        0 = Send {
            /// For this request.
            request: RequestId,
            /// To this depot.
            depot: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it; [`FragmentIndex::WHOLE`] for the chunk itself.
            fragment: FragmentIndex,
            /// Why there and why now.
            reason: Reason,
        },
        /// Take a send back of which nothing has left yet. Answered by `Recalled` where it was; otherwise the send goes on
        /// and is answered as ever.
        68 = Recall {
            /// For this request.
            request: RequestId,
            /// To this depot.
            depot: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it.
            fragment: FragmentIndex,
            /// Why.
            reason: Reason,
        },
        /// Stop every send of the request to the depot; each unfinished one ends in
        /// `FragmentFailed` or is forgotten: the mind no longer counts on them.
        1 = Abandon {
            /// For this request.
            request: RequestId,
            /// To this depot.
            depot: DepotId,
            /// Why.
            reason: Reason,
        },
        /// Ask the depot what it holds of the dataset. Answered by `DepotInventory` or `DepotDown`.
        2 = Inventory {
            /// For this request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// Why.
            reason: Reason,
        },
        /// Remove the source from scratch: the dataset is safe. Answered by `SourceReleased` or
        /// `SourceKept`.
        3 = Release {
            /// The request.
            request: RequestId,
            /// Why.
            reason: Reason,
        },
        /// Leave a file out of the dataset: its bytes are zeros from now on, whoever pulls makes no file of them, and nobody removes
        /// it from the source. Not answered.
        69 = LeaveOut {
            /// Of this request.
            request: RequestId,
            /// Its place in the list of files.
            file: u64,
            /// Why.
            reason: Reason,
        },
        /// Take the chunk from now on for what it was when it was read last: its fragments of before don't count. Not answered.
        70 = Renew {
            /// Of this request.
            request: RequestId,
            /// The chunk.
            chunk: ChunkIndex,
            /// Why.
            reason: Reason,
        },
        /// Delete the dataset's fragments at the depot. Answered by `Forgotten`; best effort where the request
        /// was cancelled or failed: the depot's own expiry does it in the end.
        4 = Forget {
            /// The request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// Why.
            reason: Reason,
        },
        /// Let one depot send a fragment that it holds to another one. Answered, for the depot that gets
        /// it, by `FragmentStored` or `FragmentFailed`; a fault of the source says that the sending depot
        /// does not hold it.
        32 = Forward {
            /// For this request.
            request: RequestId,
            /// From this depot.
            from: DepotId,
            /// To this one.
            to: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it.
            fragment: FragmentIndex,
            /// Why there and why now.
            reason: Reason,
        },
        /// Let one depot send a fragment on to another one while it still gets it from the centre. Answered as
        /// `Forward`, never before the send that it follows; where that one fails or is abandoned, by a
        /// `FragmentFailed` with the source vanished.
        59 = Follow {
            /// For this request.
            request: RequestId,
            /// From this depot, to which this fragment is on its way.
            from: DepotId,
            /// To this one.
            to: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it.
            fragment: FragmentIndex,
            /// Why there and why now.
            reason: Reason,
        },
        /// Let a destination take fragments of a chunk from depots that hold them, rebuild the chunk and
        /// keep it whole. Answered, for the destination and the whole chunk, by `FragmentStored` or
        /// `FragmentFailed`, and before that by `GatherTold` where something is known of those who sent.
        50 = Gather {
            /// For this request.
            request: RequestId,
            /// To this destination.
            to: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// From these, each another fragment: as many as the code needs, those that would be through
            /// first, then some in reserve.
            from: Vec<(DepotId, FragmentIndex)>,
            /// Why from there and why now.
            reason: Reason,
        },
        /// Let a depot take fragments of a chunk from others that hold them, rebuild this one and keep it alone. Answered as
        /// `Gather`, for this fragment.
        66 = Mend {
            /// For this request.
            request: RequestId,
            /// To this depot.
            to: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// This fragment of it, which lies nowhere.
            fragment: FragmentIndex,
            /// From these, each another fragment: as many as the code needs, those that would be through
            /// first, then some in reserve.
            from: Vec<(DepotId, FragmentIndex)>,
            /// Why there and why now.
            reason: Reason,
        },
        /// Read the chunk and send it once, whole, to a depot that codes it, keeps one fragment and sends the
        /// others on. Answered for each of them by `FragmentStored` or `FragmentFailed`, where one was sent
        /// on after a `PieceTold`; or once for all, where nothing of it was begun, by `ScatterFailed`.
        51 = Scatter {
            /// For this request.
            request: RequestId,
            /// To this depot.
            depot: DepotId,
            /// This chunk.
            chunk: ChunkIndex,
            /// The fragment that it keeps.
            fragment: FragmentIndex,
            /// To whom it sends which others.
            to: Vec<(DepotId, FragmentIndex)>,
            /// Why there and why now.
            reason: Reason,
        },
        /// Read the chunk from the source, write it where it belongs and note its digest. Answered by
        /// `ChunkArrived` or `ChunkMissed`.
        40 = Fetch {
            /// For this stage-in.
            request: RequestId,
            /// From this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// Why from there and why now.
            reason: Reason,
        },
        /// Read the chunk from the source, note its digest and store it whole at a depot near the centre, to be fetched
        /// from there later. Answered by `StageInTold`, or by `ChunkMissed` where the source did not give it.
        67 = Prestage {
            /// For this stage-in.
            request: RequestId,
            /// From this source.
            source: SourceId,
            /// This chunk.
            chunk: ChunkIndex,
            /// To this depot.
            depot: DepotId,
            /// Why there and why now.
            reason: Reason,
        },
        /// Stop everything that the stage-in reads from the source, wherever it goes; none of it is written here afterwards,
        /// and the mind no longer counts on it.
        41 = Quit {
            /// For this stage-in.
            request: RequestId,
            /// From this source.
            source: SourceId,
            /// Why.
            reason: Reason,
        },
        /// Say which chunks of the stage-in are here. Answered by `ArrivalSurveyed`.
        42 = Survey {
            /// The stage-in.
            request: RequestId,
            /// Why.
            reason: Reason,
        },
        /// Everything of a stage-in was fetched that ever will be: give its files their names, or remove
        /// what was written of them. Answered by `Landed` or `LandingFailed` when they are kept.
        43 = Settle {
            /// The stage-in.
            request: RequestId,
            /// Whether they are kept.
            keep: bool,
            /// Why.
            reason: Reason,
        },
        /// Measure the path to the depot with bytes that are thrown away there. Answered by `Probed`,
        /// also when it failed.
        16 = Probe {
            /// To this depot.
            depot: DepotId,
            /// Most bytes to send.
            budget: Bytes,
            /// Why.
            reason: Reason,
        },
        /// Let one depot measure the path to another with bytes that are thrown away there. Answered by
        /// `CrossingProbed`, also when it failed.
        57 = ProbeCrossing {
            /// From this depot.
            from: DepotId,
            /// To this one.
            to: DepotId,
            /// Most bytes to send.
            budget: Bytes,
            /// Why.
            reason: Reason,
        },
        /// Find the best plan over time that the effort allows. Answered by `PlanSolved`; until then, and
        /// without an answer, the greedy plan stays in force.
        48 = Solve {
            /// Which question: an answer to an earlier one is of no use any more.
            number: u64,
            /// What is to be planned.
            problem: Problem,
            /// Most that may be spent on it.
            effort: Effort,
            /// Why a plan is wanted.
            reason: Reason,
        },
        /// Reserve rate on a circuit; one that is reserved already under this number is taken up again.
        /// Answered by `ReservationTold`: granted or refused, then up, down, failed or over as it comes.
        52 = Reserve {
            /// Its number, for good.
            reservation: ReservationId,
            /// On this circuit.
            circuit: CircuitId,
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// Until when.
            until: Timestamp,
            /// Why.
            reason: Reason,
        },
        /// Let a reservation have another rate or another end. Answered by `ReservationTold`: changed or
        /// unchanged.
        53 = Rearrange {
            /// The reservation.
            reservation: ReservationId,
            /// How much from now on.
            rate: ByteRate,
            /// Until when.
            until: Timestamp,
            /// Why.
            reason: Reason,
        },
        /// Let data for a depot go this way as long as it opens; what is under way ends where it began. Not answered.
        56 = Take {
            /// The depot.
            depot: DepotId,
            /// Its place among the ways.
            way: u8,
            /// Why.
            reason: Reason,
        },
        /// Let a depot keep so much space for the request's dataset, what it stores of it included: more, less or longer
        /// than it keeps already, or for the first time. Answered by `SpaceTold`.
        64 = ReserveSpace {
            /// For this request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// How much.
            bytes: Bytes,
            /// Until when.
            until: Timestamp,
            /// Why.
            reason: Reason,
        },
        /// Let a depot keep no more for the request's dataset than it stores. Answered by `SpaceTold`: released, also
        /// where it kept none.
        65 = ReleaseSpace {
            /// For this request.
            request: RequestId,
            /// At this depot.
            depot: DepotId,
            /// Why.
            reason: Reason,
        },
        /// Give a reservation back, whatever became of it. Answered by `ReservationTold`: over, also where
        /// there is none.
        54 = GiveBack {
            /// The reservation.
            reservation: ReservationId,
            /// Why.
            reason: Reason,
        },
    }
}

impl Command {
    /// Why it was given.
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
