use posthaste_types::{Bytes, DepotId, Timestamp, record};

use super::Blank;
use crate::contract::{Forecast, Hindrance};

record! {
    /// How the delivery of a request stands beside when it is wanted at its destinations.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Due {
        /// What the last look counted on sending whole to the destination that plans count on.
        pub(crate) straight: Bytes,
        /// When all must be safe so that destinations can have it in time; none where nobody said when.
        pub(crate) safe_by: Option<Timestamp>,
        /// When every destination will have all of it; none while that is not in sight.
        pub(crate) finish: Option<Forecast>,
        /// Nothing went some way yet that this counts on.
        pub(crate) is_assumed: bool,
        /// Who has it last, and what keeps it waiting.
        pub(crate) last: Option<DepotId>,
        pub(crate) hindrance: Hindrance,
        /// It was taken though it can't be in time, and promised nothing.
        pub(crate) is_leftover: bool,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        /// Since when every destination has all of it.
        pub(crate) whole_at: Option<Timestamp>,
    }
}

impl Blank for Due {
    const BLANK: &'static Self = &Self {
        straight: Bytes::ZERO,
        safe_by: None,
        finish: None,
        is_assumed: false,
        last: None,
        hindrance: Hindrance::NoGiver,
        is_leftover: false,
        at_risk: false,
        missed: false,
        late_ticks: 0,
        on_time_ticks: 0,
        whole_at: None,
    };
}
