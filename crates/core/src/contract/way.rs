//! Several ways to one depot, as the contract tells them.

use alloc::string::String;
use core::fmt;
use posthaste_forecast::Quantiles;
use posthaste_types::{ByteRate, Timestamp, record};

record! {
    /// Why data takes one way to a depot and not another.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum WayReason {
        /// Nobody knows lately what this one carries.
        0 = Untried {
            /// What the one that is taken carries.
            carries: ByteRate,
        },
        /// It carries more.
        1 = CarriesMore {
            /// What it carries.
            carries: ByteRate,
            /// The other one.
            than: String,
            /// What that carries.
            other: ByteRate,
        },
        /// It carries as much as a gateway, which so buys nothing.
        2 = NeedsNoGateway {
            /// What it carries.
            carries: ByteRate,
            /// The gateway.
            gateway: String,
            /// What that carries.
            other: ByteRate,
        },
        /// The other one, which was tried, carries no more than that.
        3 = OtherNoBetter {
            /// The other one.
            tried: String,
            /// What it carries; none where it did not show that.
            carries: Option<ByteRate>,
        },
        /// The other one does not open, or breaks.
        4 = OtherFails {
            /// The other one.
            other: String,
        },
        /// It was chosen, did not open for a while, and opens again.
        6 = OpensAgain,
        /// Rate that is reserved is carried on it alone.
        7 = Reserved {
            /// The circuit.
            circuit: String,
        },
        /// It was chosen before.
        5 = Known {
            /// What it carries.
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
    /// One of several ways to a depot, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WayView {
        /// Its name: the gateways it leads through, or that it is straight.
        pub name: String,
        /// Whether data takes it.
        pub is_taken: bool,
        /// What it is forecast to carry; none before it was measured.
        pub rates: Option<Quantiles>,
        /// When it was last measured; none when it never was.
        pub measured_at: Option<Timestamp>,
    }
}
