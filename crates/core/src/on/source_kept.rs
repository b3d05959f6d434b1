use core::time::Duration;
use posthaste_types::RequestId;

use crate::{
    Mind,
    books::Release,
    contract::{Fault, Happening, Outbox, Reason},
};

/// Times a release is tried: for half an hour with the pauses below, longer than a file system is away
/// for a restart.
const RELEASES_MAX: u32 = 7;
/// The first pause; each is twice as long as the one before, up to the last.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(3600);

impl Mind {
    /// The source could not be removed; it stays, and people are told. Unless that can't help, it is tried
    /// again, some times.
    pub(crate) fn on_source_kept(&mut self, id: RequestId, fault: Fault, out: &mut Outbox) {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if request.release != Release::Commanded {
            return;
        }
        request.release_failures += 1;
        let attempts = request.release_failures;
        let is_lasting = matches!(fault, Fault::SourceChanged | Fault::SourceVanished);
        let reason = if is_lasting || attempts >= RELEASES_MAX {
            request.release = Release::Kept;
            Reason::GaveUp { fault, attempts }
        } else {
            let pause = AGAIN_AFTER * (1 << attempts.saturating_sub(1).min(16));
            let at = now + pause.min(AGAIN_AFTER_MAX);
            (request.release, request.release_at) = (Release::Pending, Some(at));
            let attempt = attempts + 1;
            Reason::ReleaseAgain { fault, attempt, at }
        };
        self.tell(out, Some(id), None, Happening::ReleaseFailed, reason);
        self.deliver_if_there(id, out);
    }
}
