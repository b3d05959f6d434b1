use core::fmt;

use crate::contract::reason::Reason;
use posthaste_types::{Timestamp, record};

record! {
    /// Acceptance of a request that is in time only if unmeasured paths are as fast as hoped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum HopeReason {
        /// Over depots.
        0 = Depots {
            /// Depots fed at once.
            fan_out: u32,
            /// Finish under the hopeful assumptions.
            hoped: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// Direct to the destination.
        1 = Direct {
            /// Finish under the hopeful assumptions.
            hoped: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// From sources.
        2 = Inbound {
            /// Sources it comes from.
            sources: u32,
            /// Finish under the hopeful assumptions.
            hoped: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
    }
}

impl Reason {
    /// Returns the hopeful statement about an accepted request.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else admits anything"
    )]
    pub(crate) fn doubt(&mut self) {
        let why = match *self {
            Self::Admitted {
                fan_out,
                finish: hoped,
                deadline,
            } => HopeReason::Depots {
                fan_out,
                hoped,
                deadline,
            },
            Self::DirectSuffices {
                finish: hoped,
                deadline,
            } => HopeReason::Direct { hoped, deadline },
            _ => return,
        };
        *self = Self::Hoped { why };
    }
}

impl fmt::Display for HopeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hoped, deadline) = match self {
            Self::Depots {
                fan_out,
                hoped,
                deadline,
            } => {
                write!(f, "{fan_out} depots at once: ")?;
                (hoped, deadline)
            }
            Self::Direct { hoped, deadline } => {
                f.write_str("by the direct path: ")?;
                (hoped, deadline)
            }
            Self::Inbound {
                sources,
                hoped,
                deadline,
            } => {
                let are = if *sources == 1 { "source" } else { "sources" };
                write!(f, "from {sources} {are}: ")?;
                (hoped, deadline)
            }
        };
        write!(
            f,
            "if paths of which little is known carry what they may, it can be done by {hoped}, before the deadline {deadline}"
        )
    }
}
