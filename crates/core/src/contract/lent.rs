use core::fmt;
use posthaste_plan::Windows;
use posthaste_types::{DepotId, record};

record! {
    /// Terms on which a depot is lent for one request, besides its general terms.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LentTerms {
        /// The depot.
        pub depot: DepotId,
        /// Hours in which data may be sent there.
        pub windows: Windows,
        /// Load, in thousandths of the machine's cores, from which on nothing is sent there; none
        /// for any load.
        pub load_max_permille: Option<u32>,
    }
}

/// Returns the highest load, in thousandths, that a machine still counts with after its load fell
/// to this one: five quarters of it. So a machine with too much load stays excluded until its load
/// is below four fifths of the bound, whatever the bound. A load that moves about the bound does
/// not change the decision at each look.
#[must_use]
pub fn load_left(load_permille: u32) -> u32 {
    load_permille.saturating_add(load_permille / 4)
}

record! {
    /// Reason why a depot lent for one request is used, or is not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum LentReason {
        /// The depot does not report its load.
        0 = LoadUnknown {
            /// Bound below which it may be used, in thousandths.
            most_permille: u32,
        },
        /// The machine has too much load.
        1 = Loaded {
            /// Load, in thousandths.
            load_permille: u32,
            /// Bound below which it may be used, in thousandths.
            most_permille: u32,
        },
        /// The load of the machine is low enough again.
        2 = Unloaded {
            /// Load, in thousandths.
            load_permille: u32,
            /// Bound below which it may be used, in thousandths.
            most_permille: u32,
        },
        /// The depot may be used at these hours.
        3 = Hours {
            /// The hours.
            windows: Windows,
        },
    }
}

/// Thousandths, as people write them.
struct Load(u32);

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

impl fmt::Display for LentReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoadUnknown { most_permille } => write!(
                f,
                "lent below a load of {}, and does not say what its load is: it is used whatever that is",
                Load(*most_permille)
            ),
            Self::Loaded {
                load_permille,
                most_permille,
            } if load_permille < most_permille => write!(
                f,
                "its load is {}, and rose to {}: it is used again below {}",
                Load(*load_permille),
                Load(*most_permille),
                Load(most_permille / 5 * 4)
            ),
            Self::Loaded {
                load_permille,
                most_permille,
            } => write!(
                f,
                "its load is {}, and it is lent below {}",
                Load(*load_permille),
                Load(*most_permille)
            ),
            Self::Unloaded {
                load_permille,
                most_permille,
            } => write!(
                f,
                "its load is {}, below {}",
                Load(*load_permille),
                Load(*most_permille)
            ),
            Self::Hours { windows } => write!(f, "lent for it {windows}"),
        }
    }
}
