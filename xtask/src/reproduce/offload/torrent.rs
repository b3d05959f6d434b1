//! A model of plain BitTorrent, to stand beside the mind: peers know no bandwidths but those of
//! received bytes.

use super::availability::Dice;

/// Peers that a peer sends to at a time, and seconds between two choices of them (the protocol's
/// defaults).
pub const SLOTS: usize = 4;
pub const ROUND_S: u32 = 10;
/// Rounds for which a drawn peer stays, so that others are found.
const DRAWN_ROUNDS: u32 = 3;
/// Megabits of a piece: 256 KiB, as in the paper's runs.
const PIECE_MBIT: f64 = 256.0 * 1024.0 * 8.0 / 1e6;
/// Longest run: one that lasts longer never ends.
const LONGEST_S: u32 = 100_000;

/// Peers with their pieces, and the flows between them.
pub struct Swarm {
    peers: Vec<Peer>,
    /// Rates in megabits a second from one to another; none where there is no link.
    rates: Vec<Vec<Option<f64>>>,
    dice: Dice,
    pieces: usize,
}

struct Peer {
    has: Vec<bool>,
    count: usize,
    /// Place in its turn around the others: for a peer with everything, as nobody gives it
    /// anything.
    turn: usize,
    drawn: usize,
    /// Megabits received from each of the others since the last choice.
    came: Vec<f64>,
    /// Megabits of an incomplete piece, on the link to each of the others.
    under_way: Vec<f64>,
    chosen: Vec<usize>,
}

impl Swarm {
    /// Returns a swarm of so many megabits: the peers at these places have all and the others
    /// nothing.
    pub fn new(rates: Vec<Vec<Option<f64>>>, mbit: f64, seeds: &[usize]) -> Self {
        let pieces = whole((mbit / PIECE_MBIT).ceil());
        let many = rates.len();
        let peer = |place| {
            let is_seed = seeds.contains(&place);
            Peer {
                has: vec![is_seed; pieces],
                count: if is_seed { pieces } else { 0 },
                turn: 0,
                drawn: place,
                came: vec![0.0; many],
                under_way: vec![0.0; many],
                chosen: Vec::new(),
            }
        };
        Self {
            peers: (0..many).map(peer).collect(),
            rates,
            dice: Dice::new(1),
            pieces,
        }
    }

    /// Returns whether this peer has everything.
    pub fn has_all(&self, place: usize) -> bool {
        self.peers[place].count == self.pieces
    }

    /// Returns whether each piece lies with one of these.
    pub fn is_among(&self, places: &[usize]) -> bool {
        (0..self.pieces).all(|piece| places.iter().any(|place| self.peers[*place].has[piece]))
    }

    /// Runs until each of these goals was true once, and returns the seconds of each.
    pub fn run<const N: usize>(&mut self, goals: [&dyn Fn(&Self) -> bool; N]) -> [Option<u32>; N] {
        let mut reached = [None; N];
        let mut orders = Vec::new();
        for second in 0..LONGEST_S {
            for (goal, reached) in goals.iter().zip(&mut reached) {
                if reached.is_none() && goal(self) {
                    *reached = Some(second);
                }
            }
            if reached.iter().all(Option::is_some) {
                break;
            }
            if second % ROUND_S == 0 {
                self.choose(second / ROUND_S);
                orders = (0..self.peers.len()).map(|_| self.rarest_first()).collect();
            }
            self.flow(&orders);
        }
        reached
    }

    /// Makes each peer choose its receivers: those that sent most, and a drawn one; a peer with
    /// everything goes round.
    fn choose(&mut self, round: u32) {
        for place in 0..self.peers.len() {
            let wants = |other: &usize| {
                let is_linked = self.rates[place][*other].is_some();
                is_linked && !self.has_all(*other) && self.lacks(*other, place)
            };
            let mut others: Vec<usize> = (0..self.peers.len()).filter(wants).collect();
            let is_seed = self.has_all(place);
            let peer = &mut self.peers[place];
            peer.chosen.clear();
            if others.is_empty() {
                continue;
            }
            if is_seed {
                let slots = SLOTS.min(others.len());
                let turns = peer.turn..peer.turn + slots;
                peer.chosen = turns.map(|turn| others[turn % others.len()]).collect();
                peer.turn += slots;
            } else {
                if round.is_multiple_of(DRAWN_ROUNDS) || !others.contains(&peer.drawn) {
                    peer.drawn = others[self.dice.below(others.len())];
                }
                others.retain(|other| *other != peer.drawn);
                others.sort_by(|one, other| peer.came[*other].total_cmp(&peer.came[*one]));
                others.truncate(SLOTS - 1);
                others.push(peer.drawn);
                peer.chosen = others;
            }
            peer.came.fill(0.0);
        }
    }

    /// Returns whether one lacks something that the other has.
    fn lacks(&self, one: usize, other: usize) -> bool {
        let pieces = self.peers[one].has.iter().zip(&self.peers[other].has);
        pieces.into_iter().any(|(mine, theirs)| !mine && *theirs)
    }

    /// Returns the pieces, rarest first, equally rare ones in random order.
    fn rarest_first(&mut self) -> Vec<usize> {
        let holders = |piece: usize| self.peers.iter().filter(|peer| peer.has[piece]).count();
        let dice = &mut self.dice;
        let mut order: Vec<(usize, usize, usize)> = (0..self.pieces)
            .map(|piece| (holders(piece), dice.below(1 << 30), piece))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, piece)| piece).collect()
    }

    /// Advances by a second; each peer asks in an order of its own.
    fn flow(&mut self, orders: &[Vec<usize>]) {
        for from in 0..self.peers.len() {
            for to in self.peers[from].chosen.clone() {
                let Some(rate) = self.rates[from][to] else {
                    continue;
                };
                self.peers[from].under_way[to] += rate;
                self.peers[to].came[from] += rate;
                let due = whole((self.peers[from].under_way[to] / PIECE_MBIT).floor());
                let lacking =
                    |piece: &&usize| self.peers[from].has[**piece] && !self.peers[to].has[**piece];
                let sent: Vec<usize> = orders[to]
                    .iter()
                    .filter(lacking)
                    .take(due)
                    .copied()
                    .collect();
                for piece in sent {
                    self.peers[to].has[piece] = true;
                    self.peers[to].count += 1;
                    self.peers[from].under_way[to] -= PIECE_MBIT;
                }
                // An idle link saves nothing up.
                let rest = &mut self.peers[from].under_way[to];
                *rest = rest.min(PIECE_MBIT);
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small, whole and not negative"
)]
const fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns links of so many megabits a second from each to each.
    fn even(peers: usize, mbps: f64) -> Vec<Vec<Option<f64>>> {
        let link = |from: usize, to: usize| (from != to).then_some(mbps);
        (0..peers)
            .map(|from| (0..peers).map(|to| link(from, to)).collect())
            .collect()
    }

    #[test]
    fn one_link_carries_its_rate() {
        let mut swarm = Swarm::new(even(2, 8.0), 800.0, &[0]);
        let [all] = swarm.run([&|swarm| swarm.has_all(1)]);
        assert!(
            all.is_some_and(|seconds| (100..=102).contains(&seconds)),
            "{all:?}"
        );
    }

    #[test]
    fn peers_help_each_other_and_slots_bound_the_seed() {
        let nodes: Vec<usize> = (1..9).collect();
        let mut swarm = Swarm::new(even(9, 8.0), 1600.0, &[0]);
        let [left, all] = swarm.run([&|swarm| swarm.is_among(&nodes), &|swarm| {
            nodes.iter().all(|node| swarm.has_all(*node))
        }]);
        let (left, all) = (left.unwrap(), all.unwrap());
        // Four slots of 8 Mbit/s: 50 s at the best, and all eight in twice that with the seed alone would be 400 s.
        assert!((50..100).contains(&left), "{left} s");
        assert!(left <= all && all < 200, "{all} s");
    }

    #[test]
    fn who_is_linked_to_nobody_gets_nothing() {
        let mut rates = even(3, 8.0);
        rates[0][2] = None;
        rates[1][2] = None;
        let mut swarm = Swarm::new(rates, 8.0, &[0]);
        assert_eq!(swarm.run([&|swarm| swarm.has_all(2)]), [None]);
    }
}
