use alloc::string::String;
use core::fmt;
use posthaste_types::{Bytes, DepotId, SourceId, Timestamp};

use super::{Forecast, Hindrance};

/// What one way carries for one request, as the mind sees it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferView {
    /// What it is.
    pub kind: TransferKind,
    /// Where it begins.
    pub from: TransferEnd,
    /// Where it ends.
    pub to: TransferEnd,
    /// The source, or path, that it is of a stage-in, or of a stage-out to an address.
    pub source: Option<SourceId>,
    /// Bytes that came that way and count.
    pub done: Bytes,
    /// Bytes that are to come that way yet, as the last look places them.
    pub left: Bytes,
    /// Pieces on their way.
    pub in_flight: u32,
    /// When the last of what is left is forecast to be there; none where nothing is left, or that is not in sight.
    pub finish: Option<Forecast>,
    /// How it stands.
    pub state: TransferState,
}

/// What a transfer is.
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
    /// The word people and programs know it by.
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

/// Where a transfer begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEnd {
    /// At the centre.
    Centre,
    /// At a depot.
    Depot {
        /// Which.
        depot: DepotId,
        /// The name people use.
        name: String,
    },
    /// At an endpoint elsewhere.
    Source {
        /// The name people use.
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

/// How a transfer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferState {
    /// Nothing of it is on its way now, and some will be.
    Waiting {
        /// For what; none where its turn is about to come.
        why: Option<Standstill>,
    },
    /// Some of it is on its way.
    Running,
    /// Nothing of it is on its way before something changes.
    Parked {
        /// What.
        why: Standstill,
    },
    /// Nothing is left of it.
    Done,
}

impl TransferState {
    /// The word people and programs know it by.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Running => "running",
            Self::Parked { .. } => "parked",
            Self::Done => "done",
        }
    }

    /// Why nothing of it is on its way, where there is something to say.
    #[must_use]
    pub const fn why(&self) -> Option<&Standstill> {
        match self {
            Self::Waiting { why } => why.as_ref(),
            Self::Parked { why } => Some(why),
            Self::Running | Self::Done => None,
        }
    }
}

/// Why nothing of a transfer is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standstill {
    /// Somebody lets its request wait.
    Paused {
        /// Who.
        by: String,
    },
    /// The other end does not answer.
    Away,
    /// The depot is lent at other hours.
    Hours,
    /// The depot's machine has too much to do.
    Loaded,
    /// The depot has no space for a piece more.
    Full,
    /// It no longer holds what it held.
    Gone,
    /// More urgent requests take what there is.
    Others,
    /// It is not welcome yet, and need not begin before.
    Early {
        /// When it begins at the latest.
        begin_by: Timestamp,
    },
    /// Something failed: it is left alone until then.
    Rests {
        /// When it is tried again.
        until: Timestamp,
    },
    /// What keeps a destination waiting.
    Delivery {
        /// That.
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
