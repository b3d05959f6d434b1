use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_forecast::{Quantiles, Score};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp, record};

use super::{DeliveryView, DrainView, Omission, Pause, RequestSpec, WayView, Wishes};

record! {
    /// Where a request stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestState {
        /// Not taken: infeasible, too few depots, no space.
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
        /// Can't go on; the source is untouched.
        6 = Failed,
    }
}

impl RequestState {
    /// The word people and programs know it by.
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

/// A request as the plan in force has it: whose turn is when, and what goes where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnView {
    /// The request.
    pub request: RequestId,
    /// It gets what others leave, since it can't be on time.
    pub is_leftover: bool,
    /// By what its turn goes: when all of it must be safe, or there.
    pub deadline: Timestamp,
    /// When it is forecast to be safe; none while no path is up.
    pub finish: Option<Forecast>,
    /// Whether its deadline is in danger.
    pub at_risk: bool,
    /// Somebody lets it wait.
    pub is_paused: bool,
    /// Bytes that still have to be sent: coded, where it goes over depots.
    pub bytes_left: Bytes,
    /// Whatever is fed now.
    pub shares: Vec<TurnShare>,
}

/// What goes to one depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnShare {
    /// The depot.
    pub depot: DepotId,
    /// Fragments on their way.
    pub in_flight: u32,
    /// What a plan over time still gives it; none where it may have what it gets.
    pub quota: Option<Bytes>,
}

record! {
    /// A moment in the future, as quantiles: p90 means nine in ten are earlier.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Forecast {
        /// One in ten finishes earlier.
        pub p10: Timestamp,
        /// As likely earlier as later.
        pub p50: Timestamp,
        /// Nine in ten finish earlier: what deadlines compare with.
        pub p90: Timestamp,
    }
}

impl Forecast {
    /// One that is certain.
    #[must_use]
    pub const fn at(moment: Timestamp) -> Self {
        Self {
            p10: moment,
            p50: moment,
            p90: moment,
        }
    }

    /// One of quantiles that were found each for itself, p10 first: none is before the one in front of it. None unless
    /// all are in sight.
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
    /// How a depot is doing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DepotState {
        /// In the books, not heard of yet.
        0 = Unknown,
        /// Answers.
        1 = Up,
        /// Does not.
        2 = Down,
    }
}

impl DepotState {
    /// The word people and programs know it by.
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
    /// One depot, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct DepotView {
        /// The depot.
        pub depot: DepotId,
        /// The name people use.
        pub name: String,
        /// How it is doing.
        pub state: DepotState,
        /// Most that we may keep there.
        pub capacity: Bytes,
        /// Space left for new fragments, after what is stored and in flight.
        pub free: Bytes,
        /// Forecast rate, p10.
        pub rate_p10: ByteRate,
        /// Forecast rate, p50.
        pub rate_p50: ByteRate,
        /// Forecast rate, p90.
        pub rate_p90: ByteRate,
        /// How far its draining is, while it is drained.
        pub drain: Option<DrainView>,
    }
}

record! {
    /// How the rate of a path is known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Knowledge {
        /// Mostly from transfers over it.
        0 = Transfers,
        /// Mostly from probes.
        1 = Probe,
        /// Its owner says so.
        2 = Advertised,
        /// Not at all: a guess.
        3 = Assumed,
    }
}

impl Knowledge {
    /// The word people and programs know it by.
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
        /// The name of the depot where it begins; none where it begins at the centre.
        pub from: Option<String>,
        /// Where it ends.
        pub depot: DepotId,
        /// The name people use for that.
        pub name: String,
        /// What it is forecast to carry.
        pub rates: Quantiles,
        /// How that is known.
        pub knowledge: Knowledge,
        /// When it was last measured; none when it never was.
        pub measured_at: Option<Timestamp>,
        /// Measurements of transfers taken so far.
        pub transfers: u64,
        /// Probes taken so far.
        pub probes: u64,
        /// When the last probe ended, whether it showed anything or not.
        pub probed_at: Option<Timestamp>,
        /// How well it was forecast so far.
        pub score: Score,
        /// The shortest round trip seen; none where nobody measured it.
        pub round_trip: Option<Duration>,
        /// The ways there are, as they are wanted while nothing is known; none where there is only one.
        pub ways: Vec<WayView>,
    }
}

record! {
    /// A depot on the way from the centre to a destination.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RankView {
        /// The depot.
        pub depot: DepotId,
        /// The name people use for it.
        pub name: String,
        /// The round trip to the centre; none where nobody measured it.
        pub from_centre: Option<Duration>,
        /// The round trip to the destination; none where nobody measured it.
        pub to_destination: Option<Duration>,
        /// Hops from the centre, for that destination.
        pub level: u8,
        /// Whether it is only used where others do not suffice.
        pub is_landmark: bool,
        /// What the path from the centre is forecast to carry, p50.
        pub carries: ByteRate,
        /// When that was measured last; none when it never was.
        pub measured_at: Option<Timestamp>,
        /// What the path to the destination is forecast to carry, p50; none where nothing ever measured it.
        pub onward: Option<ByteRate>,
        /// When that was measured last.
        pub onward_at: Option<Timestamp>,
    }
}

record! {
    /// What one depot does for one request.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ShareView {
        /// The depot.
        pub depot: DepotId,
        /// Whether it is fed now.
        pub active: bool,
        /// Fragments it holds, verified.
        pub stored: u32,
        /// Bytes of those.
        pub stored_bytes: Bytes,
        /// Fragments on their way to it.
        pub in_flight: u32,
        /// Space it keeps for the request, what it holds included; none where it keeps none.
        pub reserved: Bytes,
    }
}

record! {
    /// What a request costs, once it is done as planned.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Cost {
        /// Of sending, requests included, in millionths of a dollar.
        pub send_micro_usd: u64,
        /// Of keeping it a month, in millionths of a dollar.
        pub month_micro_usd: u64,
        /// Of reading all of it once from its depots, in millionths of a dollar.
        pub read_micro_usd: u64,
    }
}

record! {
    /// One request, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RequestView {
        /// The request.
        pub request: RequestId,
        /// What was asked for.
        pub spec: RequestSpec,
        /// What was wished beyond that.
        pub wishes: Wishes,
        /// Depots that must hold their share of every chunk.
        pub pinned: Vec<DepotId>,
        /// Where it stands.
        pub state: RequestState,
        /// Who lets it wait; none while it may go on.
        pub paused: Option<Pause>,
        /// Whether its deadline is in danger, or it was safe and is not any more.
        pub at_risk: bool,
        /// Whether the deadline passed before it was safe.
        pub missed: bool,
        /// Whether it was safe and is not any more.
        pub is_unsafe: bool,
        /// Chunks that nobody who is there can give any more, and that can't be sent again since the source is gone.
        pub chunks_out_of_reach: u32,
        /// Whether its source stays for good, though it was to be removed.
        pub source_kept: bool,
        /// Whether some of its source may be gone: a release began, and did not end.
        pub has_tried_release: bool,
        /// When its source is to be purged, where that is known.
        pub purge_at: Option<Timestamp>,
        /// When it was submitted.
        pub submitted: Timestamp,
        /// When it became safe first.
        pub safe_at: Option<Timestamp>,
        /// When it is forecast to be safe; none once it is, or while no path is up.
        pub finish: Option<Forecast>,
        /// Chunks that are safe.
        pub chunks_safe: u32,
        /// Chunks that were made safe again after a depot was lost.
        pub chunks_repaired: u32,
        /// Sends that were late and were made a second time, since it was last safe.
        pub duplicates: u32,
        /// What it costs, where owners said what their depots cost.
        pub cost: Cost,
        /// What was begun for it costs, with keeping it to the end, in millionths of a dollar.
        pub spent_micro_usd: u64,
        /// How its delivery stands, where it has destinations.
        pub delivery: Option<DeliveryView>,
        /// Files that were left out of it.
        pub omissions: Vec<Omission>,
        /// What each depot does for it, in the user's order.
        pub shares: Vec<ShareView>,
    }
}
