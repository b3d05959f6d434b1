//! The shape of everybody who sells bandwidth.

use std::{fmt, time::Duration};

use posthaste_endpoint::{Boxed, Error, ErrorKind, Result};
use posthaste_types::{ByteRate, Bytes, Timestamp};

use crate::rate::show_rate;

/// Longest key of an ask, in bytes: a request's name and a number.
pub const KEY_BYTES_MAX: usize = 64;

/// The name that a provider knows a reservation by. Of no meaning to anybody else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(String);

impl Id {
    /// The name as its provider wrote it.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// As it goes back to its provider.
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

/// How fast, from when until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// In either direction.
    pub rate: ByteRate,
    /// From when.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

impl Terms {
    /// What passes over it from first to last.
    #[must_use]
    pub fn volume(&self) -> Bytes {
        self.rate.volume(self.until.since(self.from))
    }
}

/// What is wanted of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One rate over a span.
    Fixed(Terms),
    /// So many bytes between two moments, in one piece of one rate that its provider chooses.
    Volume {
        /// How many.
        bytes: Bytes,
        /// Not before.
        earliest: Timestamp,
        /// All of them by then.
        deadline: Timestamp,
        /// Never faster.
        rate_max: ByteRate,
    },
}

/// A question for bandwidth. Its ends are the circuit's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Made up by who asks, new for each reservation, the same when the question is repeated. At most
    /// [`KEY_BYTES_MAX`] bytes of ASCII letters, digits, `-`, `_` and `.`.
    pub key: String,
    /// What is wanted.
    pub what: What,
}

/// What is kept for who asked, until it is committed or expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The provider's name of it.
    pub id: Id,
    /// When it is gone unless it is committed; the provider does not say without.
    pub expires: Option<Timestamp>,
    /// What was granted: the asked rate rounded up to what the provider counts in, and where a volume was put.
    pub granted: Terms,
}

/// Why the calendar says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The provider's words, in one line.
    pub why: String,
    /// The rate that would be had over the same time, where the provider says so.
    pub fits: Option<ByteRate>,
}

/// What a provider answers that was asked for something it may refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// It is so.
    Granted(T),
    /// The calendar says no. Nothing has changed.
    Refused(Refusal),
}

impl Refusal {
    /// More than there is of the circuit.
    pub(crate) fn above(rate_max: ByteRate) -> Self {
        Self {
            why: format!("the circuit has no more than {}", show_rate(rate_max)),
            fits: Some(rate_max),
        }
    }
}

impl<T> Answer<T> {
    /// More than there is of the circuit.
    pub(crate) fn above(rate_max: ByteRate) -> Self {
        Self::Refused(Refusal::above(rate_max))
    }

    /// A volume that can't be done by its deadline at any rate.
    pub(crate) fn too_much() -> Self {
        Self::because("all of the circuit's rate would be done after the deadline")
    }

    /// For this reason, and nobody knows what would fit.
    pub(crate) fn because(why: &str) -> Self {
        Self::Refused(Refusal {
            why: why.to_owned(),
            fits: None,
        })
    }
}

/// Checks that a key is one.
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

/// What of a reservation is to change. What is left out stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Another rate.
    pub rate: Option<ByteRate>,
    /// Another start.
    pub from: Option<Timestamp>,
    /// Another end: later, or earlier.
    pub until: Option<Timestamp>,
}

/// Where a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Kept until then, unless it is committed before; the provider does not say until when without.
    Held {
        /// The moment.
        expires: Option<Timestamp>,
    },
    /// It lasts until its end, and does not carry data yet.
    Reserved,
    /// Data flows at its rate.
    Up,
    /// Its time has passed, it was released, or its hold expired.
    Over,
    /// It can't carry data, and nobody asked for that.
    Failed,
}

impl State {
    /// The word for it, in answers and documents.
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

/// What a provider knows of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The provider's name of it.
    pub id: Id,
    /// The key it was asked for with, where the provider keeps that.
    pub key: Option<String>,
    /// On which terms; a provider that has forgotten what is over does not say.
    pub terms: Option<Terms>,
    /// Where it stands.
    pub state: State,
    /// Since when it stands there, where the provider says so.
    pub since: Option<Timestamp>,
}

/// What a provider can and can't do, and in which steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The shortest it reserves.
    pub least: Duration,
    /// Time from the commit until data can flow.
    pub lead: Duration,
    /// Rates are multiples of this.
    pub rate_step: ByteRate,
    /// The end can be moved.
    pub moves_end: bool,
    /// The start can be moved before it has come.
    pub moves_start: bool,
    /// The rate can be changed.
    pub changes_rate: bool,
}

/// Who sells bandwidth on one [`Circuit`](crate::Circuit).
///
/// All calls can be repeated: after a lost answer the same call gives what the first one would have given.
/// None waits longer than the provider's time-out; a call that is dropped may or may not have been heard.
///
/// # Errors
/// Of all calls: `Unauthenticated` and `PermissionDenied` where the provider does not take our credential, `Unreachable`,
/// `TimedOut` and `Busy` where asking again may help, `Invalid` where the question makes no sense, `Unsupported` where
/// [`Capabilities`] say so, `NotFound` for a reservation it does not know, `Other` for an answer that makes no sense.
pub trait Provider: fmt::Debug + Send + Sync {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Keeps what is asked for, for a short while. Asked again with the same key: what is kept under it.
    fn hold<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Result<Answer<Held>>>;

    /// Makes a hold last. Of what is committed: nothing more. A hold that has expired is refused.
    fn commit<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Answer<()>>>;

    /// Changes what is committed; gives its terms then. Refused, it is as before.
    fn modify<'a>(&'a self, id: &'a Id, change: &'a Change) -> Boxed<'a, Result<Answer<Terms>>>;

    /// Gives it back, held or committed. Of what is over or unknown: nothing more.
    fn release<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<()>>;

    /// Where it stands.
    fn status<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Status>>;

    /// All of ours that it knows and that are not over.
    fn list(&self) -> Boxed<'_, Result<Vec<Status>>>;
}
