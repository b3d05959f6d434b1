//! Several ways to one depot, in the contract.

use alloc::string::String;
use core::fmt;
use posthaste_forecast::Quantiles;
use posthaste_types::{ByteRate, Timestamp, record};

record! {
    /// Reason why data takes one way to a depot and not another.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum WayReason {
        /// There is no recent measurement of this way.
        0 = Untried {
            /// Rate of the way in use.
            carries: ByteRate,
        },
        /// This way is faster.
        1 = CarriesMore {
            /// Rate of this way.
            carries: ByteRate,
            /// Name of the other way.
            than: String,
            /// Rate of the other way.
            other: ByteRate,
        },
        /// The straight way is as fast as the gateway, which so gains nothing.
        2 = NeedsNoGateway {
            /// Rate of the straight way.
            carries: ByteRate,
            /// Name of the gateway.
            gateway: String,
            /// Rate through the gateway.
            other: ByteRate,
        },
        /// The other way, which was tried, is no faster.
        3 = OtherNoBetter {
            /// Name of the other way.
            tried: String,
            /// Rate of the other way; none if the trial did not show it.
            carries: Option<ByteRate>,
        },
        /// The other way does not open, or breaks.
        4 = OtherFails {
            /// Name of the other way.
            other: String,
        },
        /// The chosen way did not open for a while, and opens again.
        6 = OpensAgain,
        /// Reserved rate is available on this way alone.
        7 = Reserved {
            /// The circuit.
            circuit: String,
        },
        /// The way was chosen before.
        5 = Known {
            /// Rate of the way.
            carries: ByteRate,
        },
    }
}

impl fmt::Display for WayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untried { carries } => write!(
                f,
                "the one that is taken carries {carries}, and nobody knows lately what this one does"
            ),
            Self::CarriesMore {
                carries,
                than,
                other,
            } => write!(f, "it carries {carries}, and {than} {other}"),
            Self::NeedsNoGateway {
                carries,
                gateway,
                other,
            } => write!(
                f,
                "it carries {carries} without a gateway, and {gateway} {other}"
            ),
            Self::OtherNoBetter {
                tried,
                carries: Some(carries),
            } => write!(f, "{tried} was tried and carries no more than {carries}"),
            Self::OtherNoBetter {
                tried,
                carries: None,
            } => write!(f, "{tried} was tried and showed nothing"),
            Self::OtherFails { other } => write!(f, "{other} does not open, or breaks"),
            Self::Reserved { circuit } => {
                write!(f, "{circuit}, where rate is reserved, lies on it")
            }
            Self::OpensAgain => f.write_str("it was chosen, and opens again"),
            Self::Known { carries } => write!(f, "it was chosen before, and carries {carries}"),
        }
    }
}

record! {
    /// A way to a depot, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WayView {
        /// Name: the gateways on the way, or that it is straight.
        pub name: String,
        /// True if data takes it.
        pub is_taken: bool,
        /// Forecast rate; none before a measurement.
        pub rates: Option<Quantiles>,
        /// Time of the last measurement; none without one.
        pub measured_at: Option<Timestamp>,
    }
}
