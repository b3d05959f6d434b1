use alloc::{collections::BTreeMap, string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::decay::decayed;
use posthaste_types::{Bytes, Timestamp, record};

use crate::{
    Settings,
    contract::{Priority, Wishes},
};

/// Step of decay of past service: finer steps would cost more than they are worth.
const DECAY_STEP: Duration = Duration::from_secs(60);

record! {
    /// Turn among requests that can't be on time: the lowest is next.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    pub(crate) struct Turn {
        /// Levels of priority above it.
        below_most: u8,
        /// Number of projects that were served less recently.
        project: u32,
        /// Number of users within the project that were served less recently.
        owner: u32,
    }
}

impl Turn {
    /// Turn before all others.
    pub(crate) const FIRST: Self = Self {
        below_most: 0,
        project: 0,
        owner: 0,
    };
}

/// Owner and project of a request, and its priority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) priority: Priority,
    pub(crate) owner: &'a str,
    pub(crate) project: &'a str,
}

impl Wishes {
    pub(crate) fn claim(&self) -> Claim<'_> {
        Claim {
            priority: self.priority,
            owner: &self.owner,
            project: &self.project,
        }
    }
}

record! {
    /// Service to one project, or one user of a project.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Served {
        /// Bytes, decayed by age.
        bytes: u64,
        /// Time of that value.
        at: Timestamp,
        /// Number of others that were served less, at the last look at everything.
        rank: u32,
    }
}

record! {
    /// Recent service by project and user. Bounded by the names in use: those not served for long
    /// are forgotten.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Shares {
        projects: BTreeMap<String, Served>,
        /// Service by project and user.
        owners: BTreeMap<(String, String), Served>,
        /// Looks at everything so far.
        looks: u64,
        /// Levels above the highest priority met during the last look, and during this one.
        top: Option<u8>,
        top_so_far: Option<u8>,
    }
}

impl Shares {
    /// Charges bytes stored for a request, or received for a stage-in.
    pub(crate) fn charge(
        &mut self,
        claim: Claim<'_>,
        bytes: Bytes,
        now: Timestamp,
        settings: &Settings,
    ) {
        let Claim { owner, project, .. } = claim;
        if !self.projects.contains_key(project) {
            self.projects.insert(project.into(), Served::new(now));
        }
        if let Some(party) = self.projects.get_mut(project) {
            party.charge(bytes, now, settings);
        }
        let owner = (String::from(project), String::from(owner));
        let party = self.owners.entry(owner).or_insert(Served::new(now));
        party.charge(bytes, now, settings);
    }

    /// Begins a look at everything: turns stay fixed until the next one.
    pub(crate) fn settle(&mut self, now: Timestamp, settings: &Settings) {
        self.looks += 1;
        self.top = self.top_so_far.take();
        for party in self.projects.values_mut().chain(self.owners.values_mut()) {
            party.age(now, settings);
        }
        self.projects.retain(|_, party| party.bytes > 0);
        self.owners.retain(|_, party| party.bytes > 0);
        rank(self.projects.values_mut().collect());
        let mut of_project: BTreeMap<&str, Vec<&mut Served>> = BTreeMap::new();
        for ((project, _), party) in &mut self.owners {
            of_project.entry(project).or_default().push(party);
        }
        of_project.into_values().for_each(rank);
    }

    /// Returns the turn of a request that can't be on time. Priority comes first, then the least
    /// served. But one look in `settings.fair_looks` treats all as having the highest present
    /// priority, so that none waits for ever.
    pub(crate) fn turn(&mut self, claim: Claim<'_>, settings: &Settings) -> Turn {
        let below_most = claim.priority.below_most();
        let top = self.top_so_far.unwrap_or(below_most).min(below_most);
        self.top_so_far = Some(top);
        let is_fair = self
            .looks
            .is_multiple_of(u64::from(settings.fair_looks.max(1)));
        let project = self.projects.get(claim.project);
        let owner = (String::from(claim.project), String::from(claim.owner));
        let owner = self.owners.get(&owner);
        Turn {
            below_most: if is_fair {
                self.top.map_or(below_most, |top| top.min(below_most))
            } else {
                below_most
            },
            project: project.map_or(0, |party| party.rank),
            owner: owner.map_or(0, |party| party.rank),
        }
    }
}

impl Served {
    fn new(now: Timestamp) -> Self {
        Self {
            bytes: 0,
            at: now,
            rank: 0,
        }
    }

    fn age(&mut self, now: Timestamp, settings: &Settings) {
        let span = now.since(self.at);
        if span >= DECAY_STEP {
            self.bytes = decayed(self.bytes, span, settings.share_half_life);
            self.at = now;
        }
    }

    fn charge(&mut self, bytes: Bytes, now: Timestamp, settings: &Settings) {
        self.age(now, settings);
        self.bytes = self.bytes.saturating_add(bytes.get());
    }
}

/// Ranks each party by how many were served less. Unregistered ones were served nothing, and so
/// come before all.
fn rank(mut shares: Vec<&mut Served>) {
    shares.sort_by_key(|party| party.bytes);
    let (mut rank, mut last) = (0, 0);
    for party in shares {
        rank += u32::from(party.bytes > last);
        last = party.bytes;
        party.rank = rank;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn wishes(project: &str, owner: &str, priority: &str) -> Wishes {
        Wishes {
            project: project.to_string(),
            owner: owner.to_string(),
            priority: priority.parse().unwrap(),
            ..Wishes::default()
        }
    }

    /// Plays rounds in which all always want service, a byte a round, and returns what each got.
    fn served(all: &[Wishes], rounds: usize) -> Vec<u64> {
        let (mut shares, settings) = (Shares::default(), Settings::default());
        let mut served = alloc::vec![0; all.len()];
        for round in 0..rounds as u64 {
            let now = NOW + Duration::from_secs(round);
            shares.settle(now, &settings);
            let turns: Vec<Turn> = all
                .iter()
                .map(|wishes| shares.turn(wishes.claim(), &settings))
                .collect();
            let first = (0..all.len()).min_by_key(|&place| turns[place]).unwrap();
            shares.charge(all[first].claim(), Bytes::new(1000), now, &settings);
            served[first] += 1;
        }
        served
    }

    #[test]
    fn projects_and_the_users_in_them_share_evenly_whoever_asks_more() {
        let all = [
            wishes("climate", "ann", "normal"),
            wishes("climate", "ben", "normal"),
            wishes("physics", "eve", "normal"),
        ];
        assert_eq!(served(&all, 800), [200, 200, 400]);
    }

    #[test]
    fn priority_comes_first_and_starves_nobody() {
        let all = [
            wishes("climate", "ann", "urgent"),
            wishes("physics", "eve", "low"),
        ];
        assert_eq!(served(&all, 800), [700, 100]);
    }

    #[test]
    fn where_all_are_alike_turns_never_differ() {
        let (mut shares, settings) = (Shares::default(), Settings::default());
        let mut turns = alloc::collections::BTreeSet::new();
        for round in 0..50 {
            let now = NOW + Duration::from_secs(round);
            shares.settle(now, &settings);
            if round > 1 {
                turns.insert(shares.turn(Wishes::default().claim(), &settings));
            }
            shares.turn(Wishes::default().claim(), &settings);
            shares.charge(Wishes::default().claim(), Bytes::new(7), now, &settings);
        }
        assert_eq!(turns.len(), 1, "{turns:?}");
    }

    #[test]
    fn what_was_served_long_ago_is_forgotten() {
        let (mut shares, settings) = (Shares::default(), Settings::default());
        let (old, new) = (wishes("old", "", "normal"), wishes("new", "", "normal"));
        shares.charge(old.claim(), Bytes::new(3000), NOW, &settings);
        let later = NOW + settings.share_half_life * 2;
        shares.charge(new.claim(), Bytes::new(1000), later, &settings);
        shares.settle(later, &settings);
        assert!(shares.turn(old.claim(), &settings) < shares.turn(new.claim(), &settings));
        shares.settle(later + settings.share_half_life * 40, &settings);
        assert_eq!(shares.projects.len() + shares.owners.len(), 0);
    }
}
