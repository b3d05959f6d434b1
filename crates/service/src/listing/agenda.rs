//! Chooses the directory to list ahead next: breadth first, within each request's budget, with
//! limits per server. Pure code.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use posthaste_types::Timestamp;

use super::place::{Place, Site};

/// Levels below a requested directory, by default, and at most.
pub(crate) const LEVELS: u8 = 2;
pub(crate) const LEVELS_MAX: u8 = 8;
/// Directories listed ahead per request: 16 at once over 60 ms take four seconds for them.
const DIRECTORIES_MAX: usize = 1_000;
/// Bytes of listings per request: an eighth of the cache.
const BYTES_MAX: usize = 8 << 20;
/// Listing ahead continues for this long after a request: a caller that goes on asks again.
const ASK_LASTS: Duration = Duration::from_secs(30);
/// Directories listed ahead at once per server; per server with one connection, where a listing
/// costs four round trips and the program answers in sequence; and on this machine, where more
/// would only seek.
const AT_ONCE: usize = 16;
const SSH_AT_ONCE: usize = 64;
const LOCAL_AT_ONCE: usize = 4;
/// Limit over all servers.
const ALL_AT_ONCE: usize = 128;
/// Most waiting directories.
const WAITING_MAX: usize = 20_000;

/// Directory to be listed ahead.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) place: Place,
    /// Level below the requested directory.
    pub(super) level: u8,
    /// Set if everything below is to be listed in one call, if its store can and it is not too
    /// much.
    pub(super) is_tree: bool,
    ask: u64,
}

/// Remaining budget of a request.
#[derive(Debug)]
struct Budget {
    directories: usize,
    bytes: usize,
    levels: u8,
    until: Timestamp,
    /// Directories that wait or are listed for it, plus the caller while it offers some.
    holds: usize,
}

#[derive(Debug, Default)]
struct Server {
    waiting: BTreeMap<(u8, u64), Wanted>,
    running: usize,
}

/// Directories to be listed ahead.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    servers: HashMap<Site, Server>,
    positions: HashMap<Place, (u8, u64)>,
    asks: HashMap<u64, Budget>,
    running: usize,
    number: u64,
}

impl Agenda {
    /// Opens a budget for a request that may list so many levels ahead. [`Agenda::close`] ends it.
    pub(super) fn open(&mut self, levels: u8, now: Timestamp) -> u64 {
        self.number += 1;
        let budget = Budget {
            directories: DIRECTORIES_MAX,
            bytes: BYTES_MAX,
            levels: levels.min(LEVELS_MAX),
            until: now + ASK_LASTS,
            holds: 1,
        };
        self.asks.insert(self.number, budget);
        self.number
    }

    /// Returns how many directories a request may still have listed, at this level below it.
    pub(super) fn room(&self, ask: u64, level: u8) -> usize {
        let Some(budget) = self.asks.get(&ask) else {
            return 0;
        };
        if level > budget.levels || budget.bytes == 0 {
            return 0;
        }
        let left = budget.directories.saturating_sub(budget.holds - 1);
        left.min(WAITING_MAX.saturating_sub(self.positions.len()))
    }

    /// Queues a directory for listing ahead. A queued one moves forward if it comes sooner now.
    pub(super) fn offer(&mut self, ask: u64, level: u8, place: Place) {
        self.add(ask, level, place, false);
    }

    /// Queues everything below a directory, which was listed itself.
    pub(super) fn offer_tree(&mut self, ask: u64, place: Place) {
        self.add(ask, 0, place, true);
    }

    fn add(&mut self, ask: u64, level: u8, place: Place, is_tree: bool) {
        if self.room(ask, level) == 0 {
            return;
        }
        if let Some((before, _)) = self.positions.get(&place) {
            if *before <= level {
                return;
            }
            self.take(&place);
        }
        if let Some(budget) = self.asks.get_mut(&ask) {
            budget.holds += 1;
        }
        self.number += 1;
        let position = (level, self.number);
        self.positions.insert(place.clone(), position);
        let server = self.servers.entry(place.site().clone()).or_default();
        server.waiting.insert(
            position,
            Wanted {
                place,
                level,
                is_tree,
                ask,
            },
        );
    }

    /// Notes that a request has offered all its directories.
    pub(super) fn close(&mut self, ask: u64) {
        if let Some(budget) = self.asks.get_mut(&ask) {
            budget.holds -= 1;
            if budget.holds == 0 {
                self.asks.remove(&ask);
            }
        }
    }

    /// Removes a directory that a caller requests itself.
    pub(super) fn take(&mut self, place: &Place) {
        let Some(position) = self.positions.remove(place) else {
            return;
        };
        let Some(server) = self.servers.get_mut(place.site()) else {
            return;
        };
        if let Some(wanted) = server.waiting.remove(&position) {
            self.close(wanted.ask);
        }
        self.forget_if_idle(place.site());
    }

    /// Returns the next directory; [`Agenda::done`] ends it.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<Wanted> {
        loop {
            if self.running >= ALL_AT_ONCE {
                return None;
            }
            let free = self.servers.iter().filter(|(site, server)| {
                let at_once = if site.is_here() {
                    LOCAL_AT_ONCE
                } else if site.is_ssh() {
                    SSH_AT_ONCE
                } else {
                    AT_ONCE
                };
                server.running < at_once
            });
            let heads = free.filter_map(|(site, server)| {
                let (position, _) = server.waiting.first_key_value()?;
                Some((*position, site.clone()))
            });
            let (position, site) = heads.min()?;
            let server = self.servers.get_mut(&site)?;
            let wanted = server.waiting.remove(&position)?;
            self.positions.remove(&wanted.place);
            let may = self.asks.get_mut(&wanted.ask).is_some_and(|budget| {
                let may = budget.directories > 0 && budget.bytes > 0 && now < budget.until;
                budget.directories = budget.directories.saturating_sub(1);
                may
            });
            if may {
                server.running += 1;
                self.running += 1;
                return Some(wanted);
            }
            self.close(wanted.ask);
            self.forget_if_idle(&site);
        }
    }

    /// Records a listed or cached directory: its bytes and its subdirectories.
    pub(super) fn done(
        &mut self,
        wanted: &Wanted,
        bytes: usize,
        below: impl Iterator<Item = Place>,
    ) {
        if let Some(budget) = self.asks.get_mut(&wanted.ask) {
            budget.bytes = budget.bytes.saturating_sub(bytes);
        }
        let level = wanted.level.saturating_add(1);
        let room = self.room(wanted.ask, level);
        for place in below.take(room) {
            self.offer(wanted.ask, level, place);
        }
        self.close(wanted.ask);
        if let Some(server) = self.servers.get_mut(wanted.place.site()) {
            server.running -= 1;
            self.running -= 1;
        }
        self.forget_if_idle(wanted.place.site());
    }

    /// Drops all directories of a server that does not answer.
    pub(super) fn give_up(&mut self, site: &Site) {
        let Some(server) = self.servers.get_mut(site) else {
            return;
        };
        for (_, wanted) in std::mem::take(&mut server.waiting) {
            self.positions.remove(&wanted.place);
            self.close(wanted.ask);
        }
        self.forget_if_idle(site);
    }

    fn forget_if_idle(&mut self, site: &Site) {
        let is_idle = |server: &Server| server.running == 0 && server.waiting.is_empty();
        if self.servers.get(site).is_some_and(is_idle) {
            self.servers.remove(site);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let is_idle = self.servers.is_empty() && self.positions.is_empty();
        is_idle && self.asks.is_empty() && self.running == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1000);

    fn place(address: &str) -> Place {
        Place::of(address, Some("p"), Ok).unwrap()
    }

    fn offer_all(agenda: &mut Agenda, ask: u64, bucket: &str, many: usize) {
        for number in 0..many {
            agenda.offer(ask, 1, place(&format!("s3://{bucket}/{number:05}")));
        }
    }

    #[test]
    fn nearer_levels_come_first_and_all_ends() {
        let mut agenda = Agenda::default();
        let ask = agenda.open(2, NOW);
        for name in ["s3://b/x", "s3://b/y"] {
            agenda.offer(ask, 1, place(name));
        }
        agenda.close(ask);
        let mut order = Vec::new();
        while let Some(wanted) = agenda.next(NOW) {
            order.push((wanted.level, wanted.place.path().to_vec()));
            let below: Vec<Place> = ["1", "2"]
                .map(|name| wanted.place.child(name.as_bytes()))
                .into();
            agenda.done(&wanted, 10, below.into_iter());
        }
        let order: Vec<(u8, &str)> = order
            .iter()
            .map(|(level, path)| (*level, std::str::from_utf8(path).unwrap()))
            .collect();
        // Nothing is listed two levels further down.
        let whole = [
            (1, "x"),
            (1, "y"),
            (2, "x/1"),
            (2, "x/2"),
            (2, "y/1"),
            (2, "y/2"),
        ];
        assert_eq!(order, whole);
        assert!(agenda.is_empty(), "{agenda:?}");
    }

    #[test]
    fn an_ask_costs_no_more_than_its_budget() {
        let mut agenda = Agenda::default();
        let ask = agenda.open(3, NOW);
        offer_all(&mut agenda, ask, "b", 5_000);
        agenda.close(ask);
        let mut listed = 0;
        while let Some(wanted) = agenda.next(NOW) {
            listed += 1;
            let below =
                (0..100).map(|number: u32| wanted.place.child(number.to_string().as_bytes()));
            agenda.done(&wanted, 1, below);
        }
        assert_eq!(listed, DIRECTORIES_MAX);
        assert!(agenda.is_empty(), "{agenda:?}");
        let ask = agenda.open(3, NOW);
        offer_all(&mut agenda, ask, "b", 100);
        agenda.close(ask);
        let wanted = agenda.next(NOW).unwrap();
        agenda.done(&wanted, BYTES_MAX, std::iter::empty());
        assert!(agenda.next(NOW).is_none(), "its bytes are used up");
        assert!(agenda.is_empty(), "{agenda:?}");
    }

    #[test]
    fn nothing_goes_on_long_after_somebody_asked() {
        let mut agenda = Agenda::default();
        let ask = agenda.open(2, NOW);
        offer_all(&mut agenda, ask, "b", 10);
        agenda.close(ask);
        assert!(agenda.next(NOW + ASK_LASTS).is_none());
        assert!(agenda.is_empty(), "{agenda:?}");
    }

    #[test]
    fn each_server_has_its_turns_and_is_not_overrun() {
        let mut agenda = Agenda::default();
        let ask = agenda.open(1, NOW);
        offer_all(&mut agenda, ask, "slow", 40);
        offer_all(&mut agenda, ask, "other", 1);
        let mut running = Vec::new();
        while let Some(wanted) = agenda.next(NOW) {
            running.push(wanted);
        }
        assert_eq!(running.len(), AT_ONCE + 1);
        assert_eq!(running[AT_ONCE].place, place("s3://other/00000"));
        agenda.done(&running[0], 1, std::iter::empty());
        assert!(agenda.next(NOW).is_some() && agenda.next(NOW).is_none());
    }

    #[test]
    fn what_somebody_waits_for_is_not_listed_ahead_and_what_is_nearer_comes_sooner() {
        let mut agenda = Agenda::default();
        let far = agenda.open(2, NOW);
        agenda.offer(far, 1, place("s3://b/a"));
        agenda.offer(far, 2, place("s3://b/x/y"));
        agenda.offer(far, 2, place("s3://b/x/z"));
        agenda.close(far);
        agenda.take(&place("s3://b/a"));
        let near = agenda.open(1, NOW);
        agenda.offer(near, 1, place("s3://b/x/z"));
        agenda.close(near);
        let mut next = || {
            let wanted = agenda.next(NOW)?;
            agenda.done(&wanted, 1, std::iter::empty());
            Some(wanted.place)
        };
        let order: Vec<Place> = std::iter::from_fn(&mut next).collect();
        assert_eq!(order, [place("s3://b/x/z"), place("s3://b/x/y")]);
        assert!(agenda.is_empty(), "{agenda:?}");
    }

    #[test]
    fn a_server_that_does_not_answer_is_left_alone() {
        let mut agenda = Agenda::default();
        let ask = agenda.open(1, NOW);
        offer_all(&mut agenda, ask, "gone", 40);
        agenda.close(ask);
        let wanted = agenda.next(NOW).unwrap();
        agenda.give_up(wanted.place.site());
        agenda.done(&wanted, 0, std::iter::empty());
        assert!(
            agenda.next(NOW).is_none() && agenda.is_empty(),
            "{agenda:?}"
        );
    }
}
