//! FTS's rules for a job's state, from its files' states.

use std::collections::BTreeMap;

use posthaste_journal::FtsState;
use serde::{Deserialize, Serialize};

/// Relation between the files of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Independent files.
    Plain,
    /// Alternative sources of one file.
    Replicas,
    /// Hops: each begins where the one before ended.
    Hops,
    /// Files from one server to one other.
    Reuse,
}

impl Kind {
    /// Returns FTS's letter for it.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Plain => 'N',
            Self::Replicas => 'R',
            Self::Hops => 'H',
            Self::Reuse => 'Y',
        }
    }

    /// Returns the initial state of a new job's file, by its place.
    pub(super) fn begins(self, number: usize) -> FtsState {
        match self {
            Self::Replicas | Self::Hops if number > 0 => FtsState::NotUsed,
            Self::Plain | Self::Replicas | Self::Hops | Self::Reuse => FtsState::Waiting,
        }
    }

    /// Returns whether the end of a file starts the next unused one.
    pub(super) fn goes_on_after(self, ended: FtsState) -> bool {
        match self {
            Self::Hops => ended == FtsState::Finished,
            Self::Replicas => matches!(ended, FtsState::Failed | FtsState::Cancelled),
            Self::Plain | Self::Reuse => false,
        }
    }
}

/// State of a job, in FTS's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobState {
    Submitted,
    Active,
    Finished,
    /// Some files are there, others never will be.
    FinishedDirty,
    Failed,
    Cancelled,
}

impl JobState {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Active => "ACTIVE",
            Self::Finished => "FINISHED",
            Self::FinishedDirty => "FINISHEDDIRTY",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELED",
        }
    }

    /// Returns whether the state is final.
    pub(super) fn is_final(self) -> bool {
        !matches!(self, Self::Submitted | Self::Active)
    }
}

/// States of the files of one place together.
#[derive(Default)]
struct Place {
    finished: u32,
    failed: u32,
    cancelled: u32,
    open: u32,
}

impl Place {
    fn is_finished(&self) -> bool {
        self.finished > 0
    }

    fn is_over(&self) -> bool {
        self.open == 0 && self.finished + self.failed + self.cancelled > 0
    }
}

/// Returns the state of a job from its files' states, in order. The caller knows whether any file
/// moves or has moved.
pub(super) fn of_job(
    kind: Kind,
    files: impl IntoIterator<Item = (u32, FtsState)>,
    has_begun: bool,
) -> JobState {
    let mut places: BTreeMap<u32, Place> = BTreeMap::new();
    for (place, state) in files {
        let place = places.entry(place).or_default();
        match state {
            FtsState::NotUsed => {}
            FtsState::Waiting | FtsState::Given => place.open += 1,
            FtsState::Finished => place.finished += 1,
            FtsState::Failed => place.failed += 1,
            FtsState::Cancelled => place.cancelled += 1,
        }
    }
    let of = |is: fn(&Place) -> bool| places.values().filter(|place| is(place)).count();
    let finished = of(Place::is_finished);
    let lost = |place: &Place| !place.is_finished() && place.is_over();
    let cancelled = of(|place| place.failed == 0 && place.cancelled > 0 && !place.is_finished());
    let lost = places.values().filter(|place| lost(place)).count();
    let failed = lost - cancelled.min(lost);
    let is_broken = kind == Kind::Hops && lost > 0;
    let is_over = is_broken || places.values().all(Place::is_over);
    if !is_over {
        return if has_begun || finished > 0 {
            JobState::Active
        } else {
            JobState::Submitted
        };
    }
    match (finished, failed, cancelled) {
        (_, 0, 0) => JobState::Finished,
        (_, 0, _) => JobState::Cancelled,
        (0, _, _) => JobState::Failed,
        _ if kind == Kind::Hops => JobState::Failed,
        _ => JobState::FinishedDirty,
    }
}

#[cfg(test)]
mod tests {
    use FtsState::{Cancelled, Failed, Finished, Given, NotUsed, Waiting};

    use super::*;

    fn plain(states: &[FtsState]) -> JobState {
        of_job(Kind::Plain, (0..).zip(states.iter().copied()), false)
    }

    #[test]
    fn a_job_is_over_when_each_of_its_files_is() {
        assert_eq!(plain(&[Waiting, Given]), JobState::Submitted);
        assert_eq!(plain(&[Finished, Given]), JobState::Active);
        assert_eq!(plain(&[Finished, Finished]), JobState::Finished);
        assert_eq!(plain(&[Finished, Failed]), JobState::FinishedDirty);
        assert_eq!(plain(&[Failed, Failed]), JobState::Failed);
        assert_eq!(plain(&[Failed, Cancelled]), JobState::Failed);
        assert_eq!(plain(&[Finished, Cancelled]), JobState::Cancelled);
        assert_eq!(plain(&[Cancelled, Cancelled]), JobState::Cancelled);
        assert_eq!(plain(&[Failed, Waiting]), JobState::Submitted);
        let moves = of_job(Kind::Plain, [(0, Given)], true);
        assert_eq!(moves, JobState::Active);
    }

    #[test]
    fn of_several_ways_one_is_enough() {
        let of =
            |states: [FtsState; 2]| of_job(Kind::Replicas, states.map(|state| (0, state)), false);
        assert_eq!(of([Waiting, NotUsed]), JobState::Submitted);
        assert_eq!(of([Failed, Given]), JobState::Submitted);
        assert_eq!(of([Finished, NotUsed]), JobState::Finished);
        assert_eq!(of([Failed, Finished]), JobState::Finished);
        assert_eq!(of([Failed, Failed]), JobState::Failed);
        assert!(Kind::Replicas.goes_on_after(Failed));
        assert!(!Kind::Replicas.goes_on_after(Finished));
    }

    #[test]
    fn hops_end_with_the_first_that_fails() {
        let of = |states: [FtsState; 2]| of_job(Kind::Hops, (0..).zip(states), false);
        assert_eq!(of([Given, NotUsed]), JobState::Submitted);
        assert_eq!(of([Finished, Waiting]), JobState::Active);
        assert_eq!(of([Finished, Finished]), JobState::Finished);
        assert_eq!(of([Failed, NotUsed]), JobState::Failed);
        assert_eq!(of([Finished, Failed]), JobState::Failed);
        assert_eq!(of([Cancelled, NotUsed]), JobState::Cancelled);
        assert!(Kind::Hops.goes_on_after(Finished));
        let begins: Vec<FtsState> = (0..2).map(|number| Kind::Hops.begins(number)).collect();
        assert_eq!(begins, [Waiting, NotUsed]);
    }
}
