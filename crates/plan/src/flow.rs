//! Data as a fluid: who is done when, if every depot carries what is forecast.

use alloc::{vec, vec::Vec};
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes};

/// What one depot offers to everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supply {
    /// What it takes a second.
    pub rate: ByteRate,
    /// What it has space for.
    pub space: Bytes,
}

/// One depot as one load may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Place of the depot among the supplies.
    pub supply: usize,
    /// Most this load may put there. With one fragment of a chunk a depot, this is one fragment for
    /// each chunk that still lacks one and has none there: the cap of the water-filling.
    pub room: Bytes,
}

/// What one request still has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Coded bytes.
    pub bytes: Bytes,
    /// Where they may go.
    pub lanes: Vec<Lane>,
}

/// How one load fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// When all of it has arrived; none when it never does.
    pub finish: Option<Duration>,
    /// What each of its lanes carried, in their order: its share.
    pub placed: Vec<Bytes>,
}

/// A load that would take longer than this never finishes.
const HORIZON: Duration = Duration::from_secs(100 * 365 * 86400);

struct State {
    space: Vec<u64>,
    left: Vec<u64>,
    room: Vec<Vec<u64>>,
    given: Vec<Vec<u64>>,
}

/// Lets `loads`, the most urgent first, flow over `supplies` until each is done or stuck. `egress`
/// bounds all of it together where the centre's way out is narrower than its depots.
///
/// Ends after at most one segment for each load, lane and supply; a segment costs one visit of
/// each lane.
///
/// # Panics
/// When a lane names no supply.
#[must_use]
pub fn flow(supplies: &[Supply], loads: &[Load], egress: Option<ByteRate>) -> Vec<Outcome> {
    let mut state = State {
        space: supplies.iter().map(|supply| supply.space.get()).collect(),
        left: loads.iter().map(|load| load.bytes.get()).collect(),
        room: loads.iter().map(rooms).collect(),
        given: loads.iter().map(|load| vec![0; load.lanes.len()]).collect(),
    };
    let mut finish: Vec<Option<u64>> = state.left.iter().map(|&left| done_at(left, 0)).collect();
    let segments_max = 1 + loads.iter().map(|load| 1 + load.lanes.len()).sum::<usize>();
    let mut now_micros = 0u64;
    for _ in 0..segments_max + supplies.len() {
        give(supplies, loads, egress, &mut state);
        let Some(span_micros) = next_change(loads, &state) else {
            break;
        };
        if u128::from(now_micros) + u128::from(span_micros) > HORIZON.as_micros() {
            break;
        }
        now_micros += span_micros;
        advance(loads, &mut state, span_micros);
        for (finish, &left) in finish.iter_mut().zip(&state.left) {
            *finish = finish.or(done_at(left, now_micros));
        }
    }
    loads
        .iter()
        .zip(&state.room)
        .zip(finish)
        .map(|((load, room), finish)| Outcome {
            finish: finish.map(Duration::from_micros),
            placed: rooms(load)
                .iter()
                .zip(room)
                .map(|(all, left)| Bytes::new(all - left))
                .collect(),
        })
        .collect()
}

fn rooms(load: &Load) -> Vec<u64> {
    load.lanes.iter().map(|lane| lane.room.get()).collect()
}

fn done_at(left: u64, now_micros: u64) -> Option<u64> {
    (left == 0).then_some(now_micros)
}

/// Gives each unfinished load, in order, what its depots still carry a second.
fn give(supplies: &[Supply], loads: &[Load], egress: Option<ByteRate>, state: &mut State) {
    let mut rates: Vec<u64> = supplies.iter().map(|supply| supply.rate.get()).collect();
    let mut way_out = egress.map_or(u64::MAX, ByteRate::get);
    for (place, load) in loads.iter().enumerate() {
        for (lane_place, lane) in load.lanes.iter().enumerate() {
            let open = state.left[place] > 0
                && state.room[place][lane_place] > 0
                && state.space[lane.supply] > 0;
            let given = if open {
                rates[lane.supply].min(way_out)
            } else {
                0
            };
            rates[lane.supply] -= given;
            way_out -= given;
            state.given[place][lane_place] = given;
        }
    }
}

/// Microseconds until a load is done, a lane is full or a depot is; none when nothing moves.
fn next_change(loads: &[Load], state: &State) -> Option<u64> {
    let mut soonest: Option<u64> = None;
    let mut consider = |amount: u64, rate: u64| {
        if rate > 0 {
            let micros = (u128::from(amount) * 1_000_000).div_ceil(u128::from(rate));
            let micros = u64::try_from(micros).unwrap_or(u64::MAX).max(1);
            soonest = Some(soonest.map_or(micros, |before| before.min(micros)));
        }
    };
    let mut into = vec![0u64; state.space.len()];
    for (place, load) in loads.iter().enumerate() {
        consider(state.left[place], state.given[place].iter().sum());
        for (lane_place, lane) in load.lanes.iter().enumerate() {
            let rate = state.given[place][lane_place];
            consider(state.room[place][lane_place], rate);
            into[lane.supply] += rate;
        }
    }
    for (&space, rate) in state.space.iter().zip(into) {
        consider(space, rate);
    }
    soonest
}

fn advance(loads: &[Load], state: &mut State, span_micros: u64) {
    for (place, load) in loads.iter().enumerate() {
        for (lane_place, lane) in load.lanes.iter().enumerate() {
            let rate = u128::from(state.given[place][lane_place]);
            let moved = (rate * u128::from(span_micros)).div_ceil(1_000_000);
            let moved = u64::try_from(moved)
                .unwrap_or(u64::MAX)
                .min(state.left[place])
                .min(state.room[place][lane_place])
                .min(state.space[lane.supply]);
            state.left[place] -= moved;
            state.room[place][lane_place] -= moved;
            state.space[lane.supply] -= moved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLENTY: Bytes = Bytes::new(u64::MAX >> 8);

    fn supply(rate: u64) -> Supply {
        Supply {
            rate: ByteRate::new(rate),
            space: PLENTY,
        }
    }

    fn load(bytes: u64, lanes: &[(usize, u64)]) -> Load {
        let lane = |&(supply, room)| Lane {
            supply,
            room: Bytes::new(room),
        };
        Load {
            bytes: Bytes::new(bytes),
            lanes: lanes.iter().map(lane).collect(),
        }
    }

    fn finish_s(outcome: &Outcome) -> f64 {
        outcome.finish.unwrap().as_secs_f64()
    }

    #[test]
    fn a_stripe_is_as_slow_as_its_slowest_depot_when_all_are_needed() {
        let supplies = [supply(100), supply(200), supply(10)];
        let outcome = flow(
            &supplies,
            &[load(3000, &[(0, 1000), (1, 1000), (2, 1000)])],
            None,
        );
        assert!((finish_s(&outcome[0]) - 100.0).abs() < 0.01);
    }

    #[test]
    fn a_spare_depot_carries_only_what_the_others_leave() {
        // 2 fragments a chunk on 3 depots: 100 + 100 + 50 carry 2000 in 8 s.
        let supplies = [supply(100), supply(100), supply(50)];
        let outcome = flow(
            &supplies,
            &[load(2000, &[(0, 1000), (1, 1000), (2, 1000)])],
            None,
        );
        assert!((finish_s(&outcome[0]) - 8.0).abs() < 0.01);
        assert_eq!(outcome[0].placed[2], Bytes::new(400));
    }

    #[test]
    fn the_urgent_load_goes_first_and_the_other_after_it() {
        let outcome = flow(
            &[supply(100)],
            &[load(500, &[(0, 500)]), load(500, &[(0, 500)])],
            None,
        );
        assert!((finish_s(&outcome[0]) - 5.0).abs() < 0.01);
        assert!((finish_s(&outcome[1]) - 10.0).abs() < 0.01);
    }

    #[test]
    fn the_centres_way_out_bounds_the_sum() {
        let supplies = [supply(100), supply(100)];
        let loads = [load(1000, &[(0, 500), (1, 500)])];
        let outcome = flow(&supplies, &loads, Some(ByteRate::new(50)));
        assert!((finish_s(&outcome[0]) - 20.0).abs() < 0.01);
    }

    #[test]
    fn what_has_no_space_or_no_path_never_finishes() {
        let full = Supply {
            rate: ByteRate::new(10),
            space: Bytes::new(5),
        };
        assert_eq!(flow(&[full], &[load(6, &[(0, 6)])], None)[0].finish, None);
        assert_eq!(
            flow(&[supply(0)], &[load(6, &[(0, 6)])], None)[0].finish,
            None
        );
        assert_eq!(flow(&[], &[load(6, &[])], None)[0].finish, None);
        assert_eq!(
            flow(&[], &[load(0, &[])], None)[0].finish,
            Some(Duration::ZERO)
        );
    }

    /// The oracle: by bisection, the first moment by which the lanes can have carried everything.
    fn finish_by_bisection(supplies: &[Supply], load: &Load) -> Option<u64> {
        let carried = |micros: u64| -> u128 {
            let lane = |lane: &Lane| {
                let supply = supplies[lane.supply];
                (u128::from(supply.rate.get()) * u128::from(micros) / 1_000_000)
                    .min(u128::from(lane.room.get()))
                    .min(u128::from(supply.space.get()))
            };
            load.lanes.iter().map(lane).sum()
        };
        let (mut low, mut high) = (0u64, 1_000_000_000_000);
        if carried(high) < u128::from(load.bytes.get()) {
            return None;
        }
        while low < high {
            let middle = u64::midpoint(low, high);
            if carried(middle) >= u128::from(load.bytes.get()) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        Some(low)
    }

    proptest! {
        #[test]
        fn one_load_finishes_when_bisection_says(
            depots in proptest::collection::vec((1u64..10_000, 0u64..100_000, 0u64..100_000), 1..6),
            bytes in 0u64..200_000,
        ) {
            let supplies: Vec<Supply> = depots.iter()
                .map(|&(rate, space, _)| Supply { rate: ByteRate::new(rate), space: Bytes::new(space) })
                .collect();
            let lanes: Vec<(usize, u64)> =
                depots.iter().enumerate().map(|(place, &(_, _, room))| (place, room)).collect();
            let load = load(bytes, &lanes);
            let outcome = flow(&supplies, core::slice::from_ref(&load), None);
            let oracle = finish_by_bisection(&supplies, &load);
            match (outcome[0].finish, oracle) {
                (None, None) => {}
                (Some(ours), Some(theirs)) => {
                    // Integer rounding costs at most a microsecond and a byte a segment and lane.
                    let ours = u64::try_from(ours.as_micros()).unwrap();
                    let slowest = depots.iter().map(|depot| depot.0).min().unwrap();
                    let tolerance = 20 + 20 * 1_000_000 / slowest;
                    prop_assert!(ours.abs_diff(theirs) <= tolerance, "{ours} and {theirs}");
                }
                differ => prop_assert!(false, "{differ:?}"),
            }
        }

        #[test]
        fn shares_never_exceed_room_space_or_what_is_wanted(
            depots in proptest::collection::vec((0u64..10_000, 0u64..50_000), 1..6),
            wants in proptest::collection::vec((0u64..100_000, 0u64..50_000), 1..5),
            egress in proptest::option::of(1u64..20_000),
        ) {
            let supplies: Vec<Supply> = depots.iter()
                .map(|&(rate, space)| Supply { rate: ByteRate::new(rate), space: Bytes::new(space) })
                .collect();
            let loads: Vec<Load> = wants.iter().map(|&(bytes, room)| {
                let lanes: Vec<(usize, u64)> = (0..depots.len()).map(|place| (place, room)).collect();
                load(bytes, &lanes)
            }).collect();
            let outcomes = flow(&supplies, &loads, egress.map(ByteRate::new));
            for (place, supply) in supplies.iter().enumerate() {
                let into: Bytes = outcomes.iter().map(|outcome| outcome.placed[place]).sum();
                prop_assert!(into <= supply.space);
            }
            for (load, outcome) in loads.iter().zip(&outcomes) {
                let placed: Bytes = outcome.placed.iter().copied().sum();
                prop_assert!(placed <= load.bytes);
                prop_assert_eq!(outcome.finish.is_some(), placed == load.bytes);
                for (lane, placed) in load.lanes.iter().zip(&outcome.placed) {
                    prop_assert!(*placed <= lane.room);
                }
            }
        }
    }
}
