//! The default optimizer: a good start, a short search, then a steady state that detects changes.

mod opening;
mod search;
mod steady;

use posthaste_types::record;
use search::{Search, Step};
use steady::{Steady, Turn};

use super::{
    Bounds, Choice, Knob, Optimizer, Outcome, PathFacts, Probe, Reason, Setting, Stocks, Urgency,
    utility::Cost,
};

/// Number of periods: a rest that takes no longer is not worth a search.
const PERIODS_LEFT_MIN: u32 = 4;
/// Share of a known bandwidth, in percent, that counts as all of it: headers take the rest.
const FULL_PERCENT: u64 = 95;

record! {
    /// Phase of the optimizer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Phase {
        /// Tries settings.
        0 = Searching {
            /// Settings tried, and their results.
            search: Search,
        },
        /// Keeps one setting.
        1 = Steady {
            /// Rates carried.
            steady: Steady,
        },
    }
}

record! {
    /// The default optimizer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Auto {
        facts: PathFacts,
        bounds: Bounds,
        history: Option<Setting>,
        urgency: Urgency,
        /// Best setting so far, after the first measurement.
        best: Option<Setting>,
        /// Setting in force.
        setting: Setting,
        phase: Phase,
    }
}

impl Auto {
    /// Returns an optimizer that starts at `history`, or at the setting of the opening rule.
    pub(super) fn new(
        facts: PathFacts,
        bounds: Bounds,
        history: Option<Setting>,
        urgency: Urgency,
    ) -> Self {
        Self {
            facts,
            bounds,
            history,
            urgency,
            best: None,
            setting: Setting::ONE,
            phase: Phase::Searching {
                search: Search::new(Setting::ONE),
            },
        }
    }

    /// Returns the bounds, with no more files at once than there are.
    fn bounds_for(&self, stocks: &Stocks) -> Bounds {
        let files = u16::try_from(stocks.total().files.max(1)).unwrap_or(u16::MAX);
        Bounds {
            concurrency_max: self.bounds.concurrency_max.min(files),
            ..self.bounds
        }
    }

    /// Applies a setting. If fewer files are left than it has at once, the remaining files get the
    /// streams of the others.
    fn go(&mut self, setting: Setting, stocks: &Stocks, reason: Reason) -> Choice {
        let bounds = self.bounds_for(stocks);
        self.setting = if setting.concurrency > bounds.concurrency_max {
            opening::lay_out(
                setting.streams().into(),
                setting.pipelining,
                &self.facts,
                &bounds,
                stocks,
            )
        } else {
            bounds.clamp(setting)
        };
        Choice::of_all(self.setting, &self.facts, reason)
    }

    /// Returns the reason to end the search early, if any.
    fn rest(&self, probe: &Probe, stocks: &Stocks) -> Option<Reason> {
        let rate = probe.rate();
        let enough =
            |bandwidth: posthaste_types::ByteRate| rate >= bandwidth.scaled(FULL_PERCENT, 100);
        if self.facts.bandwidth.is_some_and(enough) {
            return Some(Reason::Full { rate });
        }
        let left = rate.time_for(stocks.total().bytes);
        let period = Choice::period(&self.facts);
        (left <= period * PERIODS_LEFT_MIN).then_some(Reason::NearlyDone { left })
    }

    fn on_search(
        &mut self,
        mut search: Search,
        last: Option<Outcome>,
        probe: &Probe,
        stocks: &Stocks,
    ) -> Choice {
        let bounds = self.bounds_for(stocks);
        let base = search.base();
        self.best = Some(base);
        if let Some(reason) = self.rest(probe, stocks) {
            // The search waits: it continues if more files turn up.
            self.phase = Phase::Searching { search };
            return self.go(base, stocks, reason);
        }
        match search.next(&bounds) {
            Step::Try { setting, knob } => {
                let to = knob.of(setting);
                self.phase = Phase::Searching { search };
                self.go(setting, stocks, Reason::Trying { last, knob, to })
            }
            Step::Done => {
                self.phase = Phase::Steady {
                    steady: Steady::new(base.concurrency, search.rate()),
                };
                let settled = Reason::Settled {
                    last,
                    setting: base,
                };
                self.go(base, stocks, settled)
            }
        }
    }

    fn on_steady(&mut self, mut steady: Steady, probe: &Probe, stocks: &Stocks) -> Choice {
        let bounds = self.bounds_for(stocks);
        let worth = self.worth(probe);
        let rate = probe.rate();
        let crowd = search::STREAMS_MAX / u32::from(self.setting.parallelism);
        let most = u32::from(bounds.concurrency_max).min(crowd);
        match steady.on_probe(probe, worth, u16::try_from(most).unwrap_or(u16::MAX)) {
            Turn::Moved { from } => {
                // Another transfer may have opened with more: begin on equal terms.
                let (opening, _) = opening::open(&self.facts, &bounds, stocks);
                let start = core::cmp::max_by_key(self.setting, opening, |side| side.streams());
                let choice = self.go(start, stocks, Reason::Moved { from, to: rate });
                let search = Search::new(self.setting);
                self.phase = Phase::Searching { search };
                choice
            }
            turn @ (Turn::Hold | Turn::Step { .. }) => {
                self.best = Some(Knob::Concurrency.with(self.setting, steady.post()));
                self.phase = Phase::Steady { steady };
                let Turn::Step { to, last } = turn else {
                    return self.go(self.setting, stocks, Reason::Holding { rate });
                };
                let setting = Knob::Concurrency.with(self.setting, to);
                self.go(setting, stocks, Reason::Stepping { last, to })
            }
        }
    }

    fn worth(&self, probe: &Probe) -> u64 {
        Cost::of_stream(self.urgency).worth(probe, probe.setting.streams())
    }
}

impl Optimizer for Auto {
    fn first(&mut self, stocks: &Stocks) -> Choice {
        let bounds = self.bounds_for(stocks);
        let (setting, reason) = match self.history {
            Some(history) => {
                let setting = opening::resume(history, &self.facts, &bounds, stocks);
                (setting, Reason::History { setting })
            }
            None => opening::open(&self.facts, &bounds, stocks),
        };
        let choice = self.go(setting, stocks, reason);
        self.phase = Phase::Searching {
            search: Search::new(self.setting),
        };
        choice
    }

    fn on_probe(&mut self, probe: &Probe, stocks: &Stocks) -> Choice {
        if probe.is_too_short() {
            return self.go(self.setting, stocks, Reason::TooShort);
        }
        match self.phase.clone() {
            Phase::Searching { mut search } => {
                let last = search.judge(probe, self.worth(probe));
                self.on_search(search, last, probe, stocks)
            }
            Phase::Steady { steady } => self.on_steady(steady, probe, stocks),
        }
    }

    fn set_urgency(&mut self, urgency: Urgency) {
        self.urgency = urgency;
    }

    fn best(&self) -> Option<Setting> {
        self.best
    }
}
