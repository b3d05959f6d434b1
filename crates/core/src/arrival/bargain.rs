//! Counter-offers for a stage-in that can't be in time, beyond a later deadline. They are a higher
//! limit of its own, a lost source, another stage-in's slack, or a reservation. Each is tried
//! before it is offered.

use alloc::vec::Vec;
use core::cmp::Reverse;
use posthaste_plan::Curve;
use posthaste_types::{Bytes, RequestId, SourceId, Timestamp};

use super::{Quantile, inbound::Inbound};
use crate::{
    Mind,
    admission::{LATER_MIN, RATE_BITS, least, least_later},
    books::Arrival,
    contract::WouldBuy,
};

/// Most stage-ins at which offers are tried: each trial visits all of them.
pub(super) const LIVE_MAX: usize = 64;
/// Most other stage-ins whose slack is tried, those with most to come.
const OTHERS_MAX: usize = 3;
/// Most lost sources that are tried.
const LOST_MAX: usize = 4;

impl Mind {
    /// Returns what would make a stage-in possible that can be read from then on, the least effort
    /// first.
    pub(crate) fn bargain_arrival(
        &self,
        newcomer: &Arrival,
        from: Option<Timestamp>,
    ) -> Vec<WouldBuy> {
        let Some(from) = from.filter(|_| self.arrivals.live().count() <= LIVE_MAX) else {
            return Vec::new();
        };
        let left = self.left_for_arrivals(None, Quantile::P10);
        let mut offers = Vec::from_iter(self.offer_limit_in(newcomer, from, &left));
        offers.extend(self.offer_source_back(newcomer, from, &left));
        offers.extend(self.offer_slack_in(newcomer, from));
        offers.extend(self.offer_reservation_in(newcomer, from, &left));
        offers
    }

    /// Returns when the stage-in would be here with what is left, if that is in time.
    fn try_arrival(
        &self,
        newcomer: &Arrival,
        from: Timestamp,
        left: &Inbound,
    ) -> Option<Timestamp> {
        let mut left = left.clone();
        let fare = left.early(newcomer, |_| from.max(self.now));
        fare.edge.filter(|finish| *finish <= newcomer.spec.deadline)
    }

    /// Returns the smallest limit of its own with which the stage-in is in time.
    fn offer_limit_in(
        &self,
        newcomer: &Arrival,
        from: Timestamp,
        left: &Inbound,
    ) -> Option<WouldBuy> {
        let limit = newcomer.spec.rate_max?;
        let mut trial = newcomer.clone();
        let mut finish = None;
        let rate = least(1 << RATE_BITS.end(), |rate| {
            trial.spec.rate_max = Some(limit.max(rate));
            let found = self.try_arrival(&trial, from, left);
            finish = found.or(finish);
            found.is_some()
        })?;
        let finish = finish?;
        Some(WouldBuy::HigherLimit { rate, finish })
    }

    /// Returns the lost sources any one of which would suffice, if it were back.
    fn offer_source_back(
        &self,
        newcomer: &Arrival,
        from: Timestamp,
        left: &Inbound,
    ) -> Vec<WouldBuy> {
        let lost = newcomer.named().filter(|source| {
            let known = self.arrivals.sources.get(source);
            known.is_some_and(|source| source.is_down())
        });
        let offer = |source: SourceId| {
            let rate = self.arrivals.sources.get(&source)?.link.rates.p10;
            let mut left = left.clone();
            left.give_from(source, Curve::constant(rate));
            let finish = self.try_arrival(newcomer, from, &left)?;
            let name = self.name_of_source(source);
            Some(WouldBuy::SourceBack { name, finish })
        };
        lost.take(LOST_MAX).filter_map(offer).collect()
    }

    /// Returns another stage-in whose deadline, if it were later, would leave enough.
    fn offer_slack_in(&self, newcomer: &Arrival, from: Timestamp) -> Option<WouldBuy> {
        let is_rival = |other: &Arrival| {
            !other.is_leftover
                && !other.is_paused()
                && newcomer
                    .named()
                    .any(|source| other.named().any(|its| its == source))
        };
        let others = self.arrivals.live().filter(|(_, other)| is_rival(other));
        let mut others: Vec<_> = others
            .map(|(&id, other)| {
                let missing: Bytes = other.held.iter().map(|held| held.missing).sum();
                (Reverse(missing), id)
            })
            .collect();
        others.sort_unstable();
        others.truncate(OTHERS_MAX);
        let tried = others.into_iter().filter_map(|(_, id)| {
            let deadline = self.arrivals.requests.get(&id)?.spec.deadline;
            let later = least_later(&LATER_MIN, |later| {
                let left = self.left_for_arrivals(Some((id, deadline + later)), Quantile::P10);
                self.try_arrival(newcomer, from, &left).is_some()
            })?;
            Some((later, id, deadline + later))
        });
        let (later, request, deadline) = tried.min()?;
        Some(WouldBuy::OthersSlack {
            request,
            later,
            deadline,
        })
    }

    /// Returns the least rate that would suffice if reserved until the deadline on the link to its
    /// fastest source.
    fn offer_reservation_in(
        &self,
        newcomer: &Arrival,
        from: Timestamp,
        left: &Inbound,
    ) -> Option<WouldBuy> {
        let given = newcomer.named().filter(|source| left.gives(*source));
        let fastest = given.max_by_key(|source| {
            let known = self.arrivals.sources.get(source);
            known.map(|source| source.link.rates.p50)
        })?;
        let until = newcomer.spec.deadline;
        let rate = least(1 << RATE_BITS.end(), |rate| {
            let mut left = left.clone();
            left.reserve(fastest, self.now, until, rate);
            self.try_arrival(newcomer, from, &left).is_some()
        })?;
        Some(WouldBuy::Reservation {
            on: self.name_of_source(fastest),
            rate,
            from: self.now,
            until,
        })
    }

    /// Returns what stage-ins with promises leave, with another deadline for one of them.
    pub(super) fn left_for_arrivals(
        &self,
        moved: Option<(RequestId, Timestamp)>,
        quantile: Quantile,
    ) -> Inbound {
        let deadline = |id: RequestId, arrival: &Arrival| match moved {
            Some((other, deadline)) if other == id => deadline,
            _ => arrival.spec.deadline,
        };
        let mut promised: Vec<(Timestamp, RequestId, &Arrival)> = self
            .arrivals
            .live()
            .filter(|(_, arrival)| !arrival.is_leftover && !arrival.is_paused())
            .map(|(&id, arrival)| (deadline(id, arrival), id, arrival))
            .collect();
        promised.sort_unstable_by_key(|(deadline, id, _)| (*deadline, *id));
        let mut left = self.inbound(quantile);
        for (deadline, _, arrival) in promised {
            left.late(arrival, self.now, deadline);
        }
        left
    }
}
