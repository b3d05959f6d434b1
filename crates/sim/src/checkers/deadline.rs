use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{Event, Happening};
use posthaste_types::{RequestId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "deadline met or the miss said beforehand";

#[derive(Debug)]
struct Watch {
    deadline: Timestamp,
    /// Time since which the request has been reported at risk, if it is.
    at_risk: Option<Timestamp>,
    at_risk_at_deadline: bool,
    missed: bool,
    safe_at: Option<Timestamp>,
    is_over: bool,
}

/// Checker that no request misses its deadline without a warning.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    watched: BTreeMap<RequestId, Watch>,
    /// Times without a running driver, in which nothing can be reported.
    blind: Vec<(Timestamp, Timestamp)>,
}

/// Time before the deadline within which the driver must be running to report danger.
const LAST_CALL: Duration = Duration::from_secs(2);

impl Deadlines {
    pub(crate) fn on_submitted(&mut self, request: RequestId, deadline: Timestamp) {
        let watch = Watch {
            deadline,
            at_risk: None,
            at_risk_at_deadline: false,
            missed: false,
            safe_at: None,
            is_over: false,
        };
        self.watched.insert(request, watch);
    }

    /// Records a moved deadline. Earlier reports no longer count, except the one of danger.
    pub(crate) fn on_moved(&mut self, request: RequestId, deadline: Timestamp) {
        let watch = self.watched.get_mut(&request);
        if let Some(watch) = watch.filter(|watch| watch.safe_at.is_none()) {
            watch.deadline = deadline;
            watch.missed = false;
            watch.at_risk_at_deadline = watch.at_risk.is_some();
        }
    }

    pub(crate) fn on_blind(&mut self, from: Timestamp, to: Timestamp) {
        self.blind.push((from, to));
    }

    pub(crate) fn on_event(&mut self, event: &Event) {
        let Some(watch) = event
            .request
            .and_then(|request| self.watched.get_mut(&request))
        else {
            return;
        };
        match event.happening {
            Happening::AtRisk { .. } => {
                watch.at_risk.get_or_insert(event.at);
                watch.at_risk_at_deadline |= event.at < watch.deadline;
            }
            Happening::OnTime { .. } => {
                watch.at_risk = None;
                watch.at_risk_at_deadline &= event.at >= watch.deadline;
            }
            Happening::Missed => watch.missed = true,
            Happening::Safe { .. } | Happening::Delivered | Happening::Arrived { .. } => {
                watch.safe_at.get_or_insert(event.at);
            }
            Happening::Refused | Happening::Cancelled | Happening::Failed => watch.is_over = true,
            Happening::Admitted
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

    /// Returns the verdict on every deadline before `now`.
    pub(crate) fn at_end(&self, now: Timestamp) -> Vec<Result<(), Found>> {
        let due = self
            .watched
            .iter()
            .filter(|(_, watch)| watch.deadline <= now && !watch.is_over);
        due.map(|(request, watch)| self.judge(*request, watch))
            .collect()
    }

    fn judge(&self, request: RequestId, watch: &Watch) -> Result<(), Found> {
        let is_met = watch.safe_at.is_some_and(|at| at <= watch.deadline);
        let (from, to) = (watch.deadline - LAST_CALL, watch.deadline);
        let was_blind = self
            .blind
            .iter()
            .any(|&(start, end)| start <= to && end >= from);
        ensure(
            NAME,
            is_met || was_blind || watch.at_risk_at_deadline,
            || {
                format!(
                    "{request} missed its deadline {} and nobody had said so",
                    watch.deadline
                )
            },
        )?;
        ensure(NAME, is_met || was_blind || watch.missed, || {
            format!(
                "{request} missed its deadline {} and it was never said",
                watch.deadline
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::contract::Reason;
    use posthaste_types::Bytes;

    const REQUEST: RequestId = RequestId::new(1);

    fn verdict(events: &[(u64, Happening)]) -> bool {
        let mut deadlines = Deadlines::default();
        deadlines.on_submitted(REQUEST, Timestamp::from_secs(100));
        for (at_s, happening) in events {
            deadlines.on_event(&Event {
                at: Timestamp::from_secs(*at_s),
                request: Some(REQUEST),
                depot: None,
                happening: happening.clone(),
                reason: Reason::Asked,
            });
        }
        deadlines
            .at_end(Timestamp::from_secs(200))
            .iter()
            .all(Result::is_ok)
    }

    #[test]
    fn a_silent_miss_is_caught() {
        let safe = Happening::Safe { bytes: Bytes::ZERO };
        let at_risk = || Happening::AtRisk {
            finish: Timestamp::from_secs(120),
        };
        let on_time = Happening::OnTime {
            finish: Timestamp::from_secs(90),
        };
        assert!(verdict(&[(99, safe.clone())]));
        assert!(!verdict(&[(101, safe.clone())]));
        assert!(!verdict(&[]));
        assert!(
            !verdict(&[(100, at_risk()), (100, Happening::Missed)]),
            "said at the deadline"
        );
        assert!(verdict(&[
            (50, at_risk()),
            (100, Happening::Missed),
            (150, safe)
        ]));
        assert!(!verdict(&[(50, at_risk())]), "the miss itself was not said");
        assert!(!verdict(&[
            (50, at_risk()),
            (60, on_time),
            (100, Happening::Missed)
        ]));
        assert!(verdict(&[(0, Happening::Refused)]));
    }
}
