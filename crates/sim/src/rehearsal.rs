//! Plays the world alone, to measure its speed without decisions.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use posthaste_core::contract::RequestSpec;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use crate::{
    Scenario,
    crowd::Crowd,
    world::{self, Arrival, Condition, Node, Sending, Strike, World},
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Time the model driver takes to notice that a send failed.
const FAILURE_SEEN: Duration = Duration::from_secs(1);

/// Result of playing a world alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rehearsal {
    /// Arrivals, changes of rates, faults, and reports to a driver.
    pub events: u64,
    /// Fragments stored.
    pub fragments: u64,
    /// Bytes of the stored fragments.
    pub stored: Bytes,
    /// Sends that failed and were restarted elsewhere.
    pub failed: u64,
    /// Duration of the run, in virtual time.
    pub span: Duration,
}

/// Event caused by an earlier one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Report about a fragment to the driver: its place, and whether it is stored.
    Told {
        request: RequestId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        place: usize,
        is_stored: bool,
    },
    /// End of the last fault of a site.
    Heal { place: usize, ordeal: u32 },
}

struct Stage {
    world: World,
    due: BinaryHeap<Reverse<(Timestamp, u64, Due)>>,
    sequence: u64,
    told: u64,
    /// Fragments requested without a report yet.
    waited_for: u64,
    fragments: u64,
    stored: Bytes,
    failed: u64,
}

/// Plays the scenario's world with `seed` and a driver that sends everything at once. Each fragment
/// of a request goes to the next of its depots, and to the one after that if it fails. No mind
/// decides, nothing is checked and single faults are left out, so the result shows the cost of the
/// world itself. Ends when everything is stored, at the horizon, or after `events_max` events.
#[must_use]
pub fn rehearse(scenario: &Scenario, seed: u64, events_max: u64) -> Rehearsal {
    let mut stage = Stage {
        world: world::build(scenario, seed, START),
        due: BinaryHeap::new(),
        sequence: 0,
        told: 0,
        waited_for: 0,
        fragments: 0,
        stored: Bytes::ZERO,
        failed: 0,
    };
    let crowd = Crowd::new(scenario, &stage.world.sites, seed);
    let wishes = crowd.wishes(START);
    let mut wishes: Vec<(Timestamp, RequestId, RequestSpec)> = wishes
        .map(|wish| (START + wish.at, wish.request, wish.spec))
        .collect();
    wishes.sort_by_key(|(at, request, _)| Reverse((*at, *request)));
    let end = START + Duration::from_secs(scenario.horizon_s);
    let mut now = START;
    while stage.events() < events_max {
        let asked = wishes.last().map(|(at, ..)| *at);
        let due = stage.due.peek().map(|Reverse((at, ..))| *at);
        if asked.is_none() && stage.waited_for == 0 {
            break;
        }
        let next = [asked, due, stage.world.next()].into_iter().flatten().min();
        let Some(next) = next.filter(|next| *next <= end) else {
            break;
        };
        now = next;
        stage.play(now);
        while let Some((_, request, spec)) = wishes.pop_if(|wish| wish.0 <= now) {
            stage.ask(request, spec);
        }
    }
    Rehearsal {
        events: stage.events(),
        fragments: stage.fragments,
        stored: stage.stored,
        failed: stage.failed,
        span: now.since(START),
    }
}

impl Stage {
    fn events(&self) -> u64 {
        self.world.events() + self.told
    }

    /// Plays all events up to `now`.
    fn play(&mut self, now: Timestamp) {
        for arrival in self.world.advance(now) {
            self.arrive(now, arrival);
        }
        for strike in self.world.turn() {
            self.strike(now, &strike);
        }
        while self.due.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, _, due))) = self.due.pop() {
                self.happen(due);
            }
        }
    }

    fn push(&mut self, at: Timestamp, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    /// Sends every fragment of a request at once.
    fn ask(&mut self, request: RequestId, spec: RequestSpec) {
        let total = spec.code.total();
        self.waited_for += u64::from(spec.chunks()) * u64::from(total);
        let (chunks, via) = (spec.chunks(), spec.via.clone());
        self.world.specs.insert(request, spec);
        for chunk in 0..chunks {
            for fragment in 0..total {
                let turn = chunk as usize * usize::from(total) + usize::from(fragment);
                let to = via.get(turn % via.len().max(1)).copied();
                let place = to.and_then(|depot: DepotId| self.world.place(depot));
                let which = (ChunkIndex::new(chunk), FragmentIndex::new(fragment));
                self.send(request, which, place.unwrap_or(0));
            }
        }
    }

    fn send(&mut self, request: RequestId, which: (ChunkIndex, FragmentIndex), place: usize) {
        let Some(spec) = self.world.specs.get(&request) else {
            return;
        };
        let (chunk, fragment) = which;
        let size = spec.chunk_bytes(chunk.get());
        let sending = Sending {
            request,
            chunk,
            fragment,
            bytes: spec.code.fragment_size(size),
        };
        self.world.send(Node::CENTRE, Node::site(place), sending);
    }

    fn arrive(&mut self, now: Timestamp, Arrival { to, sending, .. }: Arrival) {
        let Some(place) = to.place() else { return };
        let spec = self.world.specs.get(&sending.request);
        let chunks = spec.map_or(0, RequestSpec::chunks);
        let site = &mut self.world.sites[place];
        let is_stored = site.store(&sending, chunks);
        let at = now + Duration::from_micros(site.latency_micros);
        if is_stored {
            self.stored += sending.bytes;
        }
        self.push(at, told(place, &sending, is_stored));
    }

    fn strike(&mut self, now: Timestamp, strike: &Strike) {
        for &place in &strike.places {
            self.world.set_condition(place, Condition::Dead);
            let site = &mut self.world.sites[place];
            site.ordeal += 1;
            let ordeal = site.ordeal;
            self.push(now + strike.lasts, Due::Heal { place, ordeal });
            for dropped in self.world.drop_all(place) {
                self.push(now + FAILURE_SEEN, told(place, &dropped.sending, false));
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Heal { place, ordeal } => {
                if self.world.sites[place].ordeal == ordeal {
                    self.world.set_condition(place, Condition::Well);
                }
            }
            Due::Told {
                request,
                chunk,
                fragment,
                place,
                is_stored,
            } => {
                self.told += 1;
                if is_stored {
                    self.fragments += 1;
                    self.waited_for -= 1;
                } else {
                    self.failed += 1;
                    let next = self.next_of(request, place);
                    self.send(request, (chunk, fragment), next);
                }
            }
        }
    }

    /// Returns the depot after this one in the request's own order.
    fn next_of(&self, request: RequestId, place: usize) -> usize {
        let via = self
            .world
            .specs
            .get(&request)
            .map(|spec| spec.via.as_slice());
        let via = via.unwrap_or_default();
        let here = via
            .iter()
            .position(|depot| self.world.place(*depot) == Some(place));
        let next = here.and_then(|here| via.get((here + 1) % via.len()));
        next.and_then(|depot| self.world.place(*depot))
            .unwrap_or(place)
    }
}

fn told(place: usize, sending: &Sending, is_stored: bool) -> Due {
    Due::Told {
        request: sending.request,
        chunk: sending.chunk,
        fragment: sending.fragment,
        place,
        is_stored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        name = "small"
        summary = "Depots that fail."
        horizon_s = 10000
        egress_mib_per_s = 20
        [[depot]]
        name = "edge"
        count = 5
        rate_mib_per_s = [5, 10]
        capacity_mib = 1000
        mtbf_s = 30
        mttr_s = 5
        jitter_permille = 100
        [[request]]
        count = 20
        size_mib = 10
        deadline_s = 600
        code = "2+1"
    "#;

    #[test]
    fn a_world_alone_stores_everything_and_counts_what_it_played() {
        let scenario = Scenario::parse(SMALL).unwrap();
        let played = rehearse(&scenario, 1, u64::MAX);
        assert_eq!(played, rehearse(&scenario, 1, u64::MAX));
        // Three chunks of three fragments each: 1.5 times the requested bytes.
        assert_eq!((played.fragments, played.stored), (180, Bytes::mebi(300)));
        assert!(played.failed > 0, "no depot failed");
        assert!(played.events > 2 * 180 + played.failed);
        assert_eq!(rehearse(&scenario, 1, 100).events / 10, 10);
        // 300 MiB at 20 MiB/s.
        assert!(played.span >= Duration::from_secs(15));
    }
}
