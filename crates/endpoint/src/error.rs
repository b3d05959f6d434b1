//! The one error of the hands: its kind, the operation, the subject, and whether to retry.

use std::{error, fmt, io, net::SocketAddr, num::NonZeroU32, time::Duration};

use rustix::io::Errno;

use crate::sealed::shown_sealed;

/// Kind of failure, as far as callers decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Missing path, object or bucket.
    NotFound,
    /// Refused by the other side, although it knows us.
    PermissionDenied,
    /// Credentials not accepted, or a key that is not the pinned one.
    Unauthenticated,
    /// No space left, or the lent capacity used up.
    Full,
    /// Bytes that do not match their digest.
    Corrupt,
    /// Source changed while it was read.
    Changed,
    /// Destination occupied, or a lock held.
    Conflict,
    /// The request makes no sense: a bad URL, an unknown scheme, a malformed request.
    Invalid,
    /// Not supported by this endpoint.
    Unsupported,
    /// No connection, or a broken one.
    Unreachable,
    /// No progress for too long.
    TimedOut,
    /// Request of the other side to come back later.
    Busy,
    /// Stopped on request.
    Cancelled,
    /// Any other error.
    Other,
}

/// Retryability of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Failure that recurs with the same request.
    Permanent,
    /// Failure that may pass on a later attempt.
    Temporary,
}

/// Place of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Locus {
    /// End that bytes come from.
    Source,
    /// Network between the two ends.
    Network,
    /// End that bytes go to.
    Destination,
    /// Client: configuration, arguments, our own code.
    Client,
}

/// Error of the crates that act.
///
/// Shown as one line: `can't OPERATION SUBJECT: cause (hint)`.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    status: Status,
    locus: Locus,
    operation: &'static str,
    subject: String,
    context: Vec<(&'static str, String)>,
    cause: Option<Box<dyn error::Error + Send + Sync>>,
    hint: Option<String>,
    /// Pause in milliseconds; small, because every result has room for an error.
    retry_after_ms: Option<NonZeroU32>,
}

/// Result of the hands.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error of `kind` while doing `operation` (a verb: "open", "list") to `subject` (a
    /// path or URL without secrets). The status follows from the kind; the locus starts as the
    /// client.
    pub fn new(kind: ErrorKind, operation: &'static str, subject: impl Into<String>) -> Self {
        let status = match kind {
            ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::Busy => Status::Temporary,
            ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::Unauthenticated
            | ErrorKind::Full
            | ErrorKind::Corrupt
            | ErrorKind::Changed
            | ErrorKind::Conflict
            | ErrorKind::Invalid
            | ErrorKind::Unsupported
            | ErrorKind::Cancelled
            | ErrorKind::Other => Status::Permanent,
        };
        Self {
            kind,
            status,
            locus: Locus::Client,
            operation,
            subject: subject.into(),
            context: Vec::new(),
            cause: None,
            hint: None,
            retry_after_ms: None,
        }
    }

    /// Returns the error about a subject that people call otherwise.
    #[must_use]
    pub fn about(self, subject: impl Into<String>) -> Self {
        let subject = subject.into();
        Self { subject, ..self }
    }

    /// Returns an operating system error while doing `operation` to `subject`.
    pub fn io(operation: &'static str, subject: impl Into<String>, cause: io::Error) -> Self {
        let hint = hint_of_io(operation, &cause);
        let error = Self::new(kind_of_io(&cause), operation, subject).cause(cause);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// Returns the error if nobody can listen at an address; `another` says how to name another
    /// one.
    pub fn listening(address: SocketAddr, cause: io::Error, another: &str) -> Self {
        let why = if cause.kind() == io::ErrorKind::PermissionDenied {
            "ports below 1024 are root's: "
        } else if cause.kind() == io::ErrorKind::AddrNotAvailable {
            "it is no address of this machine: "
        } else {
            "does something run there already? "
        };
        Self::io("listen on", address.to_string(), cause).hint(format!("{why}{another}"))
    }

    /// Sets whether a retry can help, if the kind alone does not decide it.
    #[must_use]
    pub fn status_is(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Returns the error as another kind, which decides whether a retry can help.
    #[must_use]
    pub fn of_kind(self, kind: ErrorKind) -> Self {
        let status = Self::new(kind, self.operation, String::new()).status;
        Self {
            kind,
            status,
            ..self
        }
    }

    /// Sets the place of the error.
    #[must_use]
    pub fn at(mut self, locus: Locus) -> Self {
        self.locus = locus;
        self
    }

    /// Adds a fact for operators. Never a secret.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.context.push((key, value.to_string()));
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<Box<dyn error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Sets the hint for people.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the pause that the other side requested (`Retry-After`), and makes the error temporary.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after_ms = u32::try_from(pause.as_millis())
            .ok()
            .and_then(NonZeroU32::new);
        self.status = Status::Temporary;
        self
    }

    /// Copies the error for another caller that waited for the same. Its cause is kept as the
    /// system's number, or as text.
    #[must_use]
    pub fn retold(&self) -> Self {
        let retell = |cause: &(dyn error::Error + Send + Sync + 'static)| {
            let number = cause.downcast_ref::<io::Error>();
            match number.and_then(io::Error::raw_os_error) {
                Some(number) => io::Error::from_raw_os_error(number).into(),
                None => cause.to_string().into(),
            }
        };
        Self {
            kind: self.kind,
            status: self.status,
            locus: self.locus,
            operation: self.operation,
            subject: self.subject.clone(),
            context: self.context.clone(),
            cause: self.cause.as_deref().map(retell),
            hint: self.hint.clone(),
            retry_after_ms: self.retry_after_ms,
        }
    }

    /// Returns the pause before a retry, if the other side requested one.
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after_ms
            .map(|pause_ms| Duration::from_millis(pause_ms.get().into()))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether trying again can help.
    pub fn is_temporary(&self) -> bool {
        self.status == Status::Temporary
    }

    /// Returns whether everything else would fail so at the same destination: it is full, or can't
    /// be written at all.
    pub fn concerns_everything(&self) -> bool {
        let cause = std::error::Error::source(self);
        let cause = cause.and_then(|cause| cause.downcast_ref::<std::io::Error>());
        self.kind == ErrorKind::Full
            || cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Returns the place of the error.
    pub fn locus(&self) -> Locus {
        self.locus
    }

    /// Returns the facts added for operators.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.context
    }

    /// Returns the failed operation: a verb.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the subject of the operation.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the underlying error in words; without one, the kind of failure.
    pub fn cause_text(&self) -> String {
        match &self.cause {
            Some(cause) => cause.to_string(),
            None => self.code().replace('-', " "),
        }
    }

    /// Returns the hint, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the name of the page under `docs/errors/` that explains this error.
    pub fn code(&self) -> &'static str {
        match self.kind {
            ErrorKind::NotFound => "not-found",
            ErrorKind::PermissionDenied => "permission-denied",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::Full => "full",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Changed => "changed",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::TimedOut => "timed-out",
            ErrorKind::Busy => "busy",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Other => "other",
        }
    }
}

/// Returns the error for an operation that an endpoint lacks.
pub(crate) fn unsupported(operation: &'static str, subject: String) -> Error {
    Error::new(ErrorKind::Unsupported, operation, subject)
        .cause("this endpoint can't")
        .hint("`posthaste endpoints` shows what each one can")
}

/// Returns the error that a server's operating system reported of one file.
pub(crate) fn server_says(message: &str) -> io::Error {
    io::Error::other(format!("the server says: {message}"))
}

/// Returns the hint for a system error, if it is the same for all files.
fn hint_of_io(operation: &str, cause: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(cause)? {
        Errno::INVAL if matches!(operation, "write" | "make directory") => {
            Some("its file system may not take such a name: rename it")
        }
        Errno::IO => Some("the disk, or the server behind it, fails: see the system's log"),
        Errno::STALE => Some("its server was set up anew: run the same command again"),
        Errno::NAMETOOLONG | Errno::ILSEQ => Some("rename it"),
        Errno::FBIG => Some("its file system takes no file as large: use another one"),
        Errno::MFILE | Errno::NFILE => Some("raise the limit of open files: ulimit -n"),
        Errno::ROFS => Some("it is mounted to be read only"),
        _ => None,
    }
}

fn kind_of_io(cause: &io::Error) -> ErrorKind {
    use io::ErrorKind as Io;
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "std's list is open and will grow"
    )]
    match cause.kind() {
        Io::NotFound | Io::NotADirectory => ErrorKind::NotFound,
        Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::PermissionDenied,
        Io::StorageFull | Io::QuotaExceeded => ErrorKind::Full,
        Io::FileTooLarge => ErrorKind::Unsupported,
        Io::AlreadyExists | Io::DirectoryNotEmpty | Io::IsADirectory => ErrorKind::Conflict,
        Io::ConnectionRefused
        | Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::NotConnected
        | Io::BrokenPipe
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::AddrNotAvailable
        | Io::UnexpectedEof => ErrorKind::Unreachable,
        Io::TimedOut => ErrorKind::TimedOut,
        Io::InvalidInput | Io::InvalidData | Io::InvalidFilename => ErrorKind::Invalid,
        Io::Unsupported => ErrorKind::Unsupported,
        Io::ResourceBusy | Io::AddrInUse => ErrorKind::Conflict,
        _ => ErrorKind::Other,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't {} {}: ", self.operation, OneLine(&self.subject))?;
        match &self.cause {
            Some(cause) => write!(f, "{}", OneLine(&cause.to_string()))?,
            None => write!(f, "{}", self.code().replace('-', " "))?,
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// A name without the characters that would break the line or the terminal.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown_sealed(self.0).chars().try_for_each(|c| {
            if posthaste_types::is_obeyed(c) {
                write!(f, "{}", c.escape_default())
            } else {
                write!(f, "{c}")
            }
        })
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause)
    }
}

/// Returns the error for an endpoint without symbolic links.
pub(crate) fn no_links(subject: String) -> Error {
    Error::new(ErrorKind::Unsupported, "make link", subject)
        .cause("no symbolic links can be there")
        .hint("--links follow copies what links point to, --links skip leaves them out")
        .at(Locus::Destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_told_again_says_the_same() {
        let cause = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Error::io("list", "/closed", cause)
            .hint("ask its owner")
            .with("asked by", "alice")
            .at(Locus::Source)
            .retry_after(Duration::from_secs(2));
        let again = error.retold();
        assert_eq!(again.to_string(), error.to_string());
        assert_eq!(again.kind(), ErrorKind::PermissionDenied);
        assert_eq!(again.locus(), Locus::Source);
        assert_eq!(again.context(), error.context());
        assert_eq!((again.pause(), again.is_temporary()), (error.pause(), true));
    }
}
