use alloc::vec::Vec;
use posthaste_plan::Shut;
use posthaste_types::{DepotId, RequestId, Timestamp};

use crate::{
    Mind,
    books::{LOADED_FOR, Request},
    contract::{LentReason, LentTerms, Outbox, Reason},
    outlook::HOURS_AHEAD,
};

impl Mind {
    /// Sets the terms on which depots are lent for a request that is submitted next.
    pub(crate) fn on_lent_told(&mut self, id: RequestId, terms: Vec<LentTerms>) {
        if !self.requests.contains_key(&id) && !self.planning.is_held(id) {
            self.lent.insert(id, terms);
        }
    }

    /// Records the load of a depot's machine: requests that waited for that get another chance.
    pub(crate) fn on_load_told(&mut self, id: DepotId, load: Option<u32>, out: &mut Outbox) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let before = depot.load_felt_permille;
        depot.tell_load(load);
        let own = depot.load_max_permille;
        if before != depot.load_felt_permille && (own.is_some() || self.heeds_load(id)) {
            self.note_load(id, before, own);
            self.give_another_chance(id, out);
        }
    }

    /// Sets the load below which an owner lends a depot.
    pub(crate) fn on_load_bounded(&mut self, id: DepotId, most: Option<u32>, out: &mut Outbox) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let load = depot.load_felt_permille;
        let before = core::mem::replace(&mut depot.load_max_permille, most);
        if before != most {
            self.note_load(id, load, before);
            self.give_another_chance(id, out);
        }
    }

    /// Records with requests that a depot's load rose above their bound, or fell below it, since it
    /// was `before`, when its owner's bound was `own_before`.
    fn note_load(&mut self, id: DepotId, before: Option<u32>, own_before: Option<u32>) {
        let Some(depot) = self.depots.get(&id) else {
            return;
        };
        let Some((load_permille, felt)) = depot.load_permille.zip(depot.load_felt_permille) else {
            return;
        };
        let own = depot.load_max_permille;
        for user in self.index.users(id) {
            let request = self
                .requests
                .get(&user)
                .filter(|request| request.is_moving());
            let lent = request.into_iter();
            let mut lent = lent.flat_map(|request| &request.uncommon.lent);
            let lent = lent.find(|lent| lent.depot == id);
            let lent = lent.and_then(|lent| lent.load_max_permille);
            let is_moving = request.is_some();
            let most = own.into_iter().chain(lent).min();
            let most_before = own_before.into_iter().chain(lent).min();
            // When a bound is lifted, the former one says from what it is free.
            let Some(most_permille) = most.or(most_before).filter(|_| is_moving) else {
                continue;
            };
            let was_loaded = before
                .zip(most_before)
                .is_some_and(|(before, most)| before >= most);
            let is_loaded = most.is_some_and(|most| felt >= most);
            let (what, why) = match (was_loaded, is_loaded) {
                (false, true) => (
                    "is left alone",
                    LentReason::Loaded {
                        load_permille,
                        most_permille,
                    },
                ),
                (true, false) => (
                    "is used again",
                    LentReason::Unloaded {
                        load_permille,
                        most_permille,
                    },
                ),
                (true, true) | (false, false) => continue,
            };
            let name = self.name_of(id);
            self.remember_of(user, name, 0, what.into(), Reason::Lent { why });
        }
    }

    /// Records the terms on which depots are lent for an accepted request, and those that can't be
    /// kept.
    pub(super) fn remember_lent(&mut self, id: RequestId) {
        let request = self.requests.get(&id);
        let lent = request.map_or(Vec::new(), |request| request.uncommon.lent.clone());
        self.remember_loaded(id);
        for lent in lent {
            let (depot, name) = (self.depots.get(&lent.depot), self.name_of(lent.depot));
            let load = depot.and_then(|depot| depot.load_permille.zip(depot.load_felt_permille));
            let bound = lent.load_max_permille.map(|most_permille| match load {
                None => LentReason::LoadUnknown { most_permille },
                Some((load_permille, felt)) if felt >= most_permille => LentReason::Loaded {
                    load_permille,
                    most_permille,
                },
                Some((load_permille, _)) => LentReason::Unloaded {
                    load_permille,
                    most_permille,
                },
            });
            let windows = lent.windows;
            let hours = (!windows.is_always()).then_some(LentReason::Hours { windows });
            for why in hours.into_iter().chain(bound) {
                let what = "is lent for it".into();
                self.remember_of(id, name.clone(), 0, what, Reason::Lent { why });
            }
        }
    }

    /// Records which depots of a request have too much load for all.
    fn remember_loaded(&mut self, id: RequestId) {
        let request = self.requests.get(&id).into_iter();
        let lanes = request.flat_map(|request| &request.lanes);
        let depots = lanes.filter_map(|lane| self.depots.get(&lane.depot));
        let loaded = depots.filter(|depot| depot.is_loaded(None));
        let loaded = loaded.filter_map(|depot| {
            let why = LentReason::Loaded {
                load_permille: depot.load_permille?,
                most_permille: depot.load_max_permille?,
            };
            Some((depot.name.clone(), why))
        });
        for (name, why) in loaded.collect::<Vec<_>>() {
            self.remember_of(id, name, 0, "is left alone".into(), Reason::Lent { why });
        }
    }

    /// Returns whether a depot is lent for some request only below a load.
    #[must_use]
    pub fn heeds_load(&self, id: DepotId) -> bool {
        let is_bound = |lent: &LentTerms| lent.depot == id && lent.load_max_permille.is_some();
        let mut users = self.index.users(id).into_iter();
        users.any(|user| {
            let request = self.requests.get(&user);
            request.is_some_and(|request| request.uncommon.lent.iter().any(is_bound))
        }) || self.lent.values().flatten().any(is_bound)
    }

    /// Returns when hours next begin or end at which a depot may be used, by all or for one
    /// request.
    pub(super) fn next_turn(&self, id: DepotId) -> Option<Timestamp> {
        let own = self.depots.get(&id)?.terms.windows.next_change(self.now);
        let users = self.index.users(id).into_iter();
        let lent = users.filter_map(|user| {
            let lent = &self.requests.get(&user)?.uncommon.lent;
            let lent = lent.iter().find(|lent| lent.depot == id)?;
            lent.windows.next_change(self.now)
        });
        own.into_iter().chain(lent).min()
    }

    /// Schedules a look at depots with hours of a newcomer's own when these begin or end.
    pub(super) fn wind_for_lent(&mut self, request: &Request) {
        for lent in &request.uncommon.lent {
            let next = lent.windows.next_change(self.now);
            if let Some(depot) = self.depots.get_mut(&lent.depot) {
                depot.turns_at = depot.turns_at.into_iter().chain(next).min();
            }
        }
    }

    /// Returns depots that a request alone may not use at all times, each with its place among the
    /// supplies.
    pub(crate) fn shut(
        &self,
        request: &Request,
        place: impl Fn(DepotId) -> Option<usize>,
    ) -> Vec<Shut> {
        let now = self.now;
        let lent = request.uncommon.lent.iter();
        let shut = lent.filter_map(|lent| {
            let is_loaded = self.depots.get(&lent.depot)?.is_loaded(Some(lent));
            let is_shut = is_loaded || !lent.windows.is_always();
            is_shut.then_some(())?;
            Some(Shut {
                supply: place(lent.depot)?,
                windows: lent.windows.clone(),
                from: now,
                closed_until: if is_loaded { now + LOADED_FOR } else { now },
                until: now + HOURS_AHEAD,
            })
        });
        shut.collect()
    }
}
