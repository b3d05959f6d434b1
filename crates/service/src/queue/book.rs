//! State of a queue: waiting jobs, their forecasts, and the outcomes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use posthaste_batch::queue::{Job, Queue, State};
use posthaste_forecast::queue::{
    Calibration, Data, Queued, Running, Said, Score, Shape, Site, Starts, Waits, starts,
};
use posthaste_journal::OutcomeRecord;
use posthaste_types::Timestamp;

/// Most jobs followed while they wait; fewer have forecasts.
const WAITING_MAX: usize = 10_000;
/// Assumed run time of a job without a limit: longer than most centres allow.
const UNLIMITED: Duration = Duration::from_secs(30 * 86_400);
/// Newest shares of their time limit that jobs used: a few days of a middling centre.
const SHARES_MAX: usize = 256;
/// Fewest shares for a statistic.
const SHARES_MIN: usize = 10;
/// Thousandths in one.
const ONE: u32 = 1000;

/// Source of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Forecaster {
    Outcomes,
    Simulated,
    Bounds,
    Scheduler,
}

impl Forecaster {
    const ALL: [Self; 4] = [
        Self::Outcomes,
        Self::Simulated,
        Self::Bounds,
        Self::Scheduler,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Outcomes => "outcomes",
            Self::Simulated => "simulated",
            Self::Bounds => "bounds",
            Self::Scheduler => "scheduler",
        }
    }
}

/// Key of the statistics of each kind of forecast, beside those of each forecaster.
const KIND: &str = "kind";

/// Waiting job.
#[derive(Debug)]
struct Open {
    number: u64,
    shape: Shape,
    /// Time of submission, or of release for a held job.
    submitted: Timestamp,
    /// First forecast of each forecaster, with its time.
    first: BTreeMap<Forecaster, (Timestamp, Starts)>,
}

/// Forecast of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forecast {
    pub(super) job: String,
    pub(super) user: String,
    pub(super) procs: u32,
    pub(super) starts: Starts,
    pub(super) by: Forecaster,
    /// Upper bound of its class's start.
    pub(super) bound: Option<Timestamp>,
    pub(super) scheduler: Option<Timestamp>,
}

/// Known state of a queue.
#[derive(Debug, Default)]
pub(super) struct Book {
    waits: Waits,
    calibration: Calibration,
    pub(super) scores: BTreeMap<Forecaster, Score>,
    open: BTreeMap<String, Open>,
    /// Last look at the queue, the jobs running then, and those held.
    looked: Option<Timestamp>,
    running: BTreeSet<String>,
    held: BTreeSet<String>,
    /// Ids of waiting jobs that hooks know by another number, by that number.
    numbers: BTreeMap<String, Vec<String>>,
    /// Jobs that wait for others to end, by their ids and by the numbers that hooks know.
    dependent: BTreeSet<String>,
    shares_permille: VecDeque<u32>,
    /// Outcomes of kinds of forecast before this service ran, until the machine's size is known.
    past: Vec<OutcomeRecord>,
    /// Last number given: jobs get numbers as they are seen.
    numbered: u64,
    pub(super) forecasts: Vec<Forecast>,
}

impl Book {
    /// Restores the outcomes of an earlier service.
    pub(super) fn restore(outcomes: &[OutcomeRecord]) -> Self {
        let mut book = Self::default();
        for one in outcomes {
            let [p10, p50, p90] = one.starts;
            book.numbered += 1;
            let job = book.numbered;
            if one.forecaster == KIND {
                book.past.push(one.clone());
                continue;
            }
            let known = Forecaster::ALL
                .into_iter()
                .find(|by| by.name() == one.forecaster);
            let Some(by) = known else {
                continue; // A later version knew it.
            };
            let said = Starts { job, p10, p50, p90 };
            book.scores.entry(by).or_default().add(&said, one.started);
            if by == Forecaster::Simulated {
                let shape = Shape {
                    procs: one.procs,
                    walltime: one.walltime,
                };
                book.learn_wait(shape, one.submitted, one.started);
            }
        }
        book
    }

    /// Applies outcomes of earlier forecasts for a machine of so many processors; later, if none of
    /// them is up now.
    fn recall(&mut self, procs: u32) {
        if procs == 0 {
            return;
        }
        for one in std::mem::take(&mut self.past) {
            let [_, start, _] = one.starts;
            let said = Said {
                job: 0,
                walltime: one.walltime,
                share_permille: share_permille(one.procs, procs),
                submitted: one.submitted,
                start,
                now: one.said,
            };
            self.calibration.learn(&said, one.started.since(one.said));
        }
    }

    /// Returns the p10 start of a job. Only the first jobs of a long queue have forecasts: jobs
    /// behind them start no sooner than the last of these, except to fill a gap.
    pub(super) fn soonest(&self, job: &str) -> Option<Timestamp> {
        let of_array = self.numbers.get(job).map(Vec::as_slice).unwrap_or_default();
        let is_it = |id: &str| id == job || of_array.iter().any(|one| one == id);
        // The first job of an array to start needs the data.
        let own = self.forecasts.iter().filter(|one| is_it(&one.job));
        let own = own.min_by_key(|one| one.starts.p10);
        let last = || {
            let is_open = self.open.keys().any(|id| is_it(id));
            self.forecasts.last().filter(|_| is_open)
        };
        own.or_else(last).map(|one| one.starts.p10)
    }

    /// Returns whether a job waited for others to end at the last look.
    pub(super) fn waits_for_others(&self, job: &str) -> bool {
        self.dependent.contains(job)
    }

    /// Learns from the accounting how long jobs waited and how much of their time they used, in
    /// place of what was known. Returns the number of jobs that were useful.
    pub(super) fn learn(&mut self, history: &Queue) -> u32 {
        let mut jobs: Vec<&Job> = history.jobs.iter().collect();
        jobs.sort_by_key(|job| job.started());
        self.waits = Waits::default();
        let mut learned = 0;
        for job in &jobs {
            if let Some((submitted, start)) = job.submitted.zip(job.started()) {
                self.learn_wait(shape(job), submitted, start);
                learned += 1;
            }
        }
        jobs.sort_by_key(|job| job.end);
        for job in jobs {
            self.learn_share(job);
        }
        learned
    }

    fn learn_wait(&mut self, shape: Shape, submitted: Timestamp, start: Timestamp) {
        self.numbered += 1;
        self.waits.on_submit(self.numbered, shape, submitted);
        self.waits.on_start(self.numbered, start);
    }

    /// Processes a queue with so many processors: scores started jobs, and forecasts waiting ones.
    /// `data_of` returns when the data of a started job arrived. Returns the outcomes of forecasts.
    ///
    /// # Errors
    /// Errors of `data_of`.
    pub(super) fn on_look<E>(
        &mut self,
        queue: &Queue,
        procs: u32,
        now: Timestamp,
        data_of: impl Fn(&str) -> Result<Option<Data>, E>,
    ) -> Result<Vec<OutcomeRecord>, E> {
        self.recall(procs);
        let outcomes = self.settle(queue, data_of)?;
        let dependent = queue
            .jobs
            .iter()
            .filter(|job| job.is_dependent && matches!(job.state, State::Held | State::Waiting));
        let names = dependent.flat_map(|job| job.number.iter().chain([&job.id]));
        self.dependent = names.cloned().collect();
        self.numbers.clear();
        for job in queue.jobs.iter().filter(|job| job.state == State::Waiting) {
            if let Some(number) = &job.number {
                let ids = self.numbers.entry(number.clone()).or_default();
                ids.push(job.id.clone());
            }
        }
        self.take(queue, now);
        self.waits.review(now);
        self.forecast(queue, procs, now);
        self.looked = Some(now);
        Ok(outcomes)
    }

    /// Scores jobs that no longer wait.
    fn settle<E>(
        &mut self,
        queue: &Queue,
        data_of: impl Fn(&str) -> Result<Option<Data>, E>,
    ) -> Result<Vec<OutcomeRecord>, E> {
        let seen: BTreeMap<&str, &Job> = queue
            .jobs
            .iter()
            .map(|job| (job.id.as_str(), job))
            .collect();
        let mut outcomes = Vec::new();
        for (id, open) in std::mem::take(&mut self.open) {
            let job = seen.get(id.as_str());
            let is_waiting = job.is_some_and(|job| job.state == State::Waiting);
            if is_waiting {
                self.open.insert(id, open);
            } else if let Some(start) = job.and_then(|job| job.started()) {
                let data = match (data_of(&id)?, job.and_then(|job| job.number.as_deref())) {
                    (None, Some(number)) => data_of(number)?,
                    (data, _) => data,
                };
                outcomes.extend(self.score(open, start, data));
            } else {
                // Gone, held, or started at an unknown time.
                self.calibration.on_cancel(open.number);
                self.waits.on_cancel(open.number);
            }
        }
        self.learn_brief_waits(queue);
        self.learn_shares(&seen);
        Ok(outcomes)
    }

    /// Learns waits of jobs that came and started between two looks: without them every job would
    /// seem to wait longer.
    fn learn_brief_waits(&mut self, queue: &Queue) {
        let Some(looked) = self.looked else {
            return;
        };
        for job in &queue.jobs {
            if let Some((submitted, start)) = job.submitted.zip(job.started())
                && submitted > looked
            {
                self.learn_wait(shape(job), submitted, start);
            }
        }
    }

    fn score(&mut self, open: Open, start: Timestamp, data: Option<Data>) -> Vec<OutcomeRecord> {
        self.waits.on_start(open.number, start);
        let outcome = |forecaster: &str, said, starts| OutcomeRecord {
            forecaster: forecaster.to_owned(),
            procs: open.shape.procs,
            walltime: open.shape.walltime,
            submitted: open.submitted,
            said,
            starts,
            started: start,
        };
        let mut outcomes = Vec::new();
        for (by, (said, starts)) in &open.first {
            self.scores.entry(*by).or_default().add(starts, start);
            outcomes.push(outcome(
                by.name(),
                *said,
                [starts.p10, starts.p50, starts.p90],
            ));
        }
        for (said, waited) in self.calibration.on_start(open.number, start, data) {
            outcomes.push(OutcomeRecord {
                started: said.now + waited,
                ..outcome(KIND, said.now, [said.start; 3])
            });
        }
        outcomes
    }

    /// Learns how much of their time limit the jobs used that ran at the last look and have ended.
    fn learn_shares(&mut self, seen: &BTreeMap<&str, &Job>) {
        for id in std::mem::take(&mut self.running) {
            if let Some(job) = seen.get(id.as_str()) {
                self.learn_share(job);
            }
        }
        let running = seen.values().filter(|job| job.state == State::Running);
        self.running = running.map(|job| job.id.clone()).collect();
    }

    /// Learns how much of its time limit an ended job used.
    fn learn_share(&mut self, job: &Job) {
        let times = job.start.zip(job.end).zip(job.walltime);
        let Some(((start, end), walltime)) = times.filter(|_| job.state == State::Over) else {
            return;
        };
        let asked = walltime.as_millis().max(1);
        let share = end.since(start).as_millis() * u128::from(ONE) / asked;
        if self.shares_permille.len() >= SHARES_MAX {
            self.shares_permille.pop_front();
        }
        self.shares_permille
            .push_back(u32::try_from(share).unwrap_or(ONE).min(ONE));
    }

    /// Returns p10, p50 and p90 of the share of their time limit that jobs use.
    fn used_permille(&self) -> [u32; 3] {
        let mut sorted: Vec<u32> = self.shares_permille.iter().copied().collect();
        if sorted.len() < SHARES_MIN {
            return [ONE; 3];
        }
        sorted.sort_unstable();
        [1, 5, 9].map(|tenths| sorted[sorted.len() * tenths / 10])
    }

    /// Adds waiting jobs that were not known.
    fn take(&mut self, queue: &Queue, now: Timestamp) {
        for job in queue.waiting() {
            if self.open.contains_key(&job.id) || self.open.len() >= WAITING_MAX {
                continue;
            }
            self.numbered += 1;
            let was_held = self.held.contains(&job.id);
            let open = Open {
                number: self.numbered,
                shape: shape(job),
                submitted: job.submitted.filter(|_| !was_held).unwrap_or(now),
                first: BTreeMap::new(),
            };
            self.waits
                .on_submit(open.number, open.shape, open.submitted);
            self.open.insert(job.id.clone(), open);
        }
        let held = queue.jobs.iter().filter(|job| job.state == State::Held);
        self.held = held.take(WAITING_MAX).map(|job| job.id.clone()).collect();
    }

    fn forecast(&mut self, queue: &Queue, procs: u32, now: Timestamp) {
        let running: Vec<Running> = queue
            .running()
            .filter_map(|job| {
                Some(Running {
                    shape: shape(job),
                    since: job.started()?,
                })
            })
            .collect();
        let waiting = queue.waiting();
        let queued: Vec<Queued> = (0..)
            .zip(&waiting)
            .map(|(job, waiting)| Queued {
                job,
                shape: shape(waiting),
            })
            .collect();
        let play = |used_permille| {
            let site = Site {
                procs,
                running: &running,
                queue: &queued,
                used_permille,
            };
            starts(&site, now)
        };
        // Kinds of forecast depend on what jobs request, which does not change with users' habits.
        let asked = play([ONE; 3]);
        let used = play(self.used_permille());
        let mut forecasts = Vec::new();
        for (asked, used) in asked.iter().zip(used) {
            let place = usize::try_from(asked.job).unwrap_or(usize::MAX);
            let Some(job) = waiting.get(place) else {
                continue;
            };
            let said = Said {
                job: asked.job,
                walltime: shape(job).walltime,
                share_permille: share_permille(job.procs, procs),
                submitted: now,
                start: asked.p50,
                now,
            };
            forecasts.extend(self.forecast_one(job, said, used));
        }
        self.forecasts = forecasts;
    }

    /// Completes a forecast: `said` still lacks the job's own facts, its number and the start of
    /// its wait.
    fn forecast_one(&mut self, job: &Job, said: Said, used: Starts) -> Option<Forecast> {
        let now = said.now;
        let open = self.open.get_mut(&job.id)?;
        let said = Said {
            job: open.number,
            submitted: open.submitted,
            ..said
        };
        let [p10, p50, p90] =
            [100, 500, 900].map(|permille| self.calibration.start(&said, permille));
        self.calibration.on_forecast(said);
        let outcomes = p10.zip(p50).zip(p90).map(|((p10, p50), p90)| Starts {
            p10,
            p50,
            p90,
            ..used
        });
        let bounds = self.waits.bounds(open.shape).map(|bounds| Starts {
            p10: open.submitted + bounds.lower,
            p50: open.submitted + (bounds.lower + bounds.upper) / 2,
            p90: open.submitted + bounds.upper,
            ..used
        });
        let scheduler = job.start.filter(|start| *start > now);
        let told = scheduler.map(|at| Starts {
            p10: at,
            p50: at,
            p90: at,
            ..used
        });
        for (by, starts) in [
            (Forecaster::Outcomes, outcomes),
            (Forecaster::Simulated, Some(used)),
            (Forecaster::Bounds, bounds),
            (Forecaster::Scheduler, told),
        ] {
            if let Some(starts) = starts {
                open.first.entry(by).or_insert((now, starts));
            }
        }
        let by = if outcomes.is_some() {
            Forecaster::Outcomes
        } else {
            Forecaster::Simulated
        };
        Some(Forecast {
            job: job.id.clone(),
            user: job.user.clone(),
            procs: job.procs,
            starts: outcomes.unwrap_or(used),
            by,
            bound: bounds.map(|bounds| bounds.p90),
            scheduler,
        })
    }
}

/// Converts processors to thousandths of the machine's.
fn share_permille(procs: u32, machine: u32) -> u32 {
    let share = u64::from(procs) * u64::from(ONE) / u64::from(machine.max(1));
    u32::try_from(share).unwrap_or(u32::MAX)
}

fn shape(job: &Job) -> Shape {
    Shape {
        procs: job.procs,
        walltime: job.walltime.unwrap_or(UNLIMITED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn job(id: &str, state: State, submitted: u64, start: Option<u64>) -> Job {
        Job {
            id: id.into(),
            number: None,
            is_dependent: false,
            user: "alice".into(),
            state,
            reason: String::new(),
            procs: 4,
            walltime: Some(Duration::from_secs(600)),
            priority: 1,
            submitted: Some(at(submitted)),
            start: start.map(at),
            end: None,
        }
    }

    fn queue(jobs: &[Job]) -> Queue {
        Queue {
            jobs: jobs.to_vec(),
            left_out: 0,
        }
    }

    /// Looks at a queue of these jobs and four processors.
    fn look(book: &mut Book, jobs: &[Job], now: u64) -> Vec<OutcomeRecord> {
        let no_data = |_: &str| Ok::<_, std::convert::Infallible>(None);
        match book.on_look(&queue(jobs), 4, at(now), no_data) {
            Ok(outcomes) => outcomes,
            Err(never) => match never {},
        }
    }

    #[test]
    fn a_job_is_forecast_by_the_queue_and_scored_when_it_starts() {
        let mut book = Book::default();
        let runs = job("1", State::Running, 900, Some(1000));
        let mut waits = job("2", State::Waiting, 1010, Some(1650));
        look(&mut book, &[runs.clone(), waits.clone()], 1010);
        let [found] = &book.forecasts[..] else {
            panic!("one job waits: {:?}", book.forecasts);
        };
        assert_eq!(
            (found.by, found.starts.p50),
            (Forecaster::Simulated, at(1600))
        );
        assert_eq!(found.scheduler, Some(at(1650)));

        (waits.state, waits.start) = (State::Running, Some(at(1640)));
        let outcomes = look(&mut book, &[waits], 1650);
        let names: Vec<&str> = outcomes.iter().map(|one| one.forecaster.as_str()).collect();
        assert_eq!(names, ["simulated", "scheduler", "kind"]);
        let error = |by| book.scores[&by].mean_error().map(|error| error.as_secs());
        assert_eq!(error(Forecaster::Simulated), Some(40));
        assert_eq!(error(Forecaster::Scheduler), Some(10));
        assert_eq!(book.forecasts, []);
    }

    /// Runs jobs that are forecast to start at once and start 300 s later, one after the other.
    fn habit(book: &mut Book, from: u64, count: u64) -> Vec<OutcomeRecord> {
        let mut outcomes = Vec::new();
        for one in 0..count {
            let (id, submitted) = (format!("{from}-{one}"), 7200 + one);
            look(
                book,
                &[job(&id, State::Waiting, submitted, None)],
                submitted,
            );
            let started = job(&id, State::Over, submitted, Some(submitted + 300));
            outcomes.extend(look(book, &[started], submitted + 310));
        }
        outcomes
    }

    #[test]
    fn what_became_of_forecasts_is_the_next_and_outlives_the_service() {
        let mut book = Book::default();
        let outcomes = habit(&mut book, 1, 60);
        let restored = Book::restore(&outcomes);
        assert_eq!(restored.scores, book.scores);
        for mut book in [book, restored] {
            let next = job("9", State::Waiting, 7300, None);
            look(&mut book, &[next], 7300);
            let found = &book.forecasts[0];
            assert_eq!(
                (found.by, found.starts.p10),
                (Forecaster::Outcomes, at(7600))
            );
            let first = &book.open["9"].first;
            assert_eq!(first[&Forecaster::Bounds].1.p90, at(7600));
        }
    }

    #[test]
    fn what_is_restored_is_told_apart_by_the_share_of_the_machine() {
        let mut book = Book::default();
        let mut outcomes = Vec::new();
        let habits: [(u32, u64); 2] = [(1, 30), (4, 300)];
        for (procs, waits_s) in habits {
            for one in 0..8 {
                let submitted = 10_000 * u64::from(procs) + one * 1000;
                let of = |state, start| Job {
                    procs,
                    ..job(&format!("{procs}-{one}"), state, submitted, start)
                };
                look(&mut book, &[of(State::Waiting, None)], submitted);
                let started = of(State::Over, Some(submitted + waits_s));
                outcomes.extend(look(&mut book, &[started], submitted + waits_s + 10));
            }
        }
        for (procs, waits_s) in habits {
            let mut restored = Book::restore(&outcomes);
            let next = Job {
                procs,
                ..job("next", State::Waiting, 90_000, None)
            };
            look(&mut restored, &[next], 90_000);
            assert_eq!(restored.forecasts[0].starts.p10, at(90_000 + waits_s));
        }
    }

    #[test]
    fn what_comes_and_starts_between_two_looks_counts_as_a_short_wait() {
        let mut book = Book::default();
        look(&mut book, &[], 1000);
        for looked in (1100..).step_by(100).take(59) {
            let brief = job("1", State::Running, looked - 60, Some(looked - 55));
            // The job is seen again, and counts once.
            look(&mut book, std::slice::from_ref(&brief), looked);
            look(&mut book, &[brief], looked + 1);
        }
        let next = job("2", State::Waiting, 9000, None);
        look(&mut book, &[next], 9001);
        assert_eq!(book.forecasts[0].bound, Some(at(9005)));
    }

    #[test]
    fn the_accounting_tells_what_jobs_waited_and_used() {
        let over = |one: u64| Job {
            end: Some(at(1360 + one)),
            ..job("1", State::Over, 1000 + one, Some(1300 + one))
        };
        let mut history: Vec<Job> = (0..59).map(over).collect();
        history.push(job("2", State::Cancelled, 1, Some(9)));
        let mut book = Book::default();
        assert_eq!(book.learn(&queue(&history)), 59);
        assert_eq!(book.used_permille(), [100; 3]);
        let runs = job("3", State::Running, 7000, Some(7000));
        let next = job("4", State::Waiting, 7010, None);
        look(&mut book, &[runs, next], 7010);
        let found = &book.forecasts[0];
        assert_eq!(found.bound, Some(at(7310)));
        assert_eq!(
            found.starts.p50,
            at(7070),
            "the one before uses 60 of its 600 s"
        );
    }

    #[test]
    fn a_job_far_behind_starts_no_sooner_than_the_last_that_is_forecast() {
        let mut book = Book::default();
        let mut jobs = vec![job("0", State::Running, 900, Some(1000))];
        let waits = |one: u64| job(&one.to_string(), State::Waiting, 1000 + one, None);
        jobs.extend((1..=550).map(waits));
        look(&mut book, &jobs, 2000);
        assert_eq!(book.forecasts.len(), 500, "the first are forecast");
        let last = book.soonest("500").unwrap();
        assert!(last > at(2000 + 498 * 600), "each runs for 600 s");
        assert_eq!(book.soonest("550"), Some(last));
        assert!(book.soonest("1").unwrap() < last);
        assert_eq!(book.soonest("0"), None, "it runs");
        assert_eq!(book.soonest("551"), None, "nobody knows it");
    }

    #[test]
    fn a_job_waits_since_it_was_let_go() {
        let mut book = Book::default();
        look(&mut book, &[job("1", State::Held, 10, None)], 20);
        look(&mut book, &[job("1", State::Waiting, 10, None)], 5000);
        assert_eq!(book.open["1"].submitted, at(5000));
    }

    #[test]
    fn a_job_that_goes_without_a_start_says_nothing() {
        let mut book = Book::default();
        for (last, left) in [
            (None, 0),
            (Some(State::Cancelled), 0),
            (Some(State::Held), 0),
            (Some(State::Waiting), 1),
        ] {
            look(&mut book, &[job("1", State::Waiting, 10, None)], 10);
            let last: Vec<Job> = last
                .map(|state| job("1", state, 10, None))
                .into_iter()
                .collect();
            assert_eq!(look(&mut book, &last, 20), []);
            assert_eq!(book.open.len(), left, "{last:?}");
        }
    }
}
