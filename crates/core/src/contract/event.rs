use alloc::string::String;
use core::fmt;
use posthaste_types::{Bytes, Code, DepotId, RequestId, Timestamp, record};

use crate::contract::{Reason, Step};

record! {
    /// Event for people.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Event {
        /// Moment.
        pub at: Timestamp,
        /// Request it is about, if any.
        pub request: Option<RequestId>,
        /// Depot it is about, if any.
        pub depot: Option<DepotId>,
        /// Kind of event.
        pub happening: Happening,
        /// Reason.
        pub reason: Reason,
    }
}

record! {
    /// Kind of an event, without its reason.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Happening {
        /// The request is accepted and will be on time.
        0 = Admitted,
        /// The request is rejected.
        1 = Refused,
        /// The request runs, but its deadline is in danger: reported before it is late.
        2 = AtRisk {
            /// p90 finish.
            finish: Timestamp,
        },
        /// The danger is over.
        3 = OnTime {
            /// p90 finish.
            finish: Timestamp,
        },
        /// The deadline passed and the dataset is not safe; work goes on.
        4 = Missed,
        /// A depot is used from now on.
        5 = DepotActivated,
        /// A depot is no longer used.
        6 = DepotRetired,
        /// A depot is lost.
        7 = DepotDown,
        /// A depot answers again.
        8 = DepotUp,
        /// The forecast of a depot changed by much.
        9 = ForecastMoved,
        /// Fragments lost with a depot are being rebuilt elsewhere.
        10 = Repairing {
            /// Chunks that lack a fragment.
            chunks: u32,
        },
        /// Every chunk is safe.
        11 = Safe {
            /// Size of the dataset.
            bytes: Bytes,
        },
        /// Some chunk is no longer safe.
        12 = Unsafe {
            /// Chunks that lack a fragment.
            chunks: u32,
        },
        /// The source left scratch.
        13 = Released,
        /// The source could not be removed.
        14 = ReleaseFailed,
        /// Every destination has everything.
        15 = Delivered,
        /// The request was cancelled.
        16 = Cancelled,
        /// The request can't go on.
        17 = Failed,
        /// Data takes another way: direct instead of staged, or the reverse.
        18 = Rerouted,
        /// Data at depots near the centre moves to one nearer the destination.
        32 = Pushing,
        /// All data that can lie nearer the destination does.
        33 = Pushed,
        /// A destination gathers what it lacks.
        34 = Delivering,
        /// Delivery may be late: reported before it is.
        170 = DeliveryAtRisk {
            /// Delivery to all destinations, p90.
            finish: Timestamp,
        },
        /// Delivery is no longer in danger.
        171 = DeliveryOnTime {
            /// Delivery to all destinations, p90.
            finish: Timestamp,
        },
        /// Some destination lacks data at its deliver-by time; work goes on.
        172 = DeliveryMissed,
        /// A depot is being drained: nothing new goes there.
        173 = DepotDraining,
        /// A drained depot holds no data that does not lie elsewhere too.
        174 = DepotEmptied,
        /// A depot is no longer drained.
        175 = DepotUndrained,
        /// Data for a depot takes this way for a while, to measure it.
        176 = WayTried {
            /// The way.
            name: String,
        },
        /// Data for a depot takes this way.
        177 = WayTaken {
            /// The way.
            name: String,
        },
        /// A pinned depot is gone for good: the others do without it.
        178 = Unpinned,
        /// Depots of one failure domain hold more of a chunk than the parity covers.
        96 = Crowded,
        /// The first chunks of a stage-in are being fetched.
        120 = Fetching,
        /// Data of a stage-in goes to depots near the centre, to come from there when it is
        /// welcome.
        126 = Prestaging,
        /// All of a stage-in is here.
        121 = Arrived {
            /// Size of the stage-in.
            bytes: Bytes,
        },
        /// A source is no longer used, or not for a while.
        122 = SourceLeft {
            /// Name of the source.
            name: String,
        },
        /// A source gives data again.
        123 = SourceBack {
            /// Name of the source.
            name: String,
        },
        /// Chunks lost fragments that are not rebuilt yet, as the user wished.
        113 = Thinned {
            /// Chunks that lack a fragment.
            chunks: u32,
        },
        /// The source is gone, and nobody here removed it.
        114 = Purged,
        /// News of a reservation of the request.
        190 = Reservation {
            /// Step of the reservation.
            step: Step,
        },
        /// The request is paused: nothing of it is begun.
        179 = Paused,
        /// The request is resumed.
        180 = Resumed,
        /// A file of the source was left out, and the rest goes on.
        181 = LeftOut {
            /// Size of the file.
            bytes: Bytes,
        },
        /// The code of a request was chosen by its wished durability.
        112 = CodeChosen {
            /// The code.
            code: Code,
        },
    }
}

impl Happening {
    /// Placeholder for a finish that is not in sight because no path is up.
    pub const NO_FINISH: Timestamp = Timestamp::from_secs(253_402_300_799);

    named! {
        Self::Admitted => "admitted",
        Self::Refused => "refused",
        Self::AtRisk { .. } => "at-risk",
        Self::OnTime { .. } => "on-time",
        Self::Missed => "missed",
        Self::DepotActivated => "depot-activated",
        Self::DepotRetired => "depot-retired",
        Self::DepotDown => "depot-down",
        Self::DepotUp => "depot-up",
        Self::ForecastMoved => "forecast-moved",
        Self::Repairing { .. } => "repairing",
        Self::Safe { .. } => "safe",
        Self::Unsafe { .. } => "unsafe",
        Self::Released => "released",
        Self::ReleaseFailed => "release-failed",
        Self::Delivered => "delivered",
        Self::Cancelled => "cancelled",
        Self::Failed => "failed",
        Self::Rerouted => "rerouted",
        Self::Pushing => "pushing",
        Self::Pushed => "pushed",
        Self::Delivering => "delivering",
        Self::DeliveryAtRisk { .. } => "delivery-at-risk",
        Self::DeliveryOnTime { .. } => "delivery-on-time",
        Self::DeliveryMissed => "delivery-missed",
        Self::DepotDraining => "depot-draining",
        Self::DepotEmptied => "depot-emptied",
        Self::DepotUndrained => "depot-undrained",
        Self::WayTried { .. } => "way-tried",
        Self::WayTaken { .. } => "way-taken",
        Self::Crowded => "crowded",
        Self::Unpinned => "unpinned",
        Self::CodeChosen { .. } => "code-chosen",
        Self::LeftOut { .. } => "left-out",
        Self::Paused => "paused",
        Self::Resumed => "resumed",
        Self::Fetching => "fetching",
        Self::Prestaging => "prestaging",
        Self::Arrived { .. } => "arrived",
        Self::SourceLeft { .. } => "source-left",
        Self::SourceBack { .. } => "source-back",
        Self::Thinned { .. } => "thinned",
        Self::Purged => "purged";
        Self::Reservation { step } => step.name()
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted => f.write_str("admitted"),
            Self::Refused => f.write_str("refused"),
            Self::AtRisk { finish } if *finish == Self::NO_FINISH => {
                f.write_str("at risk, no finish in sight")
            }
            Self::AtRisk { finish } => write!(f, "at risk, p90 finish {finish}"),
            Self::OnTime { finish } => write!(f, "on time again, p90 finish {finish}"),
            Self::Missed => f.write_str("deadline missed, going on"),
            Self::DepotActivated => f.write_str("depot added"),
            Self::DepotRetired => f.write_str("depot retired"),
            Self::DepotDown => f.write_str("depot down"),
            Self::DepotUp => f.write_str("depot up"),
            Self::ForecastMoved => f.write_str("forecast moved"),
            Self::Repairing { chunks } => write!(f, "repairing {chunks} chunks"),
            Self::Safe { bytes } => write!(f, "safe, {bytes}"),
            Self::Unsafe { chunks } => write!(f, "{chunks} chunks no longer safe"),
            Self::Released => f.write_str("scratch released"),
            Self::ReleaseFailed => f.write_str("scratch not released"),
            Self::Delivered => f.write_str("delivered"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Failed => f.write_str("failed"),
            Self::Rerouted => f.write_str("rerouted"),
            Self::Pushing => f.write_str("pushed on to"),
            Self::Pushed => f.write_str("all is pushed on"),
            Self::Delivering => f.write_str("takes what it lacks"),
            Self::DeliveryAtRisk { finish } if *finish == Self::NO_FINISH => {
                f.write_str("delivery at risk, no end of it in sight")
            }
            Self::DeliveryAtRisk { finish } => {
                write!(f, "delivery at risk, p90 delivered {finish}")
            }
            Self::DeliveryOnTime { finish } => {
                write!(f, "delivery on time again, p90 delivered {finish}")
            }
            Self::DeliveryMissed => f.write_str("not delivered in time, going on"),
            Self::DepotDraining => f.write_str("draining"),
            Self::DepotEmptied => f.write_str("empty, may be switched off"),
            Self::DepotUndrained => f.write_str("no longer draining"),
            Self::WayTried { name } => write!(f, "tries the way {name}"),
            Self::WayTaken { name } => write!(f, "takes the way {name}"),
            Self::Crowded => f.write_str("crowded"),
            Self::Unpinned => f.write_str("unpinned"),
            // A directory that can't be entered has none either.
            Self::LeftOut { bytes: Bytes::ZERO } => f.write_str("something left out"),
            Self::LeftOut { bytes } => write!(f, "a file left out, {bytes}"),
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::CodeChosen { code } => write!(f, "code {code} chosen"),
            Self::Fetching => f.write_str("fetching"),
            Self::Prestaging => f.write_str("prestaging"),
            Self::Arrived { bytes } => write!(f, "arrived, {bytes}"),
            Self::SourceLeft { name } => write!(f, "source {name} left"),
            Self::SourceBack { name } => write!(f, "source {name} gives again"),
            Self::Thinned { chunks } => write!(f, "{chunks} chunks lack fragments"),
            Self::Purged => f.write_str("the source is gone"),
            Self::Reservation { step } => step.fmt(f),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.happening, self.reason)
    }
}
