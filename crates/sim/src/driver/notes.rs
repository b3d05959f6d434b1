//! Records of a run, taken while it is played.

use posthaste_core::{Settings, contract::RequestState};
use posthaste_types::{DepotId, RequestId};

use super::{Run, START};
use crate::{
    Entry, Recording, Report, Scenario,
    report::{Recorder, What},
    rivals::Decider,
};

/// Timeline entries kept.
const TIMELINE_MAX: usize = 5000;
/// Timeline entries kept if a recording is requested.
const RECORDED_MAX: usize = 100_000;

/// Plays a scenario like `simulate_with`, and draws the samples that plots are made of.
#[must_use]
pub fn simulate_recorded(
    scenario: &Scenario,
    seed: u64,
    settings: Settings,
) -> (Report, Recording) {
    let mut run = Run::new(scenario, seed, settings);
    run.recorder = Some(Recorder::new(scenario));
    run.set_up(seed);
    run.play();
    let (at, used) = (run.now.since(START), run.used());
    let recorder = run.recorder.take();
    let mind = run.mind.as_ref().and_then(Decider::as_mind);
    let recording = recorder.map(|recorder| recorder.finish(at, used, mind));
    (run.into_report(seed), recording.unwrap_or_default())
}

/// Plays a scenario like `simulate`, and returns the story of one request as it stands at the end,
/// one sentence an entry. None if the mind does not know the request, or is down, at the end.
#[must_use]
pub fn simulate_explained(
    scenario: &Scenario,
    seed: u64,
    request: RequestId,
) -> (Report, Option<Vec<String>>) {
    let mut run = Run::new(scenario, seed, Settings::default());
    run.set_up(seed);
    run.play();
    let mind = run.mind.as_ref().and_then(Decider::as_mind);
    let story = mind.and_then(|mind| mind.story(request));
    (run.into_report(seed), story)
}

impl Run<'_> {
    pub(super) fn log(&mut self, request: Option<RequestId>, depot: Option<DepotId>, what: What) {
        let is_recorded = self.recorder.is_some();
        let most = if is_recorded {
            RECORDED_MAX
        } else {
            TIMELINE_MAX
        };
        if self.timeline.len() < most {
            self.timeline.push(Entry {
                at: self.now.since(START),
                request,
                depot,
                what,
            });
        } else {
            self.timeline_left_out += 1;
        }
    }

    /// Draws a sample of the world and of the mind's forecasts, if requested.
    pub(super) fn sample(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let (at, used) = (self.now.since(START), self.used());
        if let Some(recorder) = &mut self.recorder {
            let mind = self.mind.as_ref().and_then(Decider::as_mind);
            recorder.sample(at, used, mind);
        }
    }

    /// Returns the bytes each depot holds.
    pub(super) fn used(&self) -> Vec<u64> {
        let sites = self.world.sites.iter();
        sites.map(|site| site.used.get()).collect()
    }

    /// Records the fan-out of the first request.
    pub(super) fn note_fan_out(&mut self) {
        let Some(view) = self
            .mind
            .as_ref()
            .and_then(Decider::as_mind)
            .and_then(|mind| mind.request(RequestId::new(1)))
        else {
            return;
        };
        let fed = view.shares.iter().filter(|share| share.active).count();
        let fed = u32::try_from(fed).unwrap_or(u32::MAX);
        if view.state == RequestState::Moving && self.fan_outs.last() != Some(&fed) {
            self.fan_outs.push(fed);
        }
    }
}
