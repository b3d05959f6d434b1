use alloc::string::String;
use core::time::Duration;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    books::Release,
    contract::{Decision, Fault, Happening, Outbox, Reason},
};

/// Most times that a release is tried: for half an hour with the pauses below, longer than a file
/// system is away for a restart.
const RELEASES_MAX: u32 = 7;
/// First pause; each is twice as long as the one before, up to the last.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(3600);

impl Release {
    /// Returns the outcome of a release that failed so many times: it is tried again some times,
    /// unless that can't help.
    pub(crate) fn failed(fault: Fault, attempts: u32, now: Timestamp) -> Reason {
        let is_lasting = matches!(
            fault,
            Fault::SourceChanged | Fault::SourceVanished | Fault::Unremovable | Fault::Corrupt
        );
        if is_lasting || attempts >= RELEASES_MAX {
            return Reason::GaveUp { fault, attempts };
        }
        let pause = AGAIN_AFTER * (1 << attempts.saturating_sub(1).min(16));
        Reason::ReleaseAgain {
            fault,
            attempt: attempts + 1,
            at: now + pause.min(AGAIN_AFTER_MAX),
        }
    }

    /// Returns the state of a release for that reason, and when it is tried again.
    pub(crate) const fn after(reason: &Reason) -> (Self, Option<Timestamp>) {
        if let Reason::ReleaseAgain { at, .. } = reason {
            (Self::Pending, Some(*at))
        } else {
            (Self::Kept, None)
        }
    }
}

/// Note of the decision that names what stays, until the release is known to have failed.
const FILE_STAYS: &str = "a file stays";

impl Mind {
    /// Files of a source stay, and people are told which.
    pub(crate) fn on_file_kept(&mut self, id: RequestId, what: String) {
        let fault = Fault::Unremovable;
        self.remember(id, FILE_STAYS.into(), Reason::SourceFile { fault, what });
    }

    /// Tells that a release failed, and which files stay.
    pub(crate) fn tell_kept(
        &mut self,
        id: RequestId,
        fault: Fault,
        reason: Reason,
        out: &mut Outbox,
    ) {
        let decisions = match self.arrivals.requests.get_mut(&id) {
            Some(arrival) => Some(&mut arrival.decisions),
            None => (self.requests.get_mut(&id)).map(|request| &mut request.decisions),
        };
        let is_named = |last: &Decision| *last.note == *FILE_STAYS;
        let named = decisions.and_then(|decisions| {
            let is_last = decisions.to_vec().last().is_some_and(is_named);
            is_last.then(|| decisions.pop())?
        });
        let Some(Reason::SourceFile { what, .. }) = named.map(|named| named.reason) else {
            return self.tell(out, Some(id), None, Happening::ReleaseFailed, reason);
        };
        let told = Reason::SourceFile { fault, what };
        self.tell(out, Some(id), None, Happening::ReleaseFailed, told);
        if matches!(reason, Reason::ReleaseAgain { .. }) {
            self.remember(id, "the release is tried again".into(), reason);
        }
    }

    /// The source could not be removed; it stays, and people are told.
    pub(crate) fn on_source_kept(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            self.on_outward_kept(id, fault, out);
            return;
        };
        if request.release != Release::Commanded {
            return;
        }
        request.uncommon.release_failures += 1;
        request.uncommon.has_asked_all = false;
        let reason = Release::failed(fault, request.uncommon.release_failures, now);
        (request.release, request.uncommon.release_at) = Release::after(&reason);
        self.tell_kept(id, fault, reason, out);
        self.deliver_if_there(id, out);
        self.forget_if_gone_on(id);
    }
}
