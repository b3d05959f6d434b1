//! Spontaneous changes of the world: rates, traffic of others, depots that fail or leave.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use posthaste_types::Timestamp;

use super::{course::CourseId, shares::UserId};
use crate::{
    random::Dice,
    scenario::{FaultKind, Trace},
};

/// Period at which the hour of the day is updated. A sixth of an hour changes a rate little.
const DAY_STEP: Duration = Duration::from_secs(600);

/// Largest deviation of a rate, in thousandths. A rate never drops to zero.
const JITTER_PERMILLE_MAX: u64 = 990;

/// Recurring change.
#[derive(Debug)]
pub(crate) enum Process {
    /// Deviation of a rate around its value.
    Jitter {
        course: CourseId,
        spread_permille: u64,
        every: Duration,
        dice: Dice,
    },
    /// Rate from a measured trace, repeated from the start at its end.
    Trace {
        course: CourseId,
        trace: Arc<Trace>,
        /// Factor of the measured rate, in thousandths.
        scale_permille: u64,
        /// Index of the next point.
        next: usize,
    },
    /// High or low rate, each for exponential times (a Markov chain of two states).
    TwoState {
        course: CourseId,
        low_permille: u64,
        alternation: Alternation,
    },
    /// Rate by the hour of the day, in UTC.
    Daily {
        course: CourseId,
        hours_permille: [u64; 24],
    },
    /// Traffic of others, on and off, with a rate drawn each time.
    Background {
        traffic: UserId,
        /// Least and most bytes a second.
        rate: (u64, u64),
        alternation: Alternation,
    },
    /// Outage of sites that fail together and are repaired, or of a user's site that comes and
    /// goes.
    Outage {
        places: Vec<usize>,
        kind: FaultKind,
        /// Permille of failures that also lose the data.
        wiped_permille: u64,
        alternation: Alternation,
    },
    /// Absence of a site at known times, each with its length.
    Windows {
        place: usize,
        windows: VecDeque<(Timestamp, Duration)>,
    },
}

/// Alternation of two states with exponential durations. They are memoryless, so nothing predicts a
/// change.
#[derive(Debug)]
pub(crate) struct Alternation {
    /// Mean durations of the first and the second state, in microseconds.
    pub(crate) means: (u64, u64),
    pub(crate) is_second: bool,
    pub(crate) dice: Dice,
}

impl Alternation {
    pub(crate) fn new(means: (u64, u64), dice: Dice) -> Self {
        Self {
            means,
            is_second: false,
            dice,
        }
    }

    /// Draws the duration of the first state.
    pub(crate) fn first(&mut self) -> Duration {
        Duration::from_micros(self.dice.exponential(self.means.0))
    }

    fn second(&mut self) -> Duration {
        Duration::from_micros(self.dice.exponential(self.means.1))
    }

    /// Switches to the other state and draws its duration.
    fn turn(&mut self) -> Duration {
        self.is_second = !self.is_second;
        if self.is_second {
            self.second()
        } else {
            self.first()
        }
    }
}

/// Effect of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Factor of a rate, in thousandths.
    Jitter(CourseId, u64),
    State(CourseId, u64),
    Day(CourseId, u64),
    /// Rate in bytes a second.
    Traced(CourseId, u64),
    Background(UserId, u64),
    Strike(Strike),
}

/// Fault of several sites together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strike {
    pub(crate) kind: FaultKind,
    pub(crate) places: Vec<usize>,
    pub(crate) lasts: Duration,
}

impl Process {
    /// Returns the change at `now`, and the time until the next one.
    fn turn(&mut self, now: Timestamp) -> (Change, Option<Duration>) {
        match self {
            Self::Jitter {
                course,
                spread_permille,
                every,
                dice,
            } => {
                let spread = (*spread_permille).min(JITTER_PERMILLE_MAX);
                let factor = dice.between(1000 - spread, 1000 + spread);
                (Change::Jitter(*course, factor), Some(*every))
            }
            Self::Trace {
                course,
                trace,
                scale_permille,
                next,
            } => {
                let (rate, lasts) = trace.point(*next);
                *next = (*next + 1) % trace.len();
                let rate = rate.saturating_mul(*scale_permille) / 1000;
                (Change::Traced(*course, rate), Some(lasts))
            }
            Self::TwoState {
                course,
                low_permille,
                alternation,
            } => {
                let lasts = alternation.turn();
                let is_low = alternation.is_second;
                let factor = if is_low { *low_permille } else { 1000 };
                (Change::State(*course, factor), Some(lasts))
            }
            Self::Daily {
                course,
                hours_permille,
            } => {
                let factor = at_hour(hours_permille, now);
                (Change::Day(*course, factor), Some(DAY_STEP))
            }
            Self::Background {
                traffic,
                rate,
                alternation,
            } => {
                let lasts = alternation.turn();
                let drawn = alternation.dice.between(rate.0, rate.1);
                let wants = if alternation.is_second { drawn } else { 0 };
                (Change::Background(*traffic, wants), Some(lasts))
            }
            Self::Outage {
                places,
                kind,
                wiped_permille,
                alternation,
            } => {
                let is_wiped = alternation.dice.chance(*wiped_permille);
                let kind = if is_wiped { FaultKind::Wiped } else { *kind };
                let lasts = alternation.second();
                let again = lasts + alternation.first();
                (strike(kind, places, lasts), Some(again))
            }
            Self::Windows { place, windows } => {
                let lasts = windows
                    .pop_front()
                    .map_or(Duration::ZERO, |window| window.1);
                let again = windows.front().map(|window| window.0.since(now));
                (strike(FaultKind::Offline, &[*place], lasts), again)
            }
        }
    }
}

fn strike(kind: FaultKind, places: &[usize], lasts: Duration) -> Change {
    Change::Strike(Strike {
        kind,
        places: places.to_vec(),
        lasts,
    })
}

/// Returns the factor at a time of day, interpolated between the hours before and after.
fn at_hour(hours_permille: &[u64; 24], now: Timestamp) -> u64 {
    let second = now.as_micros() / 1_000_000 % 86_400;
    let hour = usize::try_from(second / 3600).unwrap_or(0);
    let (before, after) = (hours_permille[hour], hours_permille[(hour + 1) % 24]);
    let into = second % 3600;
    (before * (3600 - into) + after * into) / 3600
}

/// All processes, with the next time of each.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: Vec<Process>,
    due: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl Processes {
    /// Adds a process whose first change is at `at`.
    pub(crate) fn add(&mut self, at: Timestamp, process: Process) {
        self.due.push(Reverse((at, self.all.len())));
        self.all.push(process);
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns the next change due by `now`, if any.
    pub(crate) fn turn(&mut self, now: Timestamp) -> Option<Change> {
        let Reverse((at, place)) = self.due.peek().copied().filter(|due| due.0.0 <= now)?;
        self.due.pop();
        let (change, again) = self.all[place].turn(at);
        if let Some(again) = again {
            // Each process advances by at least a microsecond, or time would stand still.
            let again = at + again.max(Duration::from_micros(1));
            self.due.push(Reverse((again, place)));
        }
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2027-01-15 00:00:00 UTC.
    const MIDNIGHT: Timestamp = Timestamp::from_secs(1_799_971_200);
    const COURSE: CourseId = CourseId(0);

    fn turns(process: Process, until: Duration) -> Vec<(u64, Change)> {
        let mut processes = Processes::default();
        processes.add(MIDNIGHT, process);
        let mut all = Vec::new();
        while let Some(at) = processes.next().filter(|at| at.since(MIDNIGHT) <= until) {
            while let Some(change) = processes.turn(at) {
                all.push((at.since(MIDNIGHT).as_secs(), change));
            }
        }
        all
    }

    #[test]
    fn a_trace_is_followed_and_begins_again() {
        let trace = Trace::new(&[(2.0, 8.0), (3.0, 16.0), (7.0, 0.0)]).unwrap();
        let process = Process::Trace {
            course: COURSE,
            trace: Arc::new(trace),
            scale_permille: 500,
            next: 0,
        };
        let rates: Vec<(u64, u64)> = turns(process, Duration::from_secs(6))
            .into_iter()
            .filter_map(|(at, change)| {
                let Change::Traced(_, rate) = change else {
                    return None;
                };
                Some((at, rate))
            })
            .collect();
        assert_eq!(
            rates,
            [(0, 500_000), (1, 1_000_000), (5, 500_000), (6, 1_000_000)]
        );
    }

    #[test]
    fn a_day_bends_the_rate_from_hour_to_hour() {
        let mut hours_permille = [1000; 24];
        hours_permille[1] = 400;
        let process = Process::Daily {
            course: COURSE,
            hours_permille,
        };
        let factors: Vec<Change> = turns(process, Duration::from_secs(7200))
            .into_iter()
            .map(|(_, change)| change)
            .collect();
        assert_eq!(factors[3], Change::Day(COURSE, 700));
        assert_eq!(factors[6], Change::Day(COURSE, 400));
        assert_eq!(factors[12], Change::Day(COURSE, 1000));
    }

    #[test]
    fn two_states_take_turns_with_their_mean_times() {
        let process = Process::TwoState {
            course: COURSE,
            low_permille: 200,
            alternation: Alternation::new((30_000_000, 10_000_000), Dice::new(1, "two")),
        };
        let all = turns(process, Duration::from_secs(400_000));
        assert_eq!(all[0].1, Change::State(COURSE, 200));
        assert_eq!(all[1].1, Change::State(COURSE, 1000));
        let count = all.len();
        assert!(
            (18_500..21_500).contains(&count),
            "{count} turns of about 20 000"
        );
    }

    #[test]
    fn failures_come_after_repairs_and_some_lose_data() {
        let process = Process::Outage {
            places: vec![3, 4],
            kind: FaultKind::Dies,
            wiped_permille: 250,
            alternation: Alternation::new((90_000_000, 10_000_000), Dice::new(1, "fails")),
        };
        let all = turns(process, Duration::from_secs(100_000));
        let mut free = 0;
        let mut wiped = 0;
        for (at, change) in &all {
            let Change::Strike(strike) = change else {
                panic!("{change:?}");
            };
            assert!(*at >= free, "struck again while it was down");
            free = at + strike.lasts.as_secs();
            assert_eq!(strike.places, [3, 4]);
            wiped += usize::from(strike.kind == FaultKind::Wiped);
        }
        assert!((900..1100).contains(&all.len()), "{} failures", all.len());
        assert!((200..300).contains(&wiped), "{wiped} wiped");
    }

    #[test]
    fn windows_open_one_after_the_other_and_end() {
        let window = |at, lasts| {
            (
                MIDNIGHT + Duration::from_secs(at),
                Duration::from_secs(lasts),
            )
        };
        let process = Process::Windows {
            place: 2,
            windows: [window(0, 5), window(10, 3)].into(),
        };
        let all = turns(process, Duration::from_secs(1000));
        let spans: Vec<(u64, u64)> = all
            .iter()
            .filter_map(|(at, change)| {
                let Change::Strike(strike) = change else {
                    return None;
                };
                Some((*at, strike.lasts.as_secs()))
            })
            .collect();
        assert_eq!(spans, [(0, 5), (10, 3)]);
    }
}
