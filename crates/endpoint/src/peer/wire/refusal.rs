//! Refusals as they cross the network.

use std::io;

use posthaste_types::record;

use crate::{Error, ErrorKind};

record! {
    /// Reason why an operation failed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Refusal {
        /// Kind as a number of [`kind_number`]; unknown ones are "other".
        pub kind: u32,
        /// Message of the error.
        pub message: String,
        /// Hint for the user.
        pub hint: Option<String>,
        /// True if a retry can help.
        pub temporary: bool,
        /// Pause before a retry, in milliseconds.
        pub pause_ms: Option<u32>,
    }
}

impl Refusal {
    /// Converts an error for the network: its path stays behind.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        Self {
            kind: kind_number(error.kind()),
            message: error.cause_text(),
            hint: error.advice().map(str::to_owned),
            temporary: error.is_temporary(),
            pause_ms: error
                .pause()
                .and_then(|pause| u32::try_from(pause.as_millis()).ok()),
        }
    }

    /// Creates a refusal of `kind`.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind: kind_number(kind),
            message: message.into(),
            hint: None,
            temporary: Error::new(kind, "", "").is_temporary(),
            pause_ms: None,
        }
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the error that it means for `operation` on `subject`: from here it looks like one of
    /// the remote operating system.
    #[must_use]
    pub fn into_error(self, operation: &'static str, subject: String) -> Error {
        let mut error = Error::new(number_kind(self.kind), operation, subject)
            .cause(io::Error::other(self.message));
        if let Some(hint) = self.hint {
            error = error.hint(hint);
        }
        error = error.status_is(if self.temporary {
            crate::Status::Temporary
        } else {
            crate::Status::Permanent
        });
        match self.pause_ms {
            Some(pause_ms) => error.retry_after(std::time::Duration::from_millis(pause_ms.into())),
            None => error,
        }
    }
}

/// Returns the number of a kind in refusals. A number is never given to another kind.
#[must_use]
pub const fn kind_number(kind: ErrorKind) -> u32 {
    match kind {
        ErrorKind::Other => 0,
        ErrorKind::NotFound => 1,
        ErrorKind::PermissionDenied => 2,
        ErrorKind::Unauthenticated => 3,
        ErrorKind::Full => 4,
        ErrorKind::Corrupt => 5,
        ErrorKind::Changed => 6,
        ErrorKind::Conflict => 7,
        ErrorKind::Invalid => 8,
        ErrorKind::Unsupported => 9,
        ErrorKind::Unreachable => 10,
        ErrorKind::TimedOut => 11,
        ErrorKind::Busy => 12,
        ErrorKind::Cancelled => 13,
    }
}

/// Returns the kind that a number in a refusal means.
#[must_use]
pub const fn number_kind(number: u32) -> ErrorKind {
    match number {
        1 => ErrorKind::NotFound,
        2 => ErrorKind::PermissionDenied,
        3 => ErrorKind::Unauthenticated,
        4 => ErrorKind::Full,
        5 => ErrorKind::Corrupt,
        6 => ErrorKind::Changed,
        7 => ErrorKind::Conflict,
        8 => ErrorKind::Invalid,
        9 => ErrorKind::Unsupported,
        10 => ErrorKind::Unreachable,
        11 => ErrorKind::TimedOut,
        12 => ErrorKind::Busy,
        13 => ErrorKind::Cancelled,
        _ => ErrorKind::Other,
    }
}
