//! Paths made up by a formula, so that everybody can replay something.
//!
//! A channel of `p` streams moves a file of size `s` in `s / r + 2 RTT / q`. There `q` is the
//! number of files asked for at once (streams are kept from file to file, so that slow start does
//! not count) and `r` the channel's rate. That rate is the least of a file's share of the disks and
//! `p` times the rate of a stream, itself the least of buffer / RTT and 1.22 MSS / (RTT sqrt(loss))
//! (Mathis et al., CCR 27(3) 1997). `n` channels carry `n` times as much, until the path is full or
//! the disks are: the two ends meet as `x / (1 + x^4)^(1/4)`, and each stream in all costs 1/2000
//! of the capacity. A measurement is off by a tenth at most.

use std::time::Duration;

use posthaste_plan::tuner::{Bounds, PathFacts, Setting};
use posthaste_types::{ByteRate, Bytes};

use super::{Course, Road};

/// Number of made-up paths. Seeds are 1 to this.
const COURSES: u64 = 120;
/// Values of each knob in the grid whose best counts.
const GRID: [u16; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes a segment carries.
const SEGMENT: f64 = 1460.0;

/// A made-up path.
struct Formula {
    rtt_s: f64,
    /// Bytes a second.
    capacity: f64,
    /// Bytes a stream can have in flight.
    buffer: f64,
    loss: f64,
    file: f64,
    /// Bytes a second that one file is read or written with.
    disk_a_file: f64,
    /// Bytes a second of all disks.
    disk: f64,
    seed: u64,
}

/// Returns all of them, the same each time.
pub fn courses() -> Vec<Course> {
    (1..=COURSES).map(course).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rates and sizes are far below 2^53"
)]
fn course(seed: u64) -> Course {
    let mut lots = Lots(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (near, origin) = [(false, "far"), (true, "near")][usize::from(lots.below(4) == 0)];
    let rtt_s = if near {
        lots.between(0.0002, 0.01)
    } else {
        lots.between(0.01, 0.2)
    };
    let capacity = [1e9, 1e10, 1e10, 4e10][lots.below(4)] / 8.0;
    let loss = [0.0, 0.0, 0.0, 1e-6, 1e-5][lots.below(5)];
    let count = [20, 100, 1000, 10_000][lots.below(4)];
    let formula = Formula {
        rtt_s,
        capacity,
        buffer: lots.between(262_144.0, 67_108_864.0),
        loss,
        file: lots.between(65_536.0, 4_294_967_296.0),
        disk_a_file: lots.between(5e7, 1e9),
        disk: lots.between(2e8, 5e9),
        seed,
    };
    let (buffer, file) = (formula.buffer as u64, formula.file as u64);
    let every = |value: &u16| GRID.map(|other| (*value, other));
    let pairs = GRID.iter().flat_map(every);
    let grid = pairs.flat_map(|(one, two)| GRID.map(|three| Setting::new(one, two, three)));
    let at_once = GRID[GRID.len() - 1].min(count);
    let allowed = grid.filter(|setting| setting.concurrency <= at_once);
    let best = allowed
        .map(|setting| formula.mean(setting))
        .fold(0.0, f64::max);
    Course {
        origin: origin.to_owned(),
        facts: PathFacts {
            rtt: Duration::from_secs_f64(rtt_s),
            bandwidth: Some(ByteRate::new(capacity as u64)),
            buffer: Bytes::new(buffer),
            cores: 8,
            piece: Bytes::ZERO,
        },
        bounds: Bounds {
            concurrency_min: 1,
            concurrency_max: at_once,
            parallelism_max: GRID[GRID.len() - 1],
            pipelining_max: GRID[GRID.len() - 1],
        },
        files: (count.into(), Bytes::new(file)),
        best,
        road: Box::new(formula),
    }
}

impl Road for Formula {
    fn measure(&self, setting: Setting, turn: usize) -> f64 {
        let mixed = self.seed ^ (u64::from(setting.streams()) << 32) ^ ((turn as u64) << 8);
        let mut lots = Lots(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Two draws make a triangle: small errors are common, large ones rare.
        let error = (lots.unit() + lots.unit() - 1.0) * 0.1;
        self.mean(setting) * (1.0 + error)
    }

    fn mean(&self, setting: Setting) -> f64 {
        let channels = f64::from(setting.concurrency);
        let streams = f64::from(setting.parallelism);
        let by_loss = 1.22 * SEGMENT / (self.rtt_s * self.loss.sqrt());
        let stream = (self.buffer / self.rtt_s).min(by_loss);
        let rate = (stream * streams).min(self.disk_a_file).min(self.capacity);
        let waiting_s = 2.0 * self.rtt_s / f64::from(setting.pipelining);
        let channel = self.file / (self.file / rate + waiting_s);
        let crowd = f64::from(setting.streams()) / 2000.0;
        let most = self.capacity.min(self.disk) / (1.0 + crowd);
        let filled = channels * channel / most;
        most * filled / (1.0 + filled.powi(4)).powf(0.25)
    }
}

/// Seeded lots: xorshift64.
struct Lots(u64);

impl Lots {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> usize {
        usize::try_from((self.next() >> 16) % limit).unwrap_or(0)
    }

    /// Draws from 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws between the two, each factor as likely as any other.
    fn between(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_does_what_paths_do() {
        let path = Formula {
            rtt_s: 0.06,
            capacity: 1.25e9,
            buffer: 4e6,
            loss: 0.0,
            file: 1e8,
            disk_a_file: 1e9,
            disk: 2e9,
            seed: 1,
        };
        let at = |concurrency, parallelism, pipelining| {
            path.mean(Setting::new(concurrency, parallelism, pipelining))
        };
        assert!(
            at(2, 1, 1) > 1.9 * at(1, 1, 1),
            "two files carry twice as much"
        );
        assert!(
            at(1, 4, 1) > 2.0 * at(1, 1, 1),
            "windows are small: streams help"
        );
        assert!(at(32, 32, 1) < at(32, 4, 1), "a crowd hinders itself");
        let small = Formula { file: 1e5, ..path };
        let waiting = small.mean(Setting::new(1, 1, 1));
        assert!(
            small.mean(Setting::new(1, 1, 16)) > 1.2 * waiting,
            "asking ahead saves waiting"
        );
    }

    #[test]
    fn the_same_paths_come_each_time_and_differ() {
        let bests = || {
            courses()
                .iter()
                .map(|course| course.best)
                .collect::<Vec<f64>>()
        };
        assert_eq!(bests(), bests());
        let mut sorted = bests();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        assert_eq!(sorted.len() as u64, COURSES);
    }
}
