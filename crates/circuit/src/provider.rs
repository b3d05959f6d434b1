//! Interface of bandwidth providers.

use std::{fmt, time::Duration};

use posthaste_endpoint::{Boxed, Error, ErrorKind, Result};
use posthaste_types::{ByteRate, Bytes, Timestamp};

use crate::rate::show_rate;

/// Longest key of a request, in bytes: the name of a posthaste request and a number.
pub const KEY_BYTES_MAX: usize = 64;

/// Provider's name of a reservation, without meaning to anything else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(String);

impl Id {
    /// Wraps a name as the provider wrote it.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the name as the provider wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Rate and span of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Rate in each direction.
    pub rate: ByteRate,
    /// Start of the span.
    pub from: Timestamp,
    /// End of the span.
    pub until: Timestamp,
}

impl Terms {
    /// Returns the bytes that the reservation carries from start to end.
    #[must_use]
    pub fn volume(&self) -> Bytes {
        self.rate.volume(self.until.since(self.from))
    }
}

/// Bandwidth that is requested of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Fixed rate over a span.
    Fixed(Terms),
    /// Volume between two moments, in one piece of one rate that the provider chooses.
    Volume {
        /// Size of the volume.
        bytes: Bytes,
        /// Earliest start.
        earliest: Timestamp,
        /// Latest end.
        deadline: Timestamp,
        /// Highest rate.
        rate_max: ByteRate,
    },
}

/// Request for bandwidth between the circuit's ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Key that the caller makes up: new for each reservation, the same when the request is
    /// repeated. At most [`KEY_BYTES_MAX`] bytes of ASCII letters, digits, `-`, `_` and `.`.
    pub key: String,
    /// Bandwidth that is requested.
    pub what: What,
}

/// Reservation that is held until it is committed or expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Provider's name of the reservation.
    pub id: Id,
    /// Expiry of the hold; `None` if the provider does not report it.
    pub expires: Option<Timestamp>,
    /// Granted terms: the requested rate rounded up to the provider's unit, and the placement of a
    /// volume.
    pub granted: Terms,
}

/// Refusal by the provider's calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Provider's reason, in one line.
    pub why: String,
    /// Rate available over the same time, if the provider reports it.
    pub fits: Option<ByteRate>,
}

/// Answer to a request that the provider may refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// Granted request.
    Granted(T),
    /// Request refused by the calendar; nothing has changed.
    Refused(Refusal),
}

impl Refusal {
    /// Refuses a rate above the circuit's.
    pub(crate) fn above(rate_max: ByteRate) -> Self {
        Self {
            why: format!("the circuit has no more than {}", show_rate(rate_max)),
            fits: Some(rate_max),
        }
    }
}

impl<T> Answer<T> {
    /// Refuses a rate above the circuit's.
    pub(crate) fn above(rate_max: ByteRate) -> Self {
        Self::Refused(Refusal::above(rate_max))
    }

    /// Refuses a volume that no rate completes by its deadline.
    pub(crate) fn too_much() -> Self {
        Self::because("all of the circuit's rate would be done after the deadline")
    }

    /// Refuses for this reason, without a rate that would fit.
    pub(crate) fn because(why: &str) -> Self {
        Self::Refused(Refusal {
            why: why.to_owned(),
            fits: None,
        })
    }
}

/// Checks the form of a key.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(crate) fn check_key(key: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=KEY_BYTES_MAX).contains(&key.len()) && key.chars().all(plain) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Invalid, "ask for bandwidth under", key);
    Err(error.cause(format!(
        "a key has 1 to {KEY_BYTES_MAX} letters, digits, `-`, `_` or `.`"
    )))
}

/// Change of a reservation. Fields without a value stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// New rate.
    pub rate: Option<ByteRate>,
    /// New start.
    pub from: Option<Timestamp>,
    /// New end: later or earlier.
    pub until: Option<Timestamp>,
}

/// State of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Reservation held until it expires or is committed.
    Held {
        /// Expiry; `None` if the provider does not report it.
        expires: Option<Timestamp>,
    },
    /// Committed reservation that does not carry data yet.
    Reserved,
    /// Reservation that carries data at its rate.
    Up,
    /// Reservation that ended, was released, or whose hold expired.
    Over,
    /// Reservation that can't carry data, although nobody released it.
    Failed,
}

impl State {
    /// Returns the word for the state, in answers and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held { .. } => "held",
            Self::Reserved => "reserved",
            Self::Up => "up",
            Self::Over => "over",
            Self::Failed => "failed",
        }
    }
}

/// Provider's view of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Provider's name of the reservation.
    pub id: Id,
    /// Key of the request, if the provider keeps it.
    pub key: Option<String>,
    /// Terms; `None` if the provider forgets those of finished reservations.
    pub terms: Option<Terms>,
    /// State of the reservation.
    pub state: State,
    /// Start of that state, if the provider reports it.
    pub since: Option<Timestamp>,
}

/// Operations that a provider supports, and its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Shortest reservation.
    pub least: Duration,
    /// Time from the commit until data can flow.
    pub lead: Duration,
    /// Unit of which rates are multiples.
    pub rate_step: ByteRate,
    /// True if the end can be moved.
    pub moves_end: bool,
    /// True if the start can be moved before it has come.
    pub moves_start: bool,
    /// True if the rate can be changed.
    pub changes_rate: bool,
}

/// Provider of bandwidth on one [`Circuit`](crate::Circuit).
///
/// All calls can be repeated: after a lost answer the same call returns the first one's result. No
/// call waits longer than the provider's timeout. A dropped call may or may not have reached the
/// provider.
///
/// # Errors
/// All calls fail with `Unauthenticated` or `PermissionDenied` if the provider does not accept our
/// credential; `Unreachable`, `TimedOut` or `Busy` if a retry may help; `Invalid` for an invalid
/// request; `Unsupported` if [`Capabilities`] exclude it; `NotFound` for an unknown reservation;
/// `Other` for an invalid answer.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Returns the operations that it supports.
    fn capabilities(&self) -> Capabilities;

    /// Holds bandwidth for a short while. A repeated key returns the reservation under it.
    fn hold<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Result<Answer<Held>>>;

    /// Commits a hold; does nothing if it is already committed. Refused if the hold has expired.
    fn commit<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Answer<()>>>;

    /// Changes a committed reservation, and returns its new terms. If refused, the reservation is
    /// unchanged.
    fn modify<'a>(&'a self, id: &'a Id, change: &'a Change) -> Boxed<'a, Result<Answer<Terms>>>;

    /// Releases a held or committed reservation; does nothing if it is over or unknown.
    fn release<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<()>>;

    /// Returns the status of a reservation.
    fn status<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Status>>;

    /// Lists all our reservations that the provider knows and that are not over.
    fn list(&self) -> Boxed<'_, Result<Vec<Status>>>;
}
