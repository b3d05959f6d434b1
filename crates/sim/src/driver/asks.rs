//! User actions: those that must wait until they are possible, and those that are repeated.

use std::time::Duration;

use posthaste_core::contract::{Event, Happening, Input, RequestSpec, RequestState, StageInNews};
use posthaste_types::{DepotId, RequestId};

use super::{Pending, Run, START};
use crate::{report::What, rivals::Decider};

impl Run<'_> {
    /// Informs the checkers and the world about a user's action before the mind sees it.
    pub(super) fn on_asked(&mut self, input: &Input) {
        if let Input::ArrivalAsked { request, spec } = input {
            self.on_stage_in(*request, spec, &[]);
        }
        if let Input::ArrivalGathered {
            request,
            spec,
            holdings,
        } = input
        {
            self.on_stage_in(*request, spec, holdings);
        }
        if let Input::StageInTold { request, news } = input {
            self.on_stage_in_told(*request, news);
        }
        if let Input::ArrivalMoved {
            request,
            not_before,
            deadline,
        } = input
        {
            self.on_stage_in_moved(*request, *not_before, *deadline);
        }
        self.on_wished(input);
        self.checkers.lent.on_asked(input);
        self.checkers.owners.on_asked(input);
        if let Input::RequestSubmitted { request, spec }
        | Input::RequestSubmittedWith { request, spec, .. }
        | Input::RequestAsked { request, spec, .. }
        | Input::RequestAskedBy { request, spec, .. }
        | Input::RequestPinned { request, spec, .. } = input
        {
            let spec = before_its_purge(spec, input);
            self.checkers
                .deadlines
                .on_submitted(*request, spec.deadline);
            self.checkers.probes.on_submitted(&spec);
            let is_gone = |depot: &DepotId| {
                let site = self
                    .world
                    .place(*depot)
                    .map(|place| &self.world.sites[place]);
                site.is_some_and(|site| site.is_told_gone)
            };
            if spec.via.iter().any(is_gone) {
                self.checkers.domains.on_loose(*request);
            }
            self.world.specs.insert(*request, spec.clone());
            if let Some(recorder) = &mut self.recorder {
                recorder.on_submitted(*request);
            }
            let asked = format!(
                "{} in {} chunks as {}, safe by {:.0} s",
                spec.bytes,
                spec.chunks(),
                spec.code,
                spec.deadline.since(START).as_secs_f64(),
            );
            self.log(Some(*request), None, What::User(asked));
        }
    }

    /// Registers the options of a request with the checkers.
    fn on_wished(&mut self, input: &Input) {
        if let Input::RequestAsked {
            request,
            spec,
            wishes,
            ..
        }
        | Input::RequestAskedBy {
            request,
            spec,
            wishes,
            ..
        }
        | Input::RequestPinned {
            request,
            spec,
            wishes,
            ..
        } = input
        {
            let spec = before_its_purge(spec, input);
            self.checkers.kept.on_asked(*request, &spec, wishes);
            if wishes.budget_micro_usd.is_some() || wishes.safe_with.is_some() {
                self.checkers.domains.on_loose(*request);
            }
            self.checkers.dues.on_submitted(*request, wishes.deliver_by);
        }
        if let Input::RequestPinned {
            request, pinned, ..
        } = input
        {
            self.checkers.kept.on_pinned(*request, pinned);
        }
    }

    /// Returns whether a user can do this now. A pull is reported only if it was possible, or at
    /// any time if the dataset is no longer kept.
    pub(super) fn may_ask(&mut self, input: &Input) -> bool {
        let Input::Delivered { request } = input else {
            return true;
        };
        let mind = self.mind.as_ref().and_then(Decider::as_mind);
        let view = mind.and_then(|mind| mind.request(*request));
        let is_kept = view.is_some_and(|view| match view.state {
            RequestState::Moving | RequestState::Safe | RequestState::Released => true,
            RequestState::Refused
            | RequestState::Delivered
            | RequestState::Cancelled
            | RequestState::Failed => false,
        });
        if is_kept && !self.can_pull(*request) {
            return false;
        }
        if is_kept {
            self.pulled.insert(*request);
        }
        true
    }

    /// Informs the checkers about a stage-in before it is submitted.
    fn on_stage_in_told(&mut self, request: RequestId, news: &StageInNews) {
        match news {
            StageInNews::GoesOut { .. } => self.checkers.arrivals.on_goes_out(request),
            StageInNews::GoesOn { of } => self.checkers.onward.on_asked(request, *of),
            StageInNews::MayWait { near } => {
                let bytes = self.checkers.arrivals.bytes(request);
                let near = near.iter().map(|near| near.depot);
                self.checkers.probes.on_near(bytes, near);
            }
            StageInNews::Costs { budget, prices } => {
                self.checkers.kept.on_costs(request, *budget, prices);
            }
            StageInNews::Stored { .. }
            | StageInNews::Failed { .. }
            | StageInNews::IsFor { .. }
            | StageInNews::Refused { .. }
            | StageInNews::Unkept { .. }
            | StageInNews::LeftOut { .. }
            | StageInNews::FromOne { .. } => {}
        }
    }

    /// Records the codes that were chosen, because the world cuts chunks by them.
    pub(super) fn heed_codes(&mut self, events: &[Event]) {
        for event in events {
            if let (Some(request), Happening::CodeChosen { code }) =
                (event.request, &event.happening)
                && let Some(spec) = self.world.specs.get_mut(&request)
            {
                spec.code = *code;
                self.checkers.probes.on_submitted(spec);
            }
        }
    }

    /// Repeats the users' actions, because the service was killed before it answered them.
    pub(super) fn ask_again(&mut self, inputs: Vec<Input>) {
        let asked = inputs.into_iter().filter(|input| {
            matches!(
                input,
                Input::RequestSubmitted { .. }
                    | Input::RequestSubmittedWith { .. }
                    | Input::RequestAsked { .. }
                    | Input::ArrivalAsked { .. }
                    | Input::ArrivalGathered { .. }
                    | Input::ArrivalMoved { .. }
                    | Input::StageInTold {
                        news: StageInNews::MayWait { .. }
                            | StageInNews::GoesOut { .. }
                            | StageInNews::GoesOn { .. }
                            | StageInNews::Costs { .. }
                            | StageInNews::IsFor { .. },
                        ..
                    }
                    | Input::LentTold { .. }
                    | Input::RequestAskedBy { .. }
                    | Input::RequestPinned { .. }
                    | Input::RequestCancelled { .. }
                    | Input::Paused { .. }
                    | Input::Resumed { .. }
                    | Input::Delivered { .. }
            )
        });
        for input in asked {
            self.after(Duration::from_secs(1), Pending::Ask { input });
        }
    }
}

/// Returns a specification with the deadline that binds: a purge of the source may come before the
/// user's.
fn before_its_purge(spec: &RequestSpec, input: &Input) -> RequestSpec {
    let mut spec = spec.clone();
    if let Input::RequestAskedBy { purge_at, .. }
    | Input::RequestPinned {
        purge_at: Some(purge_at),
        ..
    } = input
    {
        spec.deadline = spec.deadline.min(*purge_at);
    }
    spec
}
