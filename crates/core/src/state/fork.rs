use alloc::{string::String, vec::Vec};
use posthaste_forecast::Path;
use posthaste_types::{ByteRate, Timestamp, record};

use crate::state::Link;
use crate::{Settings, contract::WayView};

record! {
    /// Way to a depot, of several.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Branch {
        pub(crate) name: String,
        /// Knowledge of it while it is not in use; for the one in use the link has it.
        pub(crate) path: Path,
        /// Time of its last failed try, and the number since it was last in use.
        pub(crate) tried_at: Option<Timestamp>,
        pub(crate) fruitless: u32,
    }
}

record! {
    /// Ways to a depot, if there are several, in the order preferred while nothing is known: the
    /// straight one last.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Fork {
        branches: Vec<Branch>,
        taken: usize,
        /// Chosen way; another is in use while it does not open.
        chosen: usize,
        /// Time at which a way last broke under its transfers.
        broke_at: Timestamp,
    }
}

impl Fork {
    /// Sets the ways. Knowledge of those that stay is kept. Returns whether another one than the
    /// first is in use.
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
            // The link's knowledge so far was of the only way there was: the straight one.
            None if self.branches.len() > 1 => {
                self.taken = self.branches.len() - 1;
                self.take(0, link, now, settings);
            }
            None => self.taken = 0,
            Some(Some(place)) => self.taken = place,
            // The way in use is gone.
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

    /// Returns whether decoded bytes made usable ways.
    pub(crate) fn is_sound(&self) -> bool {
        self.branches.len() != 1 && self.taken.max(self.chosen) < self.branches.len().max(1)
    }

    /// Returns whether a failure now, of something begun at `since`, belongs to a way already known
    /// to have broken. All transfers on a way break together, which is one failure if there is
    /// another way.
    pub(crate) fn broke_before(&mut self, since: Timestamp, now: Timestamp) -> bool {
        let is_same = !self.is_one() && since <= self.broke_at;
        if !is_same {
            self.broke_at = now;
        }
        is_same
    }

    /// Returns the place of the one in use.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the place of the straight one.
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

    /// Returns the name of a way; empty if there is none.
    pub(crate) fn name(&self, place: usize) -> String {
        self.branches
            .get(place)
            .map_or_else(String::new, |way| way.name.clone())
    }

    /// Returns the first of these ways, unless one of them is chosen.
    pub(crate) fn other_of(&self, names: &[String]) -> Option<usize> {
        let is_named = |branch: &Branch| names.contains(&branch.name);
        let place = self.branches.iter().position(is_named);
        place.filter(|_| !self.branch(self.chosen).is_some_and(is_named))
    }

    /// Returns whether another way is in use than the chosen one, which does not open.
    pub(crate) const fn is_diverted(&self) -> bool {
        self.taken != self.chosen
    }

    /// Chooses this way; data uses it from now on.
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

    /// Moves data to this way, whatever was chosen: the link gets what was known of it.
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

    /// Returns the forecast rate (p50) of each way; none for one that was not measured.
    pub(crate) fn rates(
        &self,
        link: &Link,
        now: Timestamp,
        settings: &Settings,
    ) -> Vec<Option<ByteRate>> {
        let views = self.views(link, now, settings).into_iter();
        views.map(|way| way.rates.map(|rates| rates.p50)).collect()
    }

    /// Returns the ways as people see them; none if there is only one.
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
