use alloc::string::String;
use core::fmt;
use posthaste_types::{Bytes, DepotId, SourceId, Timestamp};

use crate::contract::{Forecast, Hindrance};

/// A transfer of a request, as the mind sees it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferView {
    /// Kind of the transfer.
    pub kind: TransferKind,
    /// Sending end.
    pub from: TransferEnd,
    /// Receiving end.
    pub to: TransferEnd,
    /// Source of a stage-in, or path of a stage-out to an address.
    pub source: Option<SourceId>,
    /// Bytes that arrived this way and count.
    pub done: Bytes,
    /// Bytes still to arrive this way, by the current plan.
    pub left: Bytes,
    /// Chunks or fragments in flight.
    pub in_flight: u32,
    /// Forecast finish of the rest; none if nothing is left or without a forecast.
    pub finish: Option<Forecast>,
    /// State.
    pub state: TransferState,
}

/// Kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// Fragments of a stage-out to a depot.
    Depot,
    /// All of a stage-out to one of its destinations.
    Destination,
    /// Chunks of a stage-in from one of its sources.
    Source,
    /// Chunks of a stage-in from a source to a depot near the centre.
    Prestage,
    /// Chunks of a stage-in from a depot near the centre.
    Near,
    /// Chunks of a stage-out to an address.
    Address,
}

impl TransferKind {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Depot => "depot",
            Self::Destination => "destination",
            Self::Source => "source",
            Self::Prestage => "prestage",
            Self::Near => "near",
            Self::Address => "address",
        }
    }
}

/// Sending or receiving end of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEnd {
    /// At the centre.
    Centre,
    /// At a depot.
    Depot {
        /// The depot.
        depot: DepotId,
        /// Name shown to people.
        name: String,
    },
    /// At an endpoint elsewhere.
    Source {
        /// Name shown to people.
        name: String,
    },
    /// At several depots.
    Depots,
    /// At several endpoints elsewhere.
    Sources,
}

impl fmt::Display for TransferEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Centre => "centre",
            Self::Depot { name, .. } | Self::Source { name, .. } => name,
            Self::Depots => "depots",
            Self::Sources => "sources",
        })
    }
}

/// State of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferState {
    /// Nothing is in flight now, and something will be.
    Waiting {
        /// Obstacle; none if its turn is about to come.
        why: Option<Standstill>,
    },
    /// Something is in flight.
    Running,
    /// Nothing is in flight before something changes.
    Parked {
        /// The obstacle.
        why: Standstill,
    },
    /// Nothing is left.
    Done,
}

impl TransferState {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Running => "running",
            Self::Parked { .. } => "parked",
            Self::Done => "done",
        }
    }

    /// Returns the obstacle, if there is one.
    #[must_use]
    pub const fn why(&self) -> Option<&Standstill> {
        match self {
            Self::Waiting { why } => why.as_ref(),
            Self::Parked { why } => Some(why),
            Self::Running | Self::Done => None,
        }
    }
}

/// Reason why nothing of a transfer is in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standstill {
    /// A user paused the request.
    Paused {
        /// Name of the user.
        by: String,
    },
    /// The other end does not answer.
    Away,
    /// The depot is lent at other hours.
    Hours,
    /// The machine of the depot has too much load.
    Loaded,
    /// The depot has no space for another chunk or fragment.
    Full,
    /// The source lost what it held.
    Gone,
    /// More urgent requests use the capacity.
    Others,
    /// The stage-in is not welcome yet, and need not begin yet.
    Early {
        /// Latest start.
        begin_by: Timestamp,
    },
    /// Something failed: the transfer rests until then.
    Rests {
        /// Time of the next try.
        until: Timestamp,
    },
    /// The destination waits.
    Delivery {
        /// The hindrance.
        hindrance: Hindrance,
    },
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { by } => write!(f, "{by} paused the request"),
            Self::Away => f.write_str("it is away"),
            Self::Hours => f.write_str("it is lent at other hours"),
            Self::Loaded => f.write_str("its machine has too much to do"),
            Self::Full => f.write_str("it has no space left"),
            Self::Gone => f.write_str("it no longer holds what it held"),
            Self::Others => f.write_str("more urgent requests take what there is"),
            Self::Early { begin_by } => {
                write!(
                    f,
                    "it is not welcome yet and need not begin before {begin_by}"
                )
            }
            Self::Rests { until } => write!(f, "it failed and is tried again at {until}"),
            Self::Delivery { hindrance } => hindrance.fmt(f),
        }
    }
}
