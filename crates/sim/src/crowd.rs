//! Workload: requests and their times, drawn from the seed.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::contract::{ReleasePolicy, RequestSpec};
use posthaste_types::{Bytes, Code, DepotId, RequestId, Timestamp, encrypted_sizes};

use crate::{
    Scenario,
    random::Dice,
    scenario::{Amount, RequestPlan, mebi},
    world::Site,
};

/// Earliest time of a submission, after the depots first answered.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// Request or stage-in a user wants, with times since the start.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) request: RequestId,
    pub(crate) plan: &'a RequestPlan,
    pub(crate) at: Duration,
    pub(crate) spec: RequestSpec,
    pub(crate) without: Vec<DepotId>,
    pub(crate) pinned: Vec<DepotId>,
    pub(crate) cancelled_at: Option<Duration>,
    pub(crate) delivered_at: Option<Duration>,
    /// Time at which another party removes its source.
    pub(crate) purged_at: Option<Duration>,
    pub(crate) deliver_by: Option<Duration>,
    /// Times at which its user pauses and resumes it.
    pub(crate) paused_at: Option<Duration>,
    pub(crate) resumed_at: Option<Duration>,
}

/// All users.
#[derive(Debug)]
pub(crate) struct Crowd<'a> {
    seed: u64,
    tables: Vec<(&'a RequestPlan, Named)>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(scenario: &'a Scenario, sites: &[Site], seed: u64) -> Self {
        let places = scenario.places();
        let of = |name: &String| {
            let found = places.get(name.as_str()).into_iter().flatten();
            found.map(|place| sites[*place].id)
        };
        let named = |plan: &'a RequestPlan| {
            let ends = plan.destination.iter().chain(&plan.destinations);
            let destinations: Vec<Vec<DepotId>> = ends.map(|name| of(name).collect()).collect();
            let via = if plan.via.is_empty() {
                // A depot at which users want their data is no depot for others.
                let all = sites.iter().map(|site| site.id);
                all.filter(|id| !destinations.iter().flatten().any(|end| end == id))
                    .collect()
            } else {
                plan.via.iter().flat_map(of).collect()
            };
            let without = plan.without.iter().flat_map(of).collect();
            let pinned = plan.pin.iter().flat_map(of).collect();
            let named = Named {
                via,
                destinations,
                without,
                pinned,
            };
            (plan, named)
        };
        Self {
            seed,
            tables: scenario.requests.iter().map(named).collect(),
        }
    }

    /// Returns all requests, table by table. Deadlines count from `start`.
    pub(crate) fn wishes(&self, start: Timestamp) -> impl Iterator<Item = Wish<'a>> {
        let tables = self.tables.iter();
        let each = tables.flat_map(|(plan, named)| (0..plan.count).map(move |_| (*plan, named)));
        let numbered = (1u64..).zip(each);
        numbered.map(move |(number, (plan, named))| {
            let mut dice = Dice::new(self.seed, &format!("request {number}"));
            let at = Duration::from_millis(plan.at_s.draw_milli(&mut dice)) + FIRST_AFTER;
            let mut spec = spec(plan, start + at, named, &mut dice);
            // The mind would use them anyway, but the world looks only at named depots.
            for pinned in &named.pinned {
                if !spec.via.contains(pinned) && !spec.destinations.contains(pinned) {
                    spec.via.push(*pinned);
                }
            }
            let mut later = |after: Option<Amount>| {
                after.map(|after| at + Duration::from_millis(after.draw_milli(&mut dice)))
            };
            let mut wish = Wish {
                request: RequestId::new(number),
                plan,
                at,
                spec,
                without: named.without.clone(),
                pinned: named.pinned.clone(),
                cancelled_at: later(plan.cancel_after_s),
                delivered_at: later(plan.delivered_after_s),
                purged_at: later(plan.purge_s),
                deliver_by: later(plan.deliver_by_s),
                paused_at: later(plan.pause_after_s),
                resumed_at: later(plan.pause_for_s),
            };
            // The resume time was drawn from the submission on.
            let lasts = wish.resumed_at.map(|until| until.saturating_sub(at));
            wish.resumed_at = wish
                .paused_at
                .zip(lasts)
                .map(|(paused, lasts)| paused + lasts);
            wish
        })
    }
}

/// Depots that a request's table names.
#[derive(Debug)]
struct Named {
    via: Vec<DepotId>,
    /// Candidate depots for each destination.
    destinations: Vec<Vec<DepotId>>,
    /// Depots the request may not use.
    without: Vec<DepotId>,
    /// Depots that must hold their share of the request.
    pinned: Vec<DepotId>,
}

/// Returns some of the depots in the order they are drawn: the beginning of a Fisher–Yates shuffle.
/// Only moved places are stored, so a small draw from very many depots is cheap.
fn draw(depots: &[DepotId], count: usize, dice: &mut Dice) -> Vec<DepotId> {
    let mut moved: BTreeMap<usize, usize> = BTreeMap::new();
    let at = |moved: &BTreeMap<usize, usize>, place: usize| *moved.get(&place).unwrap_or(&place);
    (0..count.min(depots.len()))
        .map(|turn| {
            let other = turn + dice.place(depots.len() - turn);
            let drawn = at(&moved, other);
            moved.insert(other, at(&moved, turn));
            depots[drawn]
        })
        .collect()
}

fn spec(plan: &RequestPlan, at: Timestamp, named: &Named, dice: &mut Dice) -> RequestSpec {
    let deadline = Duration::from_millis(plan.deadline_s.draw_milli(dice));
    let bytes = Bytes::new(plan.size_mib.draw_bytes(dice));
    let chunk_size = Bytes::new(mebi(plan.chunk_mib));
    // The mind sees only the sizes of encrypted data.
    let (bytes, chunk_size) = if plan.encrypted {
        encrypted_sizes(bytes, chunk_size)
    } else {
        (bytes, chunk_size)
    };
    let mut destinations = Vec::new();
    for one_of in &named.destinations {
        match one_of.as_slice() {
            [] => {}
            [only] => destinations.push(*only),
            several => destinations.push(several[dice.place(several.len())]),
        }
    }
    let via = match plan.via_count {
        None => named.via.clone(),
        Some(count) => draw(&named.via, count, dice),
    };
    RequestSpec {
        bytes,
        files: plan.files,
        chunk_size,
        deadline: at + deadline,
        code: plan.code.parse().unwrap_or(Code::NONE),
        via,
        destinations,
        release: if plan.release {
            ReleasePolicy::WhenSafe
        } else {
            ReleasePolicy::Never
        },
        best_effort: plan.best_effort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_takes_each_once_and_anyone_can_come_first() {
        let depots: Vec<DepotId> = (1..=5).map(DepotId::new).collect();
        let mut firsts = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut drawn = draw(&depots, 5, &mut Dice::new(seed, "draw"));
            firsts.insert(drawn[0]);
            drawn.sort_unstable();
            assert_eq!(drawn, depots);
        }
        assert_eq!(firsts.len(), 5);
        let few = draw(&depots, 2, &mut Dice::new(1, "draw"));
        assert_eq!(few, draw(&depots, 5, &mut Dice::new(1, "draw"))[..2]);
    }

    #[test]
    fn each_request_has_a_destination_and_depots_of_its_own() {
        let scenario = Scenario::parse(
            r#"
            name = "users"
            summary = "Users and depots."
            horizon_s = 100
            [[depot]]
            name = "edge"
            count = 9
            rate_mib_per_s = 1
            capacity_mib = 100
            [[depot]]
            name = "user"
            count = 3
            rate_mib_per_s = 1
            capacity_mib = 100
            [[request]]
            count = 50
            size_mib = 10
            deadline_s = 60
            code = "2+1"
            destination = "user"
            via_count = 4
            "#,
        )
        .unwrap();
        let start = Timestamp::from_secs(1);
        let world = crate::world::build(&scenario, 1, start);
        let mut destinations = std::collections::BTreeSet::new();
        for wish in Crowd::new(&scenario, &world.sites, 1).wishes(start) {
            destinations.insert(wish.spec.destinations[0].get());
            let via = wish.spec.via.iter().map(|depot| depot.get());
            let via: std::collections::BTreeSet<u32> = via.collect();
            assert_eq!(via.len(), 4, "one twice");
            assert!(via.iter().all(|depot| (1..=9).contains(depot)), "{via:?}");
        }
        assert_eq!(destinations.into_iter().collect::<Vec<_>>(), [10, 11, 12]);
    }
}
