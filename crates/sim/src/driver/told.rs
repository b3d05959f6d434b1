//! What checkers must know of inputs.

use posthaste_core::contract::Input;
use posthaste_types::FragmentIndex;

use super::Run;
use crate::checkers::End;

impl Run<'_> {
    /// What the checkers must know of an input before the mind does.
    #[expect(clippy::too_many_lines, reason = "every kind of input, in one place")]
    pub(super) fn on_told(&mut self, input: &Input) {
        if let Input::DepotDown { depot, .. } = input
            && let Some(site) = self.world.site(*depot)
        {
            site.is_told_gone = true;
        }
        if let Input::DepotUp { depot, .. } = input
            && let Some(site) = self.world.site(*depot)
        {
            site.is_told_gone = false;
        }
        self.heed_measures(input);
        self.note_whole_after(input);
        if let Input::ScatterFailed {
            request,
            depot,
            chunk,
            ..
        } = input
        {
            self.on_scatter_failed((*depot, *request, *chunk));
        }
        self.on_told_inbound(input);
        let (send, end) = match input {
            Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            } => ((*depot, *request, *chunk, *fragment), End::Stored),
            Input::FragmentFailed {
                request,
                depot,
                chunk,
                fragment,
                ..
            } => ((*depot, *request, *chunk, *fragment), End::Failed),
            Input::DriverStarted
            | Input::DepotAdded { .. }
            | Input::DepotRemoved { .. }
            | Input::DepotLent { .. }
            | Input::DepotLevelled { .. }
            | Input::DepotUp { .. }
            | Input::DepotDown { .. }
            | Input::DepotInventory { .. }
            | Input::RequestSubmitted { .. }
            | Input::RequestSubmittedWith { .. }
            | Input::RequestAsked { .. }
            | Input::RequestAskedBy { .. }
            | Input::PurgeMoved { .. }
            | Input::DeliveryMoved { .. }
            | Input::RequestCancelled { .. }
            | Input::Throughput { .. }
            | Input::SourceReleased { .. }
            | Input::SourceKept { .. }
            | Input::Delivered { .. }
            | Input::DeadlineMoved { .. }
            | Input::Probed { .. }
            | Input::ProbeAsked { .. }
            | Input::RateLimited { .. }
            | Input::PlanSolved { .. }
            | Input::SourceFound { .. }
            | Input::ArrivalAsked { .. }
            | Input::ArrivalGathered { .. }
            | Input::ChunkArrived { .. }
            | Input::ChunkMissed { .. }
            | Input::Inbound { .. }
            | Input::GatherTold { .. }
            | Input::ScatterFailed { .. }
            | Input::PieceTold { .. }
            | Input::EncodeChosen { .. }
            | Input::EgressTold { .. }
            | Input::ArrivalSurveyed { .. }
            | Input::Landed { .. }
            | Input::LandingFailed { .. } => return,
        };
        if end == End::Stored {
            let (depot, request, chunk, fragment) = send;
            let bytes = self.bytes_of(request, chunk, fragment);
            let found = (self.checkers.kept).on_stored(self.now, request, depot, bytes);
            self.checkers.note(self.now, found);
        }
        self.end_send(send, end);
    }

    /// Notes since when each destination of a request has all of it, where that matters.
    fn note_whole_after(&mut self, input: &Input) {
        if let Input::DepotInventory { request, .. }
        | Input::FragmentStored {
            request,
            fragment: FragmentIndex::WHOLE,
            ..
        } = input
            && self.checkers.dues.is_watched(*request)
            && self.world.undelivered(*request).is_none()
        {
            self.checkers.dues.on_whole(*request, self.now);
        }
    }
}
