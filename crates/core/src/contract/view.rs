use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_forecast::{Quantiles, Score};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp, record};

use crate::contract::{DeliveryView, DrainView, Omission, Pause, RequestSpec, WayView, Wishes};

record! {
    /// State of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestState {
        /// Rejected: infeasible, too few depots, no space.
        0 = Refused,
        /// Fragments are moving.
        1 = Moving,
        /// Every chunk is safe; the source may still be on scratch.
        2 = Safe,
        /// Safe, and the source left scratch.
        3 = Released,
        /// The destination has everything.
        4 = Delivered,
        /// Cancelled by a user.
        5 = Cancelled,
        /// Unable to go on; the source is untouched.
        6 = Failed,
    }
}

impl RequestState {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Moving => "moving",
            Self::Safe => "safe",
            Self::Released => "released",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// A request in the plan in force: its turn and its shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnView {
    /// The request.
    pub request: RequestId,
    /// True if the request gets the leftover capacity, since it can't be on time.
    pub is_leftover: bool,
    /// Time that its turn goes by: its deadline, or its deliver-by time.
    pub deadline: Timestamp,
    /// Forecast of its safety; none while no path is up.
    pub finish: Option<Forecast>,
    /// True if the deadline is in danger.
    pub at_risk: bool,
    /// True while a user pauses it.
    pub is_paused: bool,
    /// Bytes still to send: encoded, if they go over depots.
    pub bytes_left: Bytes,
    /// Everything fed now.
    pub shares: Vec<TurnShare>,
}

/// Share of one depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnShare {
    /// The depot.
    pub depot: DepotId,
    /// Fragments in flight.
    pub in_flight: u32,
    /// Quota left by a plan over time; none without a limit.
    pub quota: Option<Bytes>,
}

record! {
    /// A future moment in quantiles: at p90, nine in ten are earlier.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Forecast {
        /// Time before which one in ten finishes.
        pub p10: Timestamp,
        /// Median.
        pub p50: Timestamp,
        /// Time before which nine in ten finish; compared with deadlines.
        pub p90: Timestamp,
    }
}

impl Forecast {
    /// Returns a certain forecast.
    #[must_use]
    pub const fn at(moment: Timestamp) -> Self {
        Self {
            p10: moment,
            p50: moment,
            p90: moment,
        }
    }

    /// Returns a forecast of independently found quantiles, p10 first, and makes them ascend. None
    /// unless all three exist.
    pub(crate) fn ordered(quantiles: [Option<Timestamp>; 3]) -> Option<Self> {
        let [Some(p10), Some(p50), Some(p90)] = quantiles else {
            return None;
        };
        let p50 = p50.max(p10);
        let p90 = p90.max(p50);
        Some(Self { p10, p50, p90 })
    }
}

record! {
    /// State of a depot.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DepotState {
        /// Registered, not heard of yet.
        0 = Unknown,
        /// Up: it answers.
        1 = Up,
        /// Down: it does not answer.
        2 = Down,
    }
}

impl DepotState {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

record! {
    /// State of a depot, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DepotView {
        /// The depot.
        pub depot: DepotId,
        /// Name shown to people.
        pub name: String,
        /// State.
        pub state: DepotState,
        /// Space lent to us.
        pub capacity: Bytes,
        /// Space left for new fragments, after what is stored and in flight.
        pub free: Bytes,
        /// Forecast rate, p10.
        pub rate_p10: ByteRate,
        /// Forecast rate, p50.
        pub rate_p50: ByteRate,
        /// Forecast rate, p90.
        pub rate_p90: ByteRate,
        /// Progress of its draining, while it is drained.
        pub drain: Option<DrainView>,
    }
}

record! {
    /// Origin of the knowledge about a path's rate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Knowledge {
        /// Mostly from transfers over it.
        0 = Transfers,
        /// Mostly from probes.
        1 = Probe,
        /// The owner reports it.
        2 = Advertised,
        /// An assumption: nothing was measured.
        3 = Assumed,
    }
}

impl Knowledge {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transfers => "transfers",
            Self::Probe => "probe",
            Self::Advertised => "advertised",
            Self::Assumed => "assumed",
        }
    }
}

record! {
    /// The path from the centre to one depot, as the mind sees it at a moment.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PathView {
        /// Name of the depot where the path begins; none for the centre.
        pub from: Option<String>,
        /// Depot where the path ends.
        pub depot: DepotId,
        /// Name shown to people of that depot.
        pub name: String,
        /// Forecast rate.
        pub rates: Quantiles,
        /// Origin of the forecast.
        pub knowledge: Knowledge,
        /// Time of the last measurement; none without one.
        pub measured_at: Option<Timestamp>,
        /// Measurements of transfers so far.
        pub transfers: u64,
        /// Probes so far.
        pub probes: u64,
        /// End of the last probe, whatever its result.
        pub probed_at: Option<Timestamp>,
        /// Accuracy of the forecasts so far.
        pub score: Score,
        /// Shortest round trip; none if unmeasured.
        pub round_trip: Option<Duration>,
        /// Ways in their order of preference while unmeasured; none if there is only one.
        pub ways: Vec<WayView>,
    }
}

record! {
    /// A depot on the way from the centre to a destination.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RankView {
        /// The depot.
        pub depot: DepotId,
        /// Name shown to people.
        pub name: String,
        /// Round trip to the centre; none if unmeasured.
        pub from_centre: Option<Duration>,
        /// Round trip to the destination; none if unmeasured.
        pub to_destination: Option<Duration>,
        /// Hops from the centre, for that destination.
        pub level: u8,
        /// True if the depot is used only when others do not suffice.
        pub is_landmark: bool,
        /// Forecast rate of the path from the centre, p50.
        pub carries: ByteRate,
        /// Time of that path's last measurement; none without one.
        pub measured_at: Option<Timestamp>,
        /// Forecast rate of the path to the destination, p50; none if never measured.
        pub onward: Option<ByteRate>,
        /// Time of that path's last measurement.
        pub onward_at: Option<Timestamp>,
    }
}

record! {
    /// Share of one depot in one request.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ShareView {
        /// The depot.
        pub depot: DepotId,
        /// True if the depot is fed now.
        pub active: bool,
        /// Fragments stored there, verified.
        pub stored: u32,
        /// Bytes of those fragments.
        pub stored_bytes: Bytes,
        /// Fragments in flight to the depot.
        pub in_flight: u32,
        /// Space reserved for the request, including what is stored; none without a reservation.
        pub reserved: Bytes,
    }
}

record! {
    /// Cost of a request, once it is done as planned.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Cost {
        /// Cost of sending, with the price of the store's requests, in millionths of a dollar.
        pub send_micro_usd: u64,
        /// Cost of keeping it for a month, in millionths of a dollar.
        pub month_micro_usd: u64,
        /// Cost of reading all of it once from its depots, in millionths of a dollar.
        pub read_micro_usd: u64,
    }
}

record! {
    /// State of a request, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RequestView {
        /// The request.
        pub request: RequestId,
        /// Specification of the request.
        pub spec: RequestSpec,
        /// Further wishes.
        pub wishes: Wishes,
        /// Depots that must hold their share of every chunk.
        pub pinned: Vec<DepotId>,
        /// State.
        pub state: RequestState,
        /// Pause and its user; none while the request may go on.
        pub paused: Option<Pause>,
        /// True if its deadline is in danger, or it was safe and is so no longer.
        pub at_risk: bool,
        /// True if the deadline passed before it was safe.
        pub missed: bool,
        /// True if it was safe and is so no longer.
        pub is_unsafe: bool,
        /// Chunks out of reach: the depots that answer can't rebuild them, and the source is gone.
        pub chunks_out_of_reach: u32,
        /// True if its source stays for good, though it was to be removed.
        pub source_kept: bool,
        /// True if some of its source may be gone: a release began, and did not end.
        pub has_tried_release: bool,
        /// Purge time of its source, if known.
        pub purge_at: Option<Timestamp>,
        /// Time of submission.
        pub submitted: Timestamp,
        /// Time at which it first became safe.
        pub safe_at: Option<Timestamp>,
        /// Forecast of its safety; none once it is safe, or while no path is up.
        pub finish: Option<Forecast>,
        /// Chunks that are safe.
        pub chunks_safe: u32,
        /// Chunks repaired after the loss of a depot.
        pub chunks_repaired: u32,
        /// Late sends that were repeated since it was last safe.
        pub duplicates: u32,
        /// Its cost, if owners set prices.
        pub cost: Cost,
        /// Cost of what was begun for it, with keeping it to the end, in millionths of a dollar.
        pub spent_micro_usd: u64,
        /// State of its delivery, if it has destinations.
        pub delivery: Option<DeliveryView>,
        /// Files left out of it.
        pub omissions: Vec<Omission>,
        /// Share of each depot, in the user's order.
        pub shares: Vec<ShareView>,
    }
}
