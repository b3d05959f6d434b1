//! State of each request, by the mind's events. The mind forgets finished requests in time, and
//! asking it about all of them is expensive.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{Event, Happening};
use posthaste_types::{RequestId, Timestamp};

use crate::{report::Fate, rivals::Decider};

#[derive(Debug, Default)]
pub(super) struct Fates {
    known: BTreeMap<RequestId, Fate>,
    /// Requests that moved at their last event. Every start or end of movement has an event.
    moving: BTreeSet<RequestId>,
}

impl Fates {
    /// Updates a request's state from an event.
    pub(super) fn hear(&mut self, event: &Event, mind: &Decider, deadline: Option<Timestamp>) {
        let Some(request) = event.request else { return };
        if mind.is_moving(request) {
            self.moving.insert(request);
        } else {
            self.moving.remove(&request);
        }
        match event.happening {
            Happening::Safe { .. } | Happening::Delivered | Happening::Arrived { .. } => {
                let is_met = deadline.is_some_and(|deadline| event.at <= deadline);
                let fate = if is_met { Fate::Met } else { Fate::Late };
                self.known.entry(request).or_insert(fate);
            }
            Happening::Refused => {
                self.known.insert(request, Fate::Refused);
            }
            Happening::Cancelled => {
                self.known.insert(request, Fate::Cancelled);
            }
            Happening::Failed => {
                self.known.insert(request, Fate::Failed);
            }
            Happening::Admitted
            | Happening::AtRisk { .. }
            | Happening::OnTime { .. }
            | Happening::Missed
            | Happening::DepotActivated
            | Happening::DepotRetired
            | Happening::DepotDown
            | Happening::DepotUp
            | Happening::DepotDraining
            | Happening::DepotEmptied
            | Happening::DepotUndrained
            | Happening::WayTried { .. }
            | Happening::WayTaken { .. }
            | Happening::ForecastMoved
            | Happening::Repairing { .. }
            | Happening::Unsafe { .. }
            | Happening::Released
            | Happening::ReleaseFailed
            | Happening::Rerouted
            | Happening::Pushing
            | Happening::Pushed
            | Happening::Delivering
            | Happening::DeliveryAtRisk { .. }
            | Happening::DeliveryOnTime { .. }
            | Happening::DeliveryMissed
            | Happening::Crowded
            | Happening::Unpinned
            | Happening::Paused
            | Happening::Resumed
            | Happening::Fetching
            | Happening::Prestaging
            | Happening::SourceLeft { .. }
            | Happening::SourceBack { .. }
            | Happening::CodeChosen { .. }
            | Happening::LeftOut { .. }
            | Happening::Thinned { .. }
            | Happening::Reservation { .. }
            | Happening::Purged => {}
        }
    }

    /// Returns whether any request moves. Usually looks at one request only. Baselines emit no
    /// events, so they are asked.
    pub(super) fn is_any_moving(&self, mind: &Decider) -> bool {
        mind.is_rival_moving() || self.moving.iter().any(|request| mind.is_moving(*request))
    }

    pub(super) fn into_known(self) -> BTreeMap<RequestId, Fate> {
        self.known
    }
}
