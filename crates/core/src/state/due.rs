use posthaste_types::{Bytes, DepotId, Timestamp, record};

use crate::contract::{Forecast, Hindrance};
use crate::state::Blank;

record! {
    /// Progress of a request's delivery against its deliver-by.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Due {
        /// Bytes that the last look counted on sending whole to the destination on which plans
        /// count.
        pub(crate) straight: Bytes,
        /// Time by which all must be safe so that destinations can have it in time; none without a
        /// deliver-by.
        pub(crate) safe_by: Option<Timestamp>,
        /// Time at which every destination will have all of it; none while that is not in sight.
        pub(crate) finish: Option<Forecast>,
        /// True if this counts on a path over which nothing went yet.
        pub(crate) is_assumed: bool,
        /// Destination that has it last, and what keeps it waiting.
        pub(crate) last: Option<DepotId>,
        pub(crate) hindrance: Hindrance,
        /// True if it was accepted although it can't be in time; it is promised nothing.
        pub(crate) is_leftover: bool,
        pub(crate) at_risk: bool,
        pub(crate) missed: bool,
        pub(crate) late_ticks: u32,
        pub(crate) on_time_ticks: u32,
        /// Time since which every destination has all of it.
        pub(crate) whole_at: Option<Timestamp>,
        /// True if somebody pulled all of it, while destinations wait for it.
        pub(crate) was_pulled: bool,
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
        was_pulled: false,
    };
}
