//! Availability of a dataset after random failures of nodes: Monte Carlo over placements and
//! failures.

/// Number of nodes.
pub const NODES: usize = 20;
/// Most failed nodes.
pub const FAILURES_MAX: usize = 10;

/// A way to keep the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// Fragments of a stripe that hold the data itself, and all of them.
    pub data: usize,
    pub total: usize,
    /// Copies of each fragment.
    pub copies: usize,
    /// True if no two fragments of a stripe share a node; else only the copies of a fragment do
    /// not.
    pub is_distinct: bool,
}

/// Expected availability after 0 to [`FAILURES_MAX`] failures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Availability {
    /// Share of chunks: those that still lie somewhere count though their stripe is broken.
    pub chunk: [f64; FAILURES_MAX + 1],
    /// Share of stripes that are whole or can be rebuilt.
    pub stripe: [f64; FAILURES_MAX + 1],
}

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Draws a number below this one, fairly but for the `bound`th part of 2^-64.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = self.next() % (bound as u64).max(1);
        usize::try_from(drawn).unwrap_or(0)
    }

    /// Draws an order of the nodes, fairly down to a 2^-58th.
    pub fn shuffled(&mut self) -> [usize; NODES] {
        let mut nodes = std::array::from_fn(|place| place);
        for last in (1..NODES).rev() {
            nodes.swap(last, self.below(last + 1));
        }
        nodes
    }
}

/// Place of each fragment of a stripe: a mask of nodes for each.
pub type Placement = Vec<u32>;

impl Scheme {
    /// Places a stripe at random within the scheme's rule.
    fn place(self, dice: &mut Dice) -> Placement {
        let mut masks = vec![0; self.total];
        if self.is_distinct {
            let nodes = dice.shuffled();
            for (place, node) in nodes.iter().take(self.total * self.copies).enumerate() {
                masks[place % self.total] |= 1 << node;
            }
        } else {
            for mask in &mut masks {
                let nodes = dice.shuffled();
                *mask = nodes
                    .iter()
                    .take(self.copies)
                    .fold(0, |mask, node| mask | 1 << node);
            }
        }
        masks
    }

    /// Returns the expected availability over so many placements, each with its own failures.
    pub fn play(self, draws: u32, seed: u64) -> Availability {
        let mut dice = Dice::new(seed);
        let mut sum = Sum::default();
        for _ in 0..draws {
            let stripe = self.place(&mut dice);
            sum.add(&stripe, self.data, &dice.shuffled());
        }
        sum.mean(f64::from(draws))
    }
}

/// Returns the expected availability of given stripes, over so many orders of failure.
pub fn of_placements(stripes: &[Placement], data: usize, draws: u32, seed: u64) -> Availability {
    let mut dice = Dice::new(seed);
    let mut sum = Sum::default();
    for _ in 0..draws {
        let order = dice.shuffled();
        stripes
            .iter()
            .for_each(|stripe| sum.add(stripe, data, &order));
    }
    sum.mean(f64::from(draws) * float(stripes.len()))
}

#[derive(Default)]
struct Sum {
    chunk: [f64; FAILURES_MAX + 1],
    stripe: [f64; FAILURES_MAX + 1],
}

impl Sum {
    /// Adds the remains of a stripe as the nodes fail in this order.
    fn add(&mut self, stripe: &Placement, data: usize, order: &[usize; NODES]) {
        let mut dead = 0u32;
        for (failures, next) in order.iter().enumerate().take(FAILURES_MAX + 1) {
            let alive = |mask: &&u32| **mask & !dead != 0;
            let is_whole = stripe.iter().filter(alive).count() >= data;
            let chunks = if is_whole {
                data
            } else {
                stripe[..data].iter().filter(alive).count()
            };
            self.chunk[failures] += float(chunks) / float(data);
            self.stripe[failures] += f64::from(u8::from(is_whole));
            dead |= 1 << next;
        }
    }

    fn mean(self, count: f64) -> Availability {
        Availability {
            chunk: self.chunk.map(|sum| sum / count),
            stripe: self.stripe.map(|sum| sum / count),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn float(count: usize) -> f64 {
    count as f64
}
