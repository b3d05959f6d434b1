use alloc::string::String;
use core::time::Duration;
use posthaste_plan::{Curve, tuner::Setting};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use super::{Fork, History, Link, Request};
use crate::{
    Settings,
    contract::{DepotPrices, DepotState, DepotTerms, Drain, EgressPrice, LentTerms, load_left},
};

record! {
    /// What a depot said when it answered while it was being left alone.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Answer {
        pub(crate) free: Bytes,
        pub(crate) rate_max: Option<ByteRate>,
    }
}

/// How long a machine that has too much to do is taken to have so: nobody knows, and a load average is that of a minute.
pub(crate) const LOADED_FOR: Duration = Duration::from_secs(300);

/// Depots must have been there for so long before they count as those that stay.
const CALM: Duration = Duration::from_secs(600);

/// Stands for a level that nobody said: how far the depot is decides, for each request.
pub(crate) const LEVEL_BY_DISTANCE: u8 = 0;

record! {
    /// A depot: its facts, how it is doing, and the link to it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Depot {
        pub(crate) name: String,
        pub(crate) capacity: Bytes,
        pub(crate) state: DepotState,
        /// Space it has for us, not counting what is in flight.
        pub(crate) free: Bytes,
        /// Over the way that is taken.
        pub(crate) link: Link,
        /// The ways there are, where there are several.
        pub(crate) fork: Fork,
        pub(crate) terms: DepotTerms,
        /// What it costs beyond those.
        pub(crate) prices: DepotPrices,
        /// Hops from the centre, from 1: those of a higher level are nearer to destinations. Or [`LEVEL_BY_DISTANCE`].
        pub(crate) level: u8,
        /// How far it is from the centre, where that was told.
        pub(crate) round_trip: Option<Duration>,
        /// It can send on what it still receives.
        pub(crate) follows: bool,
        /// It lies in a store: it neither sends nor takes anything by itself.
        pub(crate) stores: bool,
        /// Whether an operator drains it, and whether it says itself that it ends.
        pub(crate) drain_asked: Drain,
        pub(crate) drain_own: Drain,
        /// What lies only here, when last counted; and when it is counted next.
        pub(crate) only_here: Option<u64>,
        pub(crate) counts_at: Option<Timestamp>,
        /// It was said that nothing lies only here.
        pub(crate) is_said_empty: bool,
        /// Bytes on their way here from other depots.
        pub(crate) arriving: Bytes,
        /// How much its machine has to do, in thousandths of a core's for each core, where it says so.
        pub(crate) load_permille: Option<u32>,
        /// The same as bounds see it: it rises at once, and falls late.
        pub(crate) load_felt_permille: Option<u32>,
        /// Nothing is sent there while that is this or more, whoever it is for.
        pub(crate) load_max_permille: Option<u32>,
        /// When its hours begin or end next, or those for which it is lent for a request.
        pub(crate) turns_at: Option<Timestamp>,
        /// It went as its hours said: what it holds still counts, and it will be back.
        pub(crate) is_away: bool,
        /// Since when it is down, if it is.
        pub(crate) down_since: Timestamp,
        /// Sends that failed since the last one that did not.
        pub(crate) failures: u32,
        /// Times it was lost since it last stayed.
        pub(crate) losses: u32,
        /// Times it was lost to failing sends since it last stored something.
        pub(crate) fruitless: u32,
        /// Nothing is sent before.
        pub(crate) resume_at: Timestamp,
        /// It is not taken back before, whatever it answers.
        pub(crate) hold_until: Timestamp,
        pub(crate) answered: Option<Answer>,
        /// How often it lost what it held.
        pub(crate) history: History,
        /// Where the optimizer of the last request ended: where that of the next one begins.
        pub(crate) best: Option<Setting>,
    }
}

impl Depot {
    pub(crate) fn new(name: String, capacity: Bytes, link: Link, now: Timestamp) -> Self {
        Self {
            name,
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

    pub(crate) fn is_up(&self) -> bool {
        self.state == DepotState::Up
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state == DepotState::Down
    }

    /// Whether it is there or will be: what plans count on.
    pub(crate) fn is_expected(&self) -> bool {
        !self.is_down() || self.is_away
    }

    /// Whether it was lost a short while ago: who goes once goes again.
    pub(crate) fn is_shaky(&self, now: Timestamp) -> bool {
        self.is_down() || self.went_lately(now)
    }

    /// Whether it was lost a short while ago, and not long ago for good.
    pub(crate) fn went_lately(&self, now: Timestamp) -> bool {
        self.losses > 0 && self.down_since + CALM > now
    }

    /// Whether nobody knows yet that it stays.
    pub(crate) fn is_new(&self, now: Timestamp) -> bool {
        self.history.watched(now) < CALM
    }

    /// Whether it is lost and may be back some time.
    pub(crate) fn is_hoped_for(&self, settings: &Settings) -> bool {
        !self.is_expected() && self.fruitless < settings.fruitless_max
    }

    /// When one that is hoped for may be back: nobody knows, and what has lasted long lasts long. So after
    /// as long again as it has been gone (Lindy's rule), a minute at least.
    pub(crate) fn may_be_back_at(&self, now: Timestamp) -> Timestamp {
        const LEAST: Duration = Duration::from_secs(60);
        now + now.since(self.down_since).max(LEAST)
    }

    /// Whether it is drained.
    pub(crate) fn drain(&self) -> Drain {
        self.drain_asked.max(self.drain_own)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain() != Drain::Off
    }

    /// Whether its hours let it be used.
    pub(crate) fn is_within_hours(&self, at: Timestamp) -> bool {
        self.terms.windows.is_open(at)
    }

    /// Whether something may be sent there, whoever it is for: its hours let it, and its load.
    pub(crate) fn is_open(&self, at: Timestamp) -> bool {
        self.is_within_hours(at) && !self.is_loaded(None)
    }

    /// Whether something of a request may be sent there: its hours let it, those for which it is lent for that alone, and
    /// its load.
    pub(crate) fn is_open_to(&self, request: &Request, lane: usize, at: Timestamp) -> bool {
        let lent = request.lent(lane);
        let is_lent = lent.is_none_or(|lent| lent.windows.is_open(at));
        self.is_within_hours(at) && is_lent && !self.is_loaded(lent)
    }

    /// Below which load it is lent to all, or for a request with these terms of its own.
    pub(crate) fn load_bound(&self, lent: Option<&LentTerms>) -> Option<u32> {
        let own = lent.and_then(|lent| lent.load_max_permille);
        self.load_max_permille.into_iter().chain(own).min()
    }

    /// Its machine says how much it has to do.
    pub(crate) fn tell_load(&mut self, load: Option<u32>) {
        let before = self.load_felt_permille.unwrap_or(0);
        self.load_felt_permille = load.map(|load| load_left(load).min(before).max(load));
        self.load_permille = load;
    }

    /// Whether its machine has as much to do as whoever lends it to all bears, or for a request with these terms of its own,
    /// or more. Where nobody knows, it has not.
    pub(crate) fn is_loaded(&self, lent: Option<&LentTerms>) -> bool {
        let loaded = self.load_felt_permille.zip(self.load_bound(lent));
        loaded.is_some_and(|(load, most)| load >= most)
    }

    /// Takes from what it carries the times in which nothing is sent there, for whomever: outside its hours, and for a while
    /// where its machine has too much to do.
    pub(crate) fn close(&self, curve: &mut Curve, from: Timestamp, until: Timestamp) {
        self.terms.windows.close(curve, from, until);
        if self.is_loaded(None) {
            curve.close(from, until.min(from + LOADED_FOR));
        }
    }

    /// When hours begin or end next at which something of a request may be sent there, or its load may have fallen.
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

    /// What sending bytes there in one request and keeping them for some seconds costs, in millionths of a dollar.
    pub(crate) fn cost(&self, bytes: Bytes, keep_s: u64) -> u64 {
        (self.terms.cost(bytes, keep_s) + self.prices.put()).micro_usd()
    }

    /// What of that sending alone does.
    pub(crate) fn cost_of_sending(&self, bytes: Bytes) -> u64 {
        (self.terms.sending().of(bytes) + self.prices.put()).micro_usd()
    }

    /// Whether storing there costs nothing.
    pub(crate) fn is_free(&self) -> bool {
        self.terms.is_free() && self.prices.put_micro_usd == 0
    }

    /// Whether reading from it costs nothing, wherever that goes.
    pub(crate) fn gives_free(&self) -> bool {
        let prices = &self.prices;
        let is_free = |price: &EgressPrice| price.micro_usd == 0;
        prices.get_micro_usd == 0
            && prices.egress_micro_usd == 0
            && prices.egress_to.iter().all(is_free)
    }

    /// What reading a piece of it for another depot costs, or for somewhere unknown.
    pub(crate) fn cost_of_reading(&self, bytes: Bytes, to: Option<&Depot>) -> u64 {
        let to = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
        self.prices.reading(bytes, to).micro_usd()
    }

    /// Space for new fragments, after what is in flight.
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
            // It says so no more: nobody knows.
            (None, false, false),
            (Some(450), false, true),
        ] {
            depot.tell_load(load);
            let found = (depot.is_loaded(None), depot.is_loaded(Some(&lent)));
            assert_eq!(found, (is_loaded, is_loaded_for_it), "{load:?}");
        }
    }
}
