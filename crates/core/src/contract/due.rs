use core::fmt;
use posthaste_types::{ByteRate, Bytes, RequestId, Timestamp, record};

use super::Forecast;

record! {
    /// What keeps a destination waiting for all of it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Hindrance {
        /// What is not safe yet leaves the centre first.
        0 = Centre {
            /// When all of it will have.
            safe: Timestamp,
        },
        /// It is away.
        1 = Away,
        /// It has no space for all of it.
        2 = Full {
            /// Space that is missing.
            bytes: Bytes,
        },
        /// Of those that are there nobody has what it lacks.
        #[default]
        3 = NoGiver,
        /// Another request is wanted there first.
        4 = Others {
            /// That request.
            request: RequestId,
        },
        /// It takes what it lacks from those that have it at a rate.
        5 = Ways {
            /// The rate.
            rate: ByteRate,
            /// Nothing went that way yet: the rate is assumed.
            is_assumed: bool,
        },
        /// It lies in a store, which gathers nothing.
        6 = Store,
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
    /// How the delivery of a request to its destinations stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct DeliveryView {
        /// When it is wanted there; none where nobody said.
        pub deliver_by: Option<Timestamp>,
        /// When every destination is forecast to have all of it; none once each has, or while that is
        /// not in sight.
        pub finish: Option<Forecast>,
        /// Whether the forecast counts on a way that nothing went yet.
        pub is_assumed: bool,
        /// Whether being there in time is in danger.
        pub at_risk: bool,
        /// Whether it was not there in time.
        pub missed: bool,
        /// When every destination had all of it.
        pub whole_at: Option<Timestamp>,
    }
}
