use alloc::string::String;
use core::time::Duration;
use posthaste_types::{RequestId, Timestamp};

use crate::{
    apply,
    apply::tell::FILE_STAYS,
    contract::{Fault, Outbox, Reason},
    state,
    state::{Release, State},
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

/// Files of a source stay, and people are told which.
pub(crate) fn on_file_kept(state: &mut State, id: RequestId, what: String) {
    let fault = Fault::Unremovable;
    state::memory::remember(
        state,
        id,
        FILE_STAYS.into(),
        Reason::SourceFile { fault, what },
    );
}

/// The source could not be removed; it stays, and people are told.
pub(crate) fn on_source_kept(state: &mut State, id: RequestId, fault: Fault, out: &mut Outbox) {
    let now = state.now;
    let Some(request) = state.requests.get_mut(&id) else {
        apply::stage_in::outward::on_outward_kept(state, id, fault, out);
        return;
    };
    if request.release != Release::Commanded {
        return;
    }
    request.uncommon.release_failures += 1;
    request.uncommon.has_asked_all = false;
    let reason = Release::failed(fault, request.uncommon.release_failures, now);
    (request.release, request.uncommon.release_at) = Release::after(&reason);
    apply::tell::tell_kept(state, id, fault, reason, out);
    apply::settle::deliver_if_there(state, id, out);
    apply::stage_in::onward_end::forget_if_gone_on(state, id);
}
