use alloc::{string::String, vec::Vec};
use posthaste_forecast::Path;
use posthaste_types::{ByteRate, Timestamp, record};

use super::Link;
use crate::{Settings, contract::WayView};

record! {
    /// One of several ways to a depot.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Branch {
        pub(crate) name: String,
        /// What is known of it while it is not taken; of the one that is taken the link knows.
        pub(crate) path: Path,
        /// When it was last tried in vain, and how often since it was last taken.
        pub(crate) tried_at: Option<Timestamp>,
        pub(crate) fruitless: u32,
    }
}

record! {
    /// The ways to a depot where there are several, as they are wanted while nothing is known: the straight one last.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Fork {
        branches: Vec<Branch>,
        taken: usize,
        /// The one that was chosen: another one is taken while it does not open.
        chosen: usize,
        /// When a way last broke under what was sent.
        broke_at: Timestamp,
    }
}

impl Fork {
    /// There are these ways from now on. Of those that were there before all stays known that is. Returns whether
    /// another one than the first is taken.
    pub(crate) fn set_names(
        &mut self,
        names: Vec<String>,
        link: &mut Link,
        now: Timestamp,
        settings: &Settings,
    ) -> bool {
        self.divert(self.chosen, link, now, settings);
        let mut before = core::mem::take(&mut self.branches);
        let last = before.len().saturating_sub(1);
        let was_taken = before.get(self.taken).map(|taken| taken.name.clone());
        let mut named = |name: String| match before.iter().position(|branch| branch.name == name) {
            Some(place) => before.swap_remove(place),
            None => Branch {
                name,
                path: Path::default(),
                tried_at: None,
                fruitless: 0,
            },
        };
        if names.len() > 1 {
            self.branches = names.into_iter().map(&mut named).collect();
        }
        let place = was_taken.map(|name| self.branches.iter().position(|way| way.name == name));
        match place {
            // What the link knew until now was of the only way there was: the straight one.
            None if self.branches.len() > 1 => {
                self.taken = self.branches.len() - 1;
                self.take(0, link, now, settings);
            }
            None => self.taken = 0,
            Some(Some(place)) => self.taken = place,
            // The way that was taken is no more.
            Some(None) => {
                let was_straight = self.taken == last;
                self.taken = 0;
                match self.branches.first_mut() {
                    Some(first) => {
                        let path = core::mem::take(&mut first.path);
                        link.turn_to(path, now, settings);
                    }
                    None if was_straight => {}
                    None => {
                        let straight = before.pop().map(|left| left.path);
                        link.turn_to(straight.unwrap_or_default(), now, settings);
                    }
                }
            }
        }
        self.chosen = self.taken;
        self.taken > 0
    }

    pub(crate) fn is_one(&self) -> bool {
        self.branches.len() <= 1
    }

    /// Whether bytes from outside made ways that can be used.
    pub(crate) fn is_sound(&self) -> bool {
        self.branches.len() != 1 && self.taken.max(self.chosen) < self.branches.len().max(1)
    }

    /// Whether what failed now, and began at `since`, broke with a way of which that is known: all that is on it breaks
    /// together, and where there is another way that is one failure.
    pub(crate) fn broke_before(&mut self, since: Timestamp, now: Timestamp) -> bool {
        let is_same = !self.is_one() && since <= self.broke_at;
        if !is_same {
            self.broke_at = now;
        }
        is_same
    }

    /// The place of the one that is taken.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// The place of the straight one.
    pub(crate) fn straight(&self) -> usize {
        self.branches.len().saturating_sub(1)
    }

    pub(crate) fn branch(&self, place: usize) -> Option<&Branch> {
        self.branches.get(place)
    }

    pub(crate) fn branch_mut(&mut self, place: usize) -> Option<&mut Branch> {
        self.branches.get_mut(place)
    }

    pub(crate) fn branches(&self) -> &[Branch] {
        &self.branches
    }

    /// The name of a way; empty where there is none.
    pub(crate) fn name(&self, place: usize) -> String {
        self.branches
            .get(place)
            .map_or_else(String::new, |way| way.name.clone())
    }

    /// The first of these ways, unless one of them is chosen.
    pub(crate) fn other_of(&self, names: &[String]) -> Option<usize> {
        let is_named = |branch: &Branch| names.contains(&branch.name);
        let place = self.branches.iter().position(is_named);
        place.filter(|_| !self.branch(self.chosen).is_some_and(is_named))
    }

    /// Whether another way is taken than the one that was chosen, which does not open.
    pub(crate) const fn is_diverted(&self) -> bool {
        self.taken != self.chosen
    }

    /// This way is chosen, and data takes it from now on.
    pub(crate) fn take(
        &mut self,
        place: usize,
        link: &mut Link,
        now: Timestamp,
        settings: &Settings,
    ) {
        self.divert(place, link, now, settings);
        self.chosen = self.taken;
    }

    /// Data takes this way from now on, whatever was chosen: the link knows of it what was known.
    pub(crate) fn divert(
        &mut self,
        place: usize,
        link: &mut Link,
        now: Timestamp,
        settings: &Settings,
    ) {
        if place == self.taken {
            return;
        }
        let Some(branch) = self.branches.get_mut(place) else {
            return;
        };
        branch.fruitless = 0;
        let left = link.turn_to(core::mem::take(&mut branch.path), now, settings);
        if let Some(before) = self.branches.get_mut(self.taken) {
            before.path = left;
        }
        self.taken = place;
    }

    /// What each way is forecast to carry (p50); none of one that was not measured.
    pub(crate) fn rates(
        &self,
        link: &Link,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<Option<ByteRate>> {
        let views = self.views(link, now, settings).into_iter();
        views.map(|way| way.rates.map(|rates| rates.p50)).collect()
    }

    /// The ways as people see them; none where there is only one.
    pub(crate) fn views(&self, link: &Link, now: Timestamp, settings: &Settings) -> Vec<WayView> {
        let ways = self.branches.iter().enumerate();
        ways.map(|(place, way)| {
            let is_taken = place == self.taken;
            let path = if is_taken { link.path() } else { &way.path };
            let rates = path.forecast(now, settings.forecast_tau);
            WayView {
                name: way.name.clone(),
                is_taken,
                rates: rates.map(|rates| rates.capped(link.advert())),
                measured_at: path.measured_at(),
            }
        })
        .collect()
    }
}
