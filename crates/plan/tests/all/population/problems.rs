//! Small problems made from a seed for the planners' tests.

use posthaste_plan::horizon::{Demand, Grid, Link, Money, Node, Price, Problem};
use posthaste_types::{ByteRate, Bytes, Code};
use std::time::Duration;

/// Length of a slot.
const SLOT_S: u64 = 10;
/// Bytes of a unit of capacity: large enough that a byte lost to rounding decides nothing.
const UNIT: u64 = 100_000;
const CENTRE: usize = 0;
const USER: usize = 1;

/// Numbers from a seed (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % end
    }

    /// Draws a place below `end`.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    pub fn chance(&mut self, of_ten: u64) -> bool {
        self.below(10) < of_ten
    }
}

fn secs(slots: u64) -> Duration {
    Duration::from_secs(slots * SLOT_S)
}

/// Makes up to six demands, four depots and eight slots.
pub fn problem(seed: u64) -> Problem {
    let mut dice = Dice::new(seed);
    let slots = 4 + dice.index(5);
    let depots = 2 + dice.index(3);
    let nodes = (0..depots + 2)
        .map(|place| node(&mut dice, place, slots))
        .collect();
    let mut links = vec![
        link(&mut dice, CENTRE, USER, slots),
        link(&mut dice, USER, CENTRE, slots),
    ];
    for depot in 2..depots + 2 {
        for (from, to) in [
            (CENTRE, depot),
            (depot, USER),
            (USER, depot),
            (depot, CENTRE),
        ] {
            links.push(link(&mut dice, from, to, slots));
        }
    }
    let demands = (0..1 + dice.below(6))
        .map(|_| demand(&mut dice, depots, slots))
        .collect();
    Problem {
        grid: Grid::even(secs(1), slots),
        nodes,
        links,
        demands,
        ..Problem::default()
    }
}

fn node(dice: &mut Dice, place: usize, slots: usize) -> Node {
    let is_depot = place > USER;
    let space = if is_depot && dice.chance(3) {
        40 + dice.below(200)
    } else {
        1 << 30
    };
    let way_out = (place == CENTRE && dice.chance(4))
        .then(|| vec![Bytes::new((30 + dice.below(150)) * UNIT); slots]);
    Node {
        space: Bytes::new(space * UNIT),
        domains: vec![u32::try_from(place).unwrap_or(0) * u32::from(dice.chance(8))],
        is_landmark: is_depot && dice.chance(1),
        way_out,
        ..Node::default()
    }
}

fn link(dice: &mut Dice, from: usize, to: usize, slots: usize) -> Link {
    let most = 1 + dice.below(if from + to == 1 { 40 } else { 100 });
    let is_flaky = dice.chance(3);
    let capacity = (0..slots)
        .map(|_| match is_flaky && dice.chance(4) {
            true => Bytes::ZERO,
            false => Bytes::new((most / 2 + dice.below(most / 2 + 1)) * UNIT),
        })
        .collect();
    Link {
        from,
        to,
        capacity,
        price: Price::new(Money::from_micro_usd(dice.below(4) * 10), Bytes::new(UNIT)),
    }
}

fn demand(dice: &mut Dice, depots: usize, slots: usize) -> Demand {
    let slots = slots as u64;
    let codes = [(1, 0), (1, 1), (2, 1), (1, 0)];
    let (data, parity) = codes[dice.index(4)];
    let bytes = Bytes::new((5 + dice.below(120)) * UNIT);
    let first = dice.below(slots / 2);
    let deadline = first + 2 + dice.below(slots - first - 1);
    let (late, kind) = (secs(deadline.min(slots)), dice.below(4));
    let is_stage_in = kind == 3;
    let has_offload = kind < 2;
    Demand {
        source: if is_stage_in { USER } else { CENTRE },
        sink: match kind {
            0 => None,
            3 => Some(CENTRE),
            _ => Some(USER),
        },
        bytes,
        code: Code::new(data, parity).unwrap_or(Code::NONE),
        held: Vec::new(),
        release: secs(first),
        offload_by: has_offload.then(|| {
            if kind == 0 {
                late
            } else {
                secs(first + (deadline - first).div_ceil(2))
            }
        }),
        deliver_by: (kind > 0).then_some(late),
        not_before: is_stage_in.then(|| secs(first + dice.below(2))),
        via: (2..depots + 2).collect(),
        weight: 1 + u32::from(codes[dice.index(4)].0) + u32::from(dice.chance(3)),
        budget: dice
            .chance(1)
            .then(|| Money::from_micro_usd(20 * bytes.get() / UNIT)),
        rate_max: dice.chance(1).then(|| ByteRate::new(30 * UNIT / SLOT_S)),
        lent: Vec::new(),
        pinned: Vec::new(),
    }
}
