//! Delivery deadlines of requests.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{DeliveryReason, Event, Happening, Reason};
use posthaste_types::{RequestId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "delivered in time or the delay said beforehand";

#[derive(Debug, Default)]
struct Watch {
    by: Timestamp,
    /// Danger that was reported before and still stood.
    at_risk: bool,
    missed: bool,
    /// Time since which each destination has all data, as far as drivers could report.
    whole_at: Option<Timestamp>,
    is_over: bool,
}

/// Checker that no delivery is late without a warning, and that none is reported in time that was
/// late.
#[derive(Debug, Default)]
pub(crate) struct Dues {
    watched: BTreeMap<RequestId, Watch>,
    /// Times without a running driver, in which nothing can be reported.
    blind: Vec<(Timestamp, Timestamp)>,
}

/// Time before the deadline within which the driver must be running to report danger.
const LAST_CALL: Duration = Duration::from_secs(2);

impl Dues {
    pub(crate) fn on_submitted(&mut self, request: RequestId, by: Option<Timestamp>) {
        if let Some(by) = by {
            let watch = Watch {
                by,
                ..Watch::default()
            };
            self.watched.entry(request).or_insert(watch);
        }
    }

    pub(crate) fn on_blind(&mut self, from: Timestamp, to: Timestamp) {
        self.blind.push((from, to));
    }

    /// Returns whether the delivery time of the request matters.
    pub(crate) fn is_watched(&self, request: RequestId) -> bool {
        let watch = self.watched.get(&request);
        watch.is_some_and(|watch| watch.whole_at.is_none())
    }

    /// Records that each destination has all data.
    pub(crate) fn on_whole(&mut self, request: RequestId, at: Timestamp) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.whole_at.get_or_insert(at);
        }
    }

    /// Checks an event against the actual delivery.
    pub(crate) fn on_event(&mut self, event: &Event) -> Result<(), Found> {
        let watch = event
            .request
            .and_then(|request| self.watched.get_mut(&request));
        let Some((watch, request)) = watch.zip(event.request) else {
            return Ok(());
        };
        if let Reason::Delivery {
            why: DeliveryReason::InTime { deliver_by, .. },
        } = event.reason
        {
            let whole_at = watch.whole_at;
            ensure(NAME, whole_at.is_some_and(|at| at <= deliver_by), || {
                format!("{request} is called delivered by {deliver_by}, and was by {whole_at:?}")
            })?;
        }
        let happening = &event.happening;
        if matches!(happening, Happening::DeliveryAtRisk { .. }) {
            watch.at_risk |= event.at < watch.by;
        }
        if matches!(happening, Happening::DeliveryOnTime { .. }) {
            watch.at_risk &= event.at >= watch.by;
        }
        watch.missed |= *happening == Happening::DeliveryMissed;
        // After a pull, deliveries to destinations are no longer checked.
        watch.is_over |= matches!(
            happening,
            Happening::Refused | Happening::Cancelled | Happening::Failed
        ) || (*happening == Happening::Delivered
            && event.reason == Reason::Verified);
        Ok(())
    }

    /// Returns the verdict on all deliveries due before `now`.
    pub(crate) fn at_end(&self, now: Timestamp) -> Vec<Result<(), Found>> {
        let due = self
            .watched
            .iter()
            .filter(|(_, watch)| watch.by <= now && !watch.is_over);
        due.map(|(request, watch)| self.judge(*request, watch))
            .collect()
    }

    fn judge(&self, request: RequestId, watch: &Watch) -> Result<(), Found> {
        let is_met = watch.whole_at.is_some_and(|at| at <= watch.by);
        let (from, to) = (watch.by - LAST_CALL, watch.by);
        let was_blind = self
            .blind
            .iter()
            .any(|&(start, end)| start <= to && end >= from);
        ensure(NAME, is_met || was_blind || watch.at_risk, || {
            format!(
                "{request} was not delivered by {} and nobody had said so",
                watch.by
            )
        })?;
        ensure(NAME, is_met || was_blind || watch.missed, || {
            format!(
                "{request} was not delivered by {} and it was never said",
                watch.by
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: RequestId = RequestId::new(1);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn said(at_s: u64, happening: Happening, reason: Reason) -> Event {
        Event {
            at: at(at_s),
            request: Some(REQUEST),
            depot: None,
            happening,
            reason,
        }
    }

    #[test]
    fn a_silent_delay_and_a_false_claim_are_caught() {
        let claim = Reason::Delivery {
            why: DeliveryReason::InTime {
                destinations: 1,
                whole_at: at(90),
                deliver_by: at(100),
            },
        };
        for (whole_at_s, is_sound) in [(90, true), (101, false)] {
            let mut dues = Dues::default();
            dues.on_submitted(REQUEST, Some(at(100)));
            dues.on_whole(REQUEST, at(whole_at_s));
            let told = said(120, Happening::Delivered, claim.clone());
            assert_eq!(dues.on_event(&told).is_ok(), is_sound);
        }
        let at_risk = Happening::DeliveryAtRisk { finish: at(120) };
        for (said_s, is_sound) in [(50, true), (100, false)] {
            let mut dues = Dues::default();
            dues.on_submitted(REQUEST, Some(at(100)));
            for event in [
                said(said_s, at_risk.clone(), Reason::Asked),
                said(100, Happening::DeliveryMissed, Reason::Asked),
            ] {
                assert!(dues.on_event(&event).is_ok());
            }
            assert_eq!(dues.at_end(at(200)).iter().all(Result::is_ok), is_sound);
        }
    }
}
