use core::fmt;
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp, record};

use crate::contract::Forecast;

record! {
    /// Hindrance to a complete delivery at a destination.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Hindrance {
        /// Data that is not safe yet leaves the centre first.
        0 = Centre {
            /// Time at which all of it will have left.
            safe: Timestamp,
        },
        /// The destination is away.
        1 = Away,
        /// The destination has too little space.
        2 = Full {
            /// Missing space.
            bytes: Bytes,
        },
        /// No depot that answers holds what the destination lacks.
        #[default]
        3 = NoGiver,
        /// Another request goes to that destination first.
        4 = Others {
            /// The other request.
            request: RequestId,
        },
        /// The destination gathers what it lacks at a limited rate.
        5 = Ways {
            /// The rate.
            rate: ByteRate,
            /// True if the rate is assumed: nothing has used that path yet.
            is_assumed: bool,
        },
        /// The destination lies in a store, which gathers nothing.
        6 = Store,
        /// Taking it costs something at the destination, which no budget pays.
        7 = Charges,
        /// Giving it costs something at too many of the depots, which no budget pays.
        8 = Unpaid,
    }
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Centre { safe } => {
                write!(f, "all of it will have left the centre by {safe} only")
            }
            Self::Away => f.write_str("it is away"),
            Self::Store => f.write_str("it lies in a store, which gathers nothing by itself"),
            Self::Charges => {
                f.write_str("it charges for what it takes from depots, and no budget pays that")
            }
            Self::Unpaid => {
                f.write_str("depots charge for what they give it, and no budget pays that")
            }
            Self::Full { bytes } => write!(f, "it lacks {bytes} of space"),
            Self::NoGiver => f.write_str("nobody that is there has what it lacks"),
            Self::Others { request } => write!(f, "{request} is wanted there first"),
            Self::Ways { rate, is_assumed } => {
                let known = if *is_assumed {
                    "assumed, since nothing went that way yet"
                } else {
                    "forecast"
                };
                write!(f, "it takes {rate} from those that have it, {known}")
            }
        }
    }
}

record! {
    /// Destination that will not have all of a request, and why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Undelivered {
        /// The destination.
        pub depot: DepotId,
        /// Obstacle for good.
        pub hindrance: Hindrance,
    }
}

record! {
    /// Delivery of a request to its destinations.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DeliveryView {
        /// Deliver-by time; none if not given.
        pub deliver_by: Option<Timestamp>,
        /// Forecast of a complete delivery to all destinations; none after it, or while none is in
        /// sight.
        pub finish: Option<Forecast>,
        /// True if the forecast relies on a path that nothing has used yet.
        pub is_assumed: bool,
        /// True if delivery in time is in danger.
        pub at_risk: bool,
        /// True if delivery was late.
        pub missed: bool,
        /// Time of complete delivery to all destinations.
        pub whole_at: Option<Timestamp>,
        /// First destination to which a budget brings nothing from depots; none without one.
        pub undelivered: Option<Undelivered>,
    }
}
