//! Max-min fair shares of resources by progressive filling (Bertsekas and Gallager, Data Networks,
//! section 6.5.2), recomputed only where something changed.
//!
//! All users grow at one pace until a resource is full. Its users stop there, the others continue.
//! A user's ceiling is its share if it were alone. A resource that carries the ceilings of all its
//! users limits nobody and doesn't connect them, so a change spreads only through binding
//! resources. A full resource gives each of its users the same whole number of bytes a second. The
//! remainder, less than a byte a second for each, stays unused.

use std::{cmp::Reverse, collections::BinaryHeap};

/// Place of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceId(usize);

/// Place of a user.
pub(crate) type UserId = usize;

/// Resource with a capacity shared by all users that cross it.
#[derive(Debug)]
struct Resource {
    capacity: u64,
    /// Sum of the active users' ceilings.
    demand: u128,
    /// Active users.
    users: Vec<UserId>,
    is_noted: bool,
    /// Number of the last settling that visited it. `left` and `sharers` are its remaining capacity
    /// and users.
    seen: u64,
    left: u64,
    sharers: u64,
}

impl Resource {
    fn binds(&self) -> bool {
        self.demand > u128::from(self.capacity)
    }

    fn fair(&self) -> Option<u64> {
        self.left.checked_div(self.sharers)
    }
}

/// User that demands as much as available.
#[derive(Debug)]
struct User {
    /// Resources it crosses, with its place among the active users of each.
    crosses: Vec<(ResourceId, usize)>,
    /// Highest demand.
    limit: u64,
    /// Highest possible share: `limit` or the least capacity it crosses.
    ceiling: u64,
    is_active: bool,
    is_noted: bool,
    share: u64,
    /// Number of the last settling that visited it. `dealt` is that of the last one that gave it a
    /// share.
    seen: u64,
    dealt: u64,
}

/// Resources, their users, and the share of each.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    resources: Vec<Resource>,
    users: Vec<User>,
    noted_resources: Vec<ResourceId>,
    noted_users: Vec<UserId>,
    settling: u64,
}

impl Shares {
    pub(crate) fn add_resource(&mut self, capacity: u64) -> ResourceId {
        self.resources.push(Resource {
            capacity,
            demand: 0,
            users: Vec::new(),
            is_noted: false,
            seen: 0,
            left: 0,
            sharers: 0,
        });
        ResourceId(self.resources.len() - 1)
    }

    /// Adds a user without demand. `limit` is in bytes a second.
    pub(crate) fn add_user(
        &mut self,
        limit: u64,
        crosses: impl IntoIterator<Item = ResourceId>,
    ) -> UserId {
        self.users.push(User {
            crosses: crosses.into_iter().map(|resource| (resource, 0)).collect(),
            limit,
            ceiling: 0,
            is_active: false,
            is_noted: false,
            share: 0,
            seen: 0,
            dealt: 0,
        });
        self.users.len() - 1
    }

    /// Changes a capacity. Costs a visit of each active user of the resource.
    pub(crate) fn set_capacity(&mut self, resource: ResourceId, capacity: u64) {
        if self.resources[resource.0].capacity == capacity {
            return;
        }
        self.note_if_binding(resource);
        self.resources[resource.0].capacity = capacity;
        for place in 0..self.resources[resource.0].users.len() {
            self.refit(self.resources[resource.0].users[place]);
        }
        self.note_if_binding(resource);
    }

    pub(crate) fn set_limit(&mut self, user: UserId, limit: u64) {
        self.users[user].limit = limit;
        if self.users[user].is_active {
            self.refit(user);
        }
    }

    /// Sets whether the user demands anything.
    pub(crate) fn set_active(&mut self, user: UserId, is_active: bool) {
        if self.users[user].is_active == is_active {
            return;
        }
        self.users[user].is_active = is_active;
        self.users[user].share = 0;
        self.users[user].ceiling = self.ceiling(user);
        let ceiling = u128::from(self.users[user].ceiling);
        for turn in 0..self.users[user].crosses.len() {
            let (resource, place) = self.users[user].crosses[turn];
            self.note_if_binding(resource);
            let crossed = &mut self.resources[resource.0];
            if is_active {
                crossed.demand += ceiling;
                self.users[user].crosses[turn].1 = crossed.users.len();
                crossed.users.push(user);
            } else {
                crossed.demand -= ceiling;
                crossed.users.swap_remove(place);
                if let Some(&moved) = crossed.users.get(place) {
                    let entry = self.users[moved]
                        .crosses
                        .iter_mut()
                        .find(|(other, _)| *other == resource);
                    if let Some(entry) = entry {
                        entry.1 = place;
                    }
                }
            }
        }
        // An active user leads to everything that binds after the change.
        self.note(user);
    }

    /// Recomputes the shares that changes since the last call can affect, and appends each user
    /// whose share changed, with its share.
    pub(crate) fn settle(&mut self, changed: &mut Vec<(UserId, u64)>) {
        if self.noted_users.is_empty() && self.noted_resources.is_empty() {
            return;
        }
        let (mut users, resources) = self.find_touched();
        if resources.is_empty() {
            // Nothing is scarce among them.
            for user in users {
                self.deal(user, self.users[user].ceiling, changed);
            }
            return;
        }
        users.sort_unstable_by_key(|&user| (self.users[user].ceiling, user));
        self.fill(&users, &resources, changed);
    }

    /// Returns the active users a change can affect, and the binding resources they cross.
    fn find_touched(&mut self) -> (Vec<UserId>, Vec<ResourceId>) {
        self.settling += 1;
        let mut users = Vec::new();
        let mut resources = Vec::new();
        for user in std::mem::take(&mut self.noted_users) {
            self.users[user].is_noted = false;
            self.reach(user, &mut users);
        }
        for resource in std::mem::take(&mut self.noted_resources) {
            self.resources[resource.0].is_noted = false;
            for place in 0..self.resources[resource.0].users.len() {
                self.reach(self.resources[resource.0].users[place], &mut users);
            }
        }
        let mut next = 0;
        while let Some(&user) = users.get(next) {
            next += 1;
            for turn in 0..self.users[user].crosses.len() {
                let (resource, _) = self.users[user].crosses[turn];
                let crossed = &mut self.resources[resource.0];
                if crossed.seen == self.settling || !crossed.binds() {
                    continue;
                }
                crossed.seen = self.settling;
                crossed.left = crossed.capacity;
                crossed.sharers = crossed.users.len() as u64;
                resources.push(resource);
                for place in 0..self.resources[resource.0].users.len() {
                    self.reach(self.resources[resource.0].users[place], &mut users);
                }
            }
        }
        (users, resources)
    }

    fn reach(&mut self, user: UserId, users: &mut Vec<UserId>) {
        let reached = &mut self.users[user];
        if reached.is_active && reached.seen != self.settling {
            reached.seen = self.settling;
            users.push(user);
        }
    }

    /// Distributes the capacities. `users` come by rising ceiling. Costs O((u + r) log r) for u
    /// users that cross a bounded number of the r resources.
    fn fill(
        &mut self,
        users: &[UserId],
        resources: &[ResourceId],
        changed: &mut Vec<(UserId, u64)>,
    ) {
        let fair = |resource: &ResourceId| {
            let share = self.resources[resource.0].fair()?;
            Some(Reverse((share, *resource)))
        };
        let mut scarce: BinaryHeap<Reverse<(u64, ResourceId)>> =
            resources.iter().filter_map(fair).collect();
        let mut waiting = users.iter().copied().peekable();
        while let Some(&user) = waiting.peek() {
            if self.users[user].dealt == self.settling {
                waiting.next();
                continue;
            }
            // Remaining shares only grow while others are served, so an old entry is at most too
            // small.
            let Some(&Reverse((share, resource))) = scarce.peek() else {
                self.deal(user, self.users[user].ceiling, changed);
                continue;
            };
            let now = self.resources[resource.0].fair();
            if now != Some(share) {
                scarce.pop();
                scarce.extend(now.map(|now| Reverse((now, resource))));
            } else if self.users[user].ceiling <= share {
                self.deal(user, self.users[user].ceiling, changed);
            } else {
                scarce.pop();
                for place in 0..self.resources[resource.0].users.len() {
                    let sharer = self.resources[resource.0].users[place];
                    if self.users[sharer].dealt != self.settling {
                        self.deal(sharer, share, changed);
                    }
                }
            }
        }
    }

    /// Gives the user its share of everything it crosses.
    fn deal(&mut self, user: UserId, share: u64, changed: &mut Vec<(UserId, u64)>) {
        let settling = self.settling;
        let dealt = &mut self.users[user];
        dealt.dealt = settling;
        if dealt.share != share {
            dealt.share = share;
            changed.push((user, share));
        }
        for (resource, _) in &dealt.crosses {
            let crossed = &mut self.resources[resource.0];
            if crossed.seen == settling {
                crossed.left -= share;
                crossed.sharers -= 1;
            }
        }
    }

    fn ceiling(&self, user: UserId) -> u64 {
        let user = &self.users[user];
        let crossed = user.crosses.iter();
        let least = crossed.map(|(resource, _)| self.resources[resource.0].capacity);
        least.fold(user.limit, u64::min)
    }

    /// Updates the ceiling of an active user.
    fn refit(&mut self, user: UserId) {
        let (old, new) = (self.users[user].ceiling, self.ceiling(user));
        if old == new {
            return;
        }
        self.users[user].ceiling = new;
        for turn in 0..self.users[user].crosses.len() {
            let (resource, _) = self.users[user].crosses[turn];
            self.note_if_binding(resource);
            let crossed = &mut self.resources[resource.0];
            crossed.demand = crossed.demand - u128::from(old) + u128::from(new);
        }
        self.note(user);
    }

    fn note(&mut self, user: UserId) {
        if !self.users[user].is_noted {
            self.users[user].is_noted = true;
            self.noted_users.push(user);
        }
    }

    /// Notes a binding resource, whose users a change may affect.
    fn note_if_binding(&mut self, resource: ResourceId) {
        let noted = &mut self.resources[resource.0];
        if noted.binds() && !noted.is_noted {
            noted.is_noted = true;
            self.noted_resources.push(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// Returns all shares as fractions, by rounds over all users. In each round the slowest
    /// resource, or the user with the least demand, stops first.
    fn naive(capacities: &[u64], users: &[(u64, Vec<usize>, bool)]) -> Vec<f64> {
        let mut left: Vec<f64> = capacities.iter().map(|capacity| *capacity as f64).collect();
        let mut shares: Vec<Option<f64>> =
            users.iter().map(|user| (!user.2).then_some(0.0)).collect();
        loop {
            let waits = |shares: &[Option<f64>], user: usize, place: usize| {
                shares[user].is_none() && users[user].1.contains(&place)
            };
            let fair = |place: usize| {
                let sharers = (0..users.len()).filter(|&user| waits(&shares, user, place));
                left[place].max(0.0) / sharers.count() as f64
            };
            let could = |user: usize| {
                let crossed = users[user].1.iter().map(|&place| fair(place));
                crossed.fold(users[user].0 as f64, f64::min)
            };
            let next = (0..users.len())
                .filter(|&user| shares[user].is_none())
                .min_by(|&one, &other| could(one).total_cmp(&could(other)));
            let Some(user) = next else { break };
            let share = could(user);
            for &place in &users[user].1 {
                left[place] -= share;
            }
            shares[user] = Some(share);
        }
        shares.into_iter().flatten().collect()
    }

    /// Change by a test: a capacity, a limit, or a user's activity.
    #[derive(Debug, Clone)]
    enum Change {
        Capacity(usize, u64),
        Limit(usize, u64),
        Active(usize, bool),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..5usize, 0..60_000u64).prop_map(|(place, to)| Change::Capacity(place, to)),
            (0..8usize, 0..60_000u64).prop_map(|(user, to)| Change::Limit(user, to)),
            (0..8usize, any::<bool>()).prop_map(|(user, to)| Change::Active(user, to)),
        ]
    }

    proptest! {
        #[test]
        fn shares_after_any_changes_are_those_of_naive_filling_and_fit(
            first in vec(0..60_000u64, 5),
            crossed in vec(proptest::collection::btree_set(0..5usize, 0..4), 8),
            changes in vec(change(), 1..40),
        ) {
            let mut capacities = first;
            let mut shares = Shares::default();
            let ids: Vec<ResourceId> =
                capacities.iter().map(|capacity| shares.add_resource(*capacity)).collect();
            let mut users: Vec<(u64, Vec<usize>, bool)> = Vec::new();
            for crosses in crossed {
                shares.add_user(40_000, crosses.iter().map(|&place| ids[place]));
                users.push((40_000, crosses.into_iter().collect(), false));
            }
            let mut now = vec![0u64; users.len()];
            for change in changes {
                match change {
                    Change::Capacity(place, to) => {
                        capacities[place] = to;
                        shares.set_capacity(ids[place], to);
                    }
                    Change::Limit(user, to) => {
                        users[user].0 = to;
                        shares.set_limit(user, to);
                    }
                    Change::Active(user, to) => {
                        users[user].2 = to;
                        shares.set_active(user, to);
                        if !to {
                            now[user] = 0;
                        }
                    }
                }
                let mut changed = Vec::new();
                shares.settle(&mut changed);
                for (user, share) in changed {
                    now[user] = share;
                }
                check(&capacities, &users, &now)?;
            }
        }
    }

    /// Checks three rules. No capacity is exceeded. A user below its demand crosses a full resource
    /// on which no user has more. Shares equal those of naive filling, except for remainders.
    fn check(
        capacities: &[u64],
        users: &[(u64, Vec<usize>, bool)],
        now: &[u64],
    ) -> Result<(), TestCaseError> {
        let on = |place: usize| {
            (0..users.len()).filter(move |&user| users[user].2 && users[user].1.contains(&place))
        };
        for (place, capacity) in capacities.iter().enumerate() {
            prop_assert!(on(place).map(|user| now[user]).sum::<u64>() <= *capacity);
        }
        for (user, (limit, crosses, is_active)) in users.iter().enumerate() {
            if !is_active {
                continue;
            }
            let is_bottleneck = |place: &usize| {
                let used: u64 = on(*place).map(|user| now[user]).sum();
                let left = capacities[*place] - used;
                left < on(*place).count() as u64
                    && on(*place).all(|other| now[other] <= now[user] + left)
            };
            prop_assert!(
                now[user] == *limit || crosses.iter().any(is_bottleneck),
                "{user} of {users:?} over {capacities:?}: {now:?}"
            );
        }
        // Remainders, less than a byte a second for each of eight users, add up over five
        // resources.
        for (ours, theirs) in now.iter().zip(naive(capacities, users)) {
            prop_assert!((*ours as f64 - theirs).abs() <= 40.0, "{now:?}");
        }
        Ok(())
    }
}
