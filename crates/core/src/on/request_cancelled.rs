use alloc::vec::Vec;
use posthaste_types::{DepotId, RequestId};

use crate::{
    Mind,
    books::Release,
    contract::{ArrivalState, Command, Fault, Happening, Outbox, Reason, RequestState},
};

impl Mind {
    /// Cancels a request at a user's request. What the depots hold is deleted only while the source
    /// is there.
    pub(crate) fn on_request_cancelled(&mut self, id: RequestId, out: &mut Outbox) {
        if self.is_stage_in(id) {
            self.cancel_arrival(id, out);
            return;
        }
        if let Some(held) = self.release_held(id) {
            self.requests.insert(id, held);
        }
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        // A release that failed may have removed some files: depots hold the only copy of those.
        let is_gone = request.state == RequestState::Released || request.has_tried_release();
        if request.is_final() || is_gone {
            return;
        }
        self.end(
            id,
            RequestState::Cancelled,
            Happening::Cancelled,
            Reason::Asked,
            out,
        );
    }

    /// Fails a request that can't go on; the source is untouched.
    pub(crate) fn fail(&mut self, id: RequestId, reason: Reason, out: &mut Outbox) {
        self.end(id, RequestState::Failed, Happening::Failed, reason, out);
    }

    fn end(
        &mut self,
        id: RequestId,
        state: RequestState,
        happening: Happening,
        reason: Reason,
        out: &mut Outbox,
    ) {
        self.abandon_all(id, &reason, out);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.state = state;
        let used = request.lanes.iter().filter(|lane| lane.is_used);
        let used: Vec<DepotId> = used.map(|lane| lane.depot).collect();
        // If the source is gone, depots may hold the only copy: it stays until it expires.
        let is_gone = matches!(
            reason,
            Reason::Source {
                fault: Fault::SourceVanished
            } | Reason::SourceFile {
                fault: Fault::SourceVanished,
                ..
            }
        );
        let is_gone = is_gone || request.has_tried_release();
        if !is_gone && matches!(request.release, Release::Pending | Release::Kept) {
            for depot in used {
                let reason = reason.clone();
                out.commands.push(Command::Forget {
                    request: id,
                    depot,
                    reason,
                });
            }
        }
        if let Some(request) = self.requests.get_mut(&id) {
            request.close_books();
        }
        self.tell(out, Some(id), None, happening, reason);
        let ended = match state {
            RequestState::Cancelled => ArrivalState::Cancelled,
            RequestState::Refused
            | RequestState::Moving
            | RequestState::Safe
            | RequestState::Released
            | RequestState::Delivered
            | RequestState::Failed => ArrivalState::Failed,
        };
        self.end_onward(id, ended, out);
    }
}
