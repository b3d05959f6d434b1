use alloc::string::String;
use core::time::Duration;
use posthaste_plan::{Curve, tuner::Setting};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::state::{Fork, History, Link, Request};
use crate::{
    Settings,
    contract::{DepotPrices, DepotState, DepotTerms, Drain, EgressPrice, LentTerms, load_left},
};

record! {
    /// Report of a depot that answered while it was at rest.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Answer {
        pub(crate) free: Bytes,
        pub(crate) rate_max: Option<ByteRate>,
    }
}

/// Assumed duration of overload: the true one is unknown, and a load average covers a minute.
pub(crate) const LOADED_FOR: Duration = Duration::from_secs(300);

/// Time that depots must have been up to count as those that stay.
const CALM: Duration = Duration::from_secs(600);

/// Stands for an unconfigured level: the depot's distance decides, for each request.
pub(crate) const LEVEL_BY_DISTANCE: u8 = 0;

record! {
    /// Depot: its facts, its state, and the link to it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Depot {
        pub(crate) name: String,
        /// Owner whose requests alone use it; empty if all do.
        pub(crate) owner: String,
        pub(crate) capacity: Bytes,
        pub(crate) state: DepotState,
        /// Free space for us, not counting bytes in flight.
        pub(crate) free: Bytes,
        /// Link over the chosen way.
        pub(crate) link: Link,
        /// Ways to it, if there are several.
        pub(crate) fork: Fork,
        pub(crate) terms: DepotTerms,
        /// Further prices.
        pub(crate) prices: DepotPrices,
        /// Hops from the centre, from 1: those of a higher level are nearer to destinations. Or
        /// [`LEVEL_BY_DISTANCE`].
        pub(crate) level: u8,
        /// Round trip to the centre, if reported.
        pub(crate) round_trip: Option<Duration>,
        /// True if it can send on what it still receives.
        pub(crate) follows: bool,
        /// True if it lies in a store: it neither sends nor fetches by itself.
        pub(crate) stores: bool,
        /// Drain asked by an operator, and by the depot itself as it ends.
        pub(crate) drain_asked: Drain,
        pub(crate) drain_own: Drain,
        /// Chunks that lie only here, when last counted; and the time of the next count.
        pub(crate) only_here: Option<u64>,
        pub(crate) counts_at: Option<Timestamp>,
        /// True once it was reported that nothing lies only here.
        pub(crate) is_said_empty: bool,
        /// Bytes on their way here from other depots.
        pub(crate) arriving: Bytes,
        /// Load of its machine, in thousandths per core, if reported.
        pub(crate) load_permille: Option<u32>,
        /// Load as bounds see it: it rises at once, and falls late.
        pub(crate) load_felt_permille: Option<u32>,
        /// Load at or above which nothing is sent there for any request.
        pub(crate) load_max_permille: Option<u32>,
        /// Next time at which its hours, or those for which it is lent for a request, begin or end.
        pub(crate) turns_at: Option<Timestamp>,
        /// True if it went as its hours said: what it holds still counts, and it will be back.
        pub(crate) is_away: bool,
        /// Time since which it is down, if it is.
        pub(crate) down_since: Timestamp,
        /// Failed sends since the last success.
        pub(crate) failures: u32,
        /// Losses since it last stayed.
        pub(crate) losses: u32,
        /// Losses to failing sends since it last stored something.
        pub(crate) fruitless: u32,
        /// Time before which nothing is sent.
        pub(crate) resume_at: Timestamp,
        /// Time before which it is not accepted again, whatever it answers.
        pub(crate) hold_until: Timestamp,
        pub(crate) answered: Option<Answer>,
        /// Record of how often it lost what it held.
        pub(crate) history: History,
        /// Setting at which the last request's optimizer ended, where the next one begins.
        pub(crate) best: Option<Setting>,
    }
}

impl Depot {
    pub(crate) fn new(name: String, capacity: Bytes, link: Link, now: Timestamp) -> Self {
        Self {
            name,
            owner: String::new(),
            capacity,
            state: DepotState::Unknown,
            free: capacity,
            link,
            fork: Fork::default(),
            terms: DepotTerms::default(),
            prices: DepotPrices::default(),
            level: 1,
            round_trip: None,
            follows: false,
            stores: false,
            drain_asked: Drain::Off,
            drain_own: Drain::Off,
            only_here: None,
            counts_at: None,
            is_said_empty: false,
            arriving: Bytes::ZERO,
            load_permille: None,
            load_felt_permille: None,
            load_max_permille: None,
            turns_at: None,
            is_away: false,
            down_since: Timestamp::default(),
            failures: 0,
            losses: 0,
            fruitless: 0,
            resume_at: Timestamp::default(),
            hold_until: Timestamp::default(),
            answered: None,
            history: History::new(now),
            best: None,
        }
    }

    /// Returns whether requests of this owner may use it; an empty owner is nobody in particular.
    pub(crate) fn is_for(&self, owner: &str) -> bool {
        self.is_common() || self.owner == owner
    }

    /// Returns whether it is everybody's. Others say nothing about what requests in general may
    /// expect: no owner's relay changes the promises to others.
    pub(crate) fn is_common(&self) -> bool {
        self.owner.is_empty()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == DepotState::Up
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state == DepotState::Down
    }

    /// Returns whether it is up or expected, so that plans count on it.
    pub(crate) fn is_expected(&self) -> bool {
        !self.is_down() || self.is_away
    }

    /// Returns whether it was lost recently: a depot that went once goes again.
    pub(crate) fn is_shaky(&self, now: Timestamp) -> bool {
        self.is_down() || self.went_lately(now)
    }

    /// Returns whether it was lost recently; one gone for long does not count.
    pub(crate) fn went_lately(&self, now: Timestamp) -> bool {
        self.losses > 0 && self.down_since + CALM > now
    }

    /// Returns whether it is too new to be known to stay.
    pub(crate) fn is_new(&self, now: Timestamp) -> bool {
        self.history.watched(now) < CALM
    }

    /// Returns whether it is lost and may come back some time.
    pub(crate) fn is_hoped_for(&self, settings: &Settings) -> bool {
        !self.is_expected() && self.fruitless < settings.fruitless_max
    }

    /// Returns when a lost depot may be back. That is unknown, and what has lasted long lasts long:
    /// after as long again as it has been gone (Lindy's rule), a minute at least.
    pub(crate) fn may_be_back_at(&self, now: Timestamp) -> Timestamp {
        const LEAST: Duration = Duration::from_secs(60);
        now + now.since(self.down_since).max(LEAST)
    }

    /// Returns whether it is drained.
    pub(crate) fn drain(&self) -> Drain {
        self.drain_asked.max(self.drain_own)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain() != Drain::Off
    }

    /// Returns whether it is within its hours.
    pub(crate) fn is_within_hours(&self, at: Timestamp) -> bool {
        self.terms.windows.is_open(at)
    }

    /// Returns whether something may be sent there for any request: its hours and its load allow
    /// it.
    pub(crate) fn is_open(&self, at: Timestamp) -> bool {
        self.is_within_hours(at) && !self.is_loaded(None)
    }

    /// Returns whether something of a request may be sent there: its hours, those of its loan to
    /// that request, and its load allow it.
    pub(crate) fn is_open_to(&self, request: &Request, lane: usize, at: Timestamp) -> bool {
        let lent = request.lent(lane);
        let is_lent = lent.is_none_or(|lent| lent.windows.is_open(at));
        self.is_within_hours(at) && is_lent && !self.is_loaded(lent)
    }

    /// Returns the load below which it is lent to all, or to a request with these terms of its own.
    pub(crate) fn load_bound(&self, lent: Option<&LentTerms>) -> Option<u32> {
        let own = lent.and_then(|lent| lent.load_max_permille);
        self.load_max_permille.into_iter().chain(own).min()
    }

    /// Records the load that its machine reports.
    pub(crate) fn tell_load(&mut self, load: Option<u32>) {
        let before = self.load_felt_permille.unwrap_or(0);
        self.load_felt_permille = load.map(|load| load_left(load).min(before).max(load));
        self.load_permille = load;
    }

    /// Returns whether its machine's load reaches the bound for all, or for a request with these
    /// terms of its own. False if it is unknown.
    pub(crate) fn is_loaded(&self, lent: Option<&LentTerms>) -> bool {
        let loaded = self.load_felt_permille.zip(self.load_bound(lent));
        loaded.is_some_and(|(load, most)| load >= most)
    }

    /// Removes from its rate the times in which nothing is sent there for any request. They are
    /// those outside its hours, and a while under too much load.
    pub(crate) fn close(&self, curve: &mut Curve, from: Timestamp, until: Timestamp) {
        self.terms.windows.close(curve, from, until);
        if self.is_loaded(None) {
            curve.close(from, until.min(from + LOADED_FOR));
        }
    }

    /// Returns the next time at which hours begin or end for a request, or its load may have
    /// fallen.
    pub(crate) fn next_turn_of(
        &self,
        request: &Request,
        lane: usize,
        at: Timestamp,
    ) -> Option<Timestamp> {
        let lent = request.lent(lane);
        let unloaded = self.is_loaded(lent).then(|| at + LOADED_FOR);
        let lent = lent.and_then(|lent| lent.windows.next_change(at));
        let own = self.terms.windows.next_change(at);
        own.into_iter().chain(lent).chain(unloaded).min()
    }

    /// Returns the cost of sending bytes there in one request and keeping them for some seconds, in
    /// millionths of a dollar.
    pub(crate) fn cost(&self, bytes: Bytes, keep_s: u64) -> u64 {
        (self.terms.cost(bytes, keep_s) + self.prices.put()).micro_usd()
    }

    /// Returns the cost of sending alone.
    pub(crate) fn cost_of_sending(&self, bytes: Bytes) -> u64 {
        (self.terms.sending().of(bytes) + self.prices.put()).micro_usd()
    }

    /// Returns whether storing there costs nothing.
    pub(crate) fn is_free(&self) -> bool {
        self.terms.is_free() && self.prices.put_micro_usd == 0
    }

    /// Returns whether reading from it costs nothing, wherever the data goes.
    pub(crate) fn gives_free(&self) -> bool {
        let prices = &self.prices;
        let is_free = |price: &EgressPrice| price.micro_usd == 0;
        prices.get_micro_usd == 0
            && prices.egress_micro_usd == 0
            && prices.egress_to.iter().all(is_free)
    }

    /// Returns the cost of reading a piece of it for another depot, or for an unknown place.
    pub(crate) fn cost_of_reading(&self, bytes: Bytes, to: Option<&Depot>) -> u64 {
        let to = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
        self.prices.reading(bytes, to).micro_usd()
    }

    /// Returns the space for new fragments, after those in flight.
    pub(crate) fn space(&self) -> Bytes {
        self.free - self.link.in_flight - self.arriving
    }
}

#[cfg(test)]
mod tests {
    use posthaste_plan::Windows;
    use posthaste_types::DepotId;

    use super::*;

    #[test]
    fn a_load_that_moves_about_a_bound_is_above_it_until_it_is_a_fifth_below() {
        let link = Link::new(None, &Settings::default().prior);
        let mut depot = Depot::new("ash".into(), Bytes::mebi(1), link, Timestamp::default());
        depot.load_max_permille = Some(500);
        let lent = LentTerms {
            depot: DepotId::new(1),
            windows: Windows::default(),
            load_max_permille: Some(300),
        };
        for (load, is_loaded, is_loaded_for_it) in [
            (Some(200), false, false),
            (Some(480), false, true),
            (Some(500), true, true),
            (Some(480), true, true),
            (Some(520), true, true),
            (Some(401), true, true),
            (Some(399), false, true),
            (Some(499), false, true),
            (Some(240), false, true),
            (Some(239), false, false),
            (Some(299), false, false),
            (Some(2000), true, true),
            (Some(10), false, false),
            (Some(900), true, true),
            // It reports no load any more, so that is unknown.
            (None, false, false),
            (Some(450), false, true),
        ] {
            depot.tell_load(load);
            let found = (depot.is_loaded(None), depot.is_loaded(Some(&lent)));
            assert_eq!(found, (is_loaded, is_loaded_for_it), "{load:?}");
        }
    }
}
