//! Converts errors to faults of the mind.

use posthaste_core::contract::Fault;
use posthaste_endpoint::{Error, ErrorKind, Locus};

/// Returns the fault for an error of the hands. Logs one that the mind only knows as another.
pub(crate) fn fault_of(error: &Error) -> Fault {
    if error.locus() == Locus::Source {
        return fault_of_source(error.kind());
    }
    logged(error, fault_of_kind(error.kind()))
}

fn logged(error: &Error, fault: Fault) -> Fault {
    if fault == Fault::Other {
        tracing::warn!("{error}");
    }
    fault
}

/// Returns the fault for an error at a source.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "ErrorKind may grow; the rest may pass"
)]
pub(crate) fn fault_of_source(kind: ErrorKind) -> Fault {
    match kind {
        ErrorKind::NotFound => Fault::SourceVanished,
        ErrorKind::Changed | ErrorKind::Corrupt => Fault::SourceChanged,
        ErrorKind::PermissionDenied
        | ErrorKind::Unauthenticated
        | ErrorKind::Unsupported
        | ErrorKind::Invalid => Fault::SourceUnreadable,
        _ => Fault::SourceStalled,
    }
}

/// Returns the fault for an unusable source or record of a request here: no depot caused it.
pub(crate) fn fault_of_ours(error: &Error) -> Fault {
    match error.locus() == Locus::Source {
        true => fault_of_source(error.kind()),
        false => Fault::SourceStalled,
    }
}

/// Returns the fault for a depot that was to push to another. No source caused it, but the depot
/// may no longer hold the fragment.
pub(crate) fn fault_of_forward(error: &Error) -> Fault {
    if error.locus() == Locus::Source && error.kind() == ErrorKind::NotFound {
        Fault::SourceVanished
    } else {
        logged(error, fault_of_kind(error.kind()))
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "ErrorKind may grow; the rest is alike"
)]
pub(crate) fn fault_of_kind(kind: ErrorKind) -> Fault {
    match kind {
        ErrorKind::Unreachable | ErrorKind::TimedOut => Fault::Unreachable,
        ErrorKind::Full => Fault::Full,
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => Fault::Unauthenticated,
        ErrorKind::Corrupt => Fault::Corrupt,
        ErrorKind::Busy => Fault::Busy,
        _ => Fault::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_says_nothing_of_a_source_s_files_may_pass() {
        let told = |cause: Errno| {
            let error = Error::io("read", "/scratch/a", io::Error::from(cause));
            fault_of(&error.at(Locus::Source))
        };
        for cause in [
            Errno::IO,
            Errno::STALE,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::NFILE,
            Errno::TIMEDOUT,
        ] {
            assert_eq!(told(cause), Fault::SourceStalled, "{cause}");
        }
        assert_eq!(told(Errno::NOENT), Fault::SourceVanished);
        assert_eq!(told(Errno::ACCESS), Fault::SourceUnreadable);
    }

    #[test]
    fn what_is_damaged_here_is_no_depot_s_fault() {
        let error = Error::new(
            posthaste_endpoint::ErrorKind::Corrupt,
            "read",
            "the journal",
        );
        assert_eq!(fault_of_ours(&error), Fault::SourceStalled);
        let source = error.at(Locus::Source);
        assert_eq!(fault_of_ours(&source), Fault::SourceChanged);
    }
}
