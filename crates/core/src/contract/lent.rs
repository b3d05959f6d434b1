use core::fmt;
use posthaste_plan::Windows;
use posthaste_types::{DepotId, record};

record! {
    /// On which terms a depot is lent for one request, beside those on which it is lent to all.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LentTerms {
        /// The depot.
        pub depot: DepotId,
        /// When something may be sent there.
        pub windows: Windows,
        /// Nothing is sent there while the load of its machine is this or more, in thousandths of a core's for each core;
        /// none for whatever its load.
        pub load_max_permille: Option<u32>,
    }
}

/// What is left at most, in thousandths, of a higher load once it fell to this one: five quarters of it. So a machine that had too much to do
/// has so until its load is below four fifths of the bound, whichever that is, and one whose load moves about a bound is not taken and left at each look.
#[must_use]
pub fn load_left(load_permille: u32) -> u32 {
    load_permille.saturating_add(load_permille / 4)
}

record! {
    /// Why a depot that is lent for one request is used for it, or is not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum LentReason {
        /// It does not say what its load is.
        0 = LoadUnknown {
            /// Below which it may be used, in thousandths.
            most_permille: u32,
        },
        /// Its machine has too much to do.
        1 = Loaded {
            /// Its load, in thousandths.
            load_permille: u32,
            /// Below which it may be used.
            most_permille: u32,
        },
        /// Its machine has little enough to do again.
        2 = Unloaded {
            /// Its load, in thousandths.
            load_permille: u32,
            /// Below which it may be used.
            most_permille: u32,
        },
        /// It may be used at these hours.
        3 = Hours {
            /// Which.
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
