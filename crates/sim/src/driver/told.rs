//! Inputs, as the checkers need them.

use posthaste_core::contract::Input;
use posthaste_types::{DepotId, FragmentIndex};

use super::{Run, sends::answered};
use crate::checkers::End;

impl Run<'_> {
    /// Informs the checkers about an input before the mind sees it.
    pub(super) fn on_told(&mut self, input: &Input) {
        if let Input::DepotDown { depot, .. } = input
            && let Some(site) = self.world.site(*depot)
        {
            site.is_told_gone = true;
            self.loosen(*depot);
        }
        if let Input::DepotUp { depot, .. } = input
            && let Some(site) = self.world.site(*depot)
        {
            site.is_told_gone = false;
        }
        if let Input::DepotDrained { depot, drain, .. } = input {
            self.checkers.drains.on_told(*depot, *drain);
            self.loosen(*depot);
        }
        if let Input::Recalled {
            request,
            depot,
            chunk,
            fragment,
        } = input
        {
            let bytes = self.bytes_of(*request, *chunk, *fragment);
            self.checkers.kept.on_recalled(*request, *depot, bytes);
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
        let Some((send, is_stored)) = answered(input) else {
            return;
        };
        if is_stored {
            let (depot, request, chunk, fragment) = send;
            let bytes = self.bytes_of(request, chunk, fragment);
            let found = (self.checkers.kept).on_stored(self.now, request, depot, bytes);
            self.checkers.note(self.now, found);
        }
        let end = if is_stored { End::Stored } else { End::Failed };
        self.end_send(send, end);
    }

    /// Relaxes the checks of requests that use a depot, because they may lose it.
    fn loosen(&mut self, depot: DepotId) {
        let uses = self.world.specs.iter();
        let uses = uses.filter(|(_, spec)| spec.via.contains(&depot));
        uses.for_each(|(request, _)| self.checkers.domains.on_loose(*request));
    }

    /// Records the time since which each destination of a request has all data, if that matters.
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
