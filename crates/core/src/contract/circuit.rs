use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr, time::Duration};
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId, ReservationId, Timestamp, record};

record! {
    /// Terms on which rate to some depots can be reserved.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct CircuitTerms {
        /// Name shown to people.
        pub name: String,
        /// Depots that the circuit leads to.
        pub depots: Vec<DepotId>,
        /// Largest rate that may be reserved.
        pub rate_max: ByteRate,
        /// Time from the reservation to the first data.
        pub lead: Duration,
        /// Shortest reservation.
        pub least: Duration,
        /// Price of an hour, in millionths of a dollar.
        pub hour_micro_usd: u64,
        /// Names of the ways to its depots that the circuit carries; none if it carries all.
        pub ways: Vec<String>,
    }
}

impl CircuitTerms {
    /// Returns the price of such a span, in millionths of a dollar: begun seconds count.
    #[must_use]
    pub fn cost(&self, span: Duration) -> u64 {
        let seconds = u128::from(span.as_secs()) + u128::from(span.subsec_nanos() > 0);
        let cost = (u128::from(self.hour_micro_usd) * seconds).div_ceil(3600);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

record! {
    /// Reservation of rate for a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Reserve {
        /// Reserves where the deadline needs it and the setup time pays.
        #[default]
        0 = Auto,
        /// Reserves wherever possible.
        1 = Always,
        /// Never reserves.
        2 = Never,
    }
}

/// Unknown word for a reservation policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveError;

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rate is reserved auto, always or never")
    }
}

impl core::error::Error for ReserveError {}

impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

impl FromStr for Reserve {
    type Err = ReserveError;

    fn from_str(text: &str) -> Result<Self, ReserveError> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(ReserveError),
        }
    }
}

record! {
    /// Result of a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum News {
        /// Granted as asked.
        0 = Granted,
        /// Refused.
        1 = Refused {
            /// Rate that would fit into the same time, if known.
            fits: Option<ByteRate>,
        },
        /// Changed as asked.
        2 = Changed,
        /// Unchanged: the change was refused.
        3 = Unchanged,
        /// Data can flow.
        4 = Up,
        /// Interrupted: data takes the way without a reservation for now.
        5 = Down,
        /// Over: given back or expired.
        6 = Over,
        /// Ended before its time, unasked.
        7 = Failed,
        /// Unobtainable.
        8 = Unobtainable {
            /// Reason.
            why: Obstacle,
        },
    }
}

record! {
    /// Obstacle to any reservation, whatever the calendar of the circuit's owner.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Obstacle {
        /// The owner does not know us or gives us no permission.
        0 = NotKnown,
        /// The owner does not understand the request, or can't serve it.
        1 = NotUnderstood,
        /// The circuit is no longer open here.
        2 = NotOpen,
    }
}

record! {
    /// State of a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReservationState {
        /// No answer yet.
        0 = Asked,
        /// Granted, not up yet.
        1 = Granted,
        /// Data flows at its rate.
        2 = Up,
        /// Down although it should be up.
        3 = Down,
        /// Being given back.
        4 = Returning,
    }
}

impl ReservationState {
    /// Returns the name shown to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Granted => "granted",
            Self::Up => "up",
            Self::Down => "down",
            Self::Returning => "returning",
        }
    }
}

record! {
    /// Step in the life of a request's reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step {
        /// Asked for.
        0 = Asked,
        /// Granted.
        1 = Granted,
        /// Refused.
        2 = Refused,
        /// Data flows at the reserved rate from now on.
        3 = Up,
        /// Data goes at best effort from now on.
        4 = Down,
        /// Change of rate or end asked for.
        5 = Changing,
        /// Rate or end changed.
        6 = Changed,
        /// Change refused.
        7 = Unchanged,
        /// Being given back.
        8 = Returned,
        /// Over.
        9 = Ended,
        /// Passed on to another request.
        10 = Passed,
        /// Unobtainable.
        11 = Unobtainable,
    }
}

impl Step {
    named! {
        Self::Asked => "reservation-asked",
        Self::Granted => "reservation-granted",
        Self::Refused => "reservation-refused",
        Self::Up => "circuit-up",
        Self::Down => "circuit-down",
        Self::Changing => "reservation-changing",
        Self::Changed => "reservation-changed",
        Self::Unchanged => "reservation-unchanged",
        Self::Returned => "reservation-returned",
        Self::Ended => "reservation-ended",
        Self::Passed => "reservation-passed",
        Self::Unobtainable => "reservation-unobtainable"
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "reservation asked for",
            Self::Granted => "reserved",
            Self::Refused => "reservation refused",
            Self::Up => "circuit up",
            Self::Down => "circuit down",
            Self::Changing => "change of a reservation asked for",
            Self::Changed => "reservation changed",
            Self::Unchanged => "reservation not changed",
            Self::Returned => "reservation given back",
            Self::Ended => "reservation over",
            Self::Passed => "reservation passed on",
            Self::Unobtainable => "reservation can't be had",
        })
    }
}

record! {
    /// State of a reservation, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReservationView {
        /// The reservation.
        pub reservation: ReservationId,
        /// Request it serves.
        pub request: RequestId,
        /// Circuit it is on.
        pub circuit: CircuitId,
        /// Name shown to people.
        pub name: String,
        /// Depots that it leads to and its request uses.
        pub depots: Vec<DepotId>,
        /// Rate for all depots together.
        pub rate: ByteRate,
        /// Start.
        pub from: Timestamp,
        /// End.
        pub until: Timestamp,
        /// State.
        pub state: ReservationState,
        /// Price of its whole time, in millionths of a dollar.
        pub cost_micro_usd: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn whether_to_reserve_is_read_as_it_is_shown() {
        for text in ["auto", "always", "never"] {
            assert_eq!(text.parse::<Reserve>().unwrap().to_string(), text);
        }
        assert!("maybe".parse::<Reserve>().is_err());
        assert_eq!(Reserve::default(), Reserve::Auto);
    }

    #[test]
    fn begun_seconds_are_paid() {
        let terms = CircuitTerms {
            hour_micro_usd: 7_200_000,
            ..CircuitTerms::default()
        };
        assert_eq!(terms.cost(Duration::from_secs(90)), 180_000);
        assert_eq!(terms.cost(Duration::from_millis(89_001)), 180_000);
        assert_eq!(terms.cost(Duration::ZERO), 0);
    }
}
