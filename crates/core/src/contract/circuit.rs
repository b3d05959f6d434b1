use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr, time::Duration};
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId, ReservationId, Timestamp, record};

record! {
    /// On which terms rate on the way to some depots can be reserved.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct CircuitTerms {
        /// The name people use.
        pub name: String,
        /// Depots that it leads to.
        pub depots: Vec<DepotId>,
        /// Most that may be reserved.
        pub rate_max: ByteRate,
        /// Time from asking until data can flow.
        pub lead: Duration,
        /// The shortest that may be reserved.
        pub least: Duration,
        /// What an hour of it costs, in millionths of a dollar.
        pub hour_micro_usd: u64,
        /// Names of the ways to its depots that lie on it; none where all of them do.
        pub ways: Vec<String>,
    }
}

impl CircuitTerms {
    /// What so long costs, in millionths of a dollar: begun seconds count.
    #[must_use]
    pub fn cost(&self, span: Duration) -> u64 {
        let seconds = u128::from(span.as_secs()) + u128::from(span.subsec_nanos() > 0);
        let cost = (u128::from(self.hour_micro_usd) * seconds).div_ceil(3600);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

record! {
    /// Whether rate is reserved for a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Reserve {
        /// Where its deadline asks for it and the time to set it up pays.
        #[default]
        0 = Auto,
        /// Wherever it can be.
        1 = Always,
        /// Not at all.
        2 = Never,
    }
}

/// No such word for whether rate is reserved.
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
    /// What became of a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum News {
        /// It is granted as asked.
        0 = Granted,
        /// It is not.
        1 = Refused {
            /// What would have been, over the same time, where that is known.
            fits: Option<ByteRate>,
        },
        /// It was changed as asked.
        2 = Changed,
        /// It could not be changed: it is as before.
        3 = Unchanged,
        /// Data can flow.
        4 = Up,
        /// Data goes the way it goes without, for now.
        5 = Down,
        /// It is over: given back, or its time has passed.
        6 = Over,
        /// It is over before its time, and nobody asked for that.
        7 = Failed,
        /// It can't be asked for.
        8 = Unobtainable {
            /// Why.
            why: Obstacle,
        },
    }
}

record! {
    /// Why a reservation can't be asked for, whatever its owner's calendar would say.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Obstacle {
        /// Its owner does not know us, or does not let us.
        0 = NotKnown,
        /// Its owner makes no sense of the question, or can't do what it asks.
        1 = NotUnderstood,
        /// Its circuit is not open here any more.
        2 = NotOpen,
    }
}

record! {
    /// Where a reservation stands.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ReservationState {
        /// No answer yet.
        0 = Asked,
        /// Granted, and not up yet.
        1 = Granted,
        /// Data flows at its rate.
        2 = Up,
        /// It should be up, and is not.
        3 = Down,
        /// Being given back.
        4 = Returning,
    }
}

impl ReservationState {
    /// The word people and programs know it by.
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
    /// What happened to a reservation of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step {
        /// It is asked for.
        0 = Asked,
        /// It is granted.
        1 = Granted,
        /// It is refused.
        2 = Refused,
        /// Data flows at its rate from now on.
        3 = Up,
        /// Data goes at best effort from now on.
        4 = Down,
        /// Another rate or another end is asked for.
        5 = Changing,
        /// It has another rate or another end.
        6 = Changed,
        /// It could not be changed.
        7 = Unchanged,
        /// It is being given back.
        8 = Returned,
        /// It is over.
        9 = Ended,
        /// It goes on for another request.
        10 = Passed,
        /// It can't be asked for.
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
    /// One reservation, as the mind sees it now.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ReservationView {
        /// The reservation.
        pub reservation: ReservationId,
        /// For this request.
        pub request: RequestId,
        /// On this circuit.
        pub circuit: CircuitId,
        /// The name people use for that.
        pub name: String,
        /// Depots that it leads to and its request uses.
        pub depots: Vec<DepotId>,
        /// How much, all of them together.
        pub rate: ByteRate,
        /// From when.
        pub from: Timestamp,
        /// Until when.
        pub until: Timestamp,
        /// Where it stands.
        pub state: ReservationState,
        /// What it costs for its whole time, in millionths of a dollar.
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
