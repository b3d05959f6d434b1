//! Watches the status of a depot, and reports news to the mind.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_core::contract::{DepotTerms, Drain, Fault, Input, load_left};
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{Draining, RelayStatus},
};
use posthaste_journal::DepotRecord;
use posthaste_types::{ByteRate, Bytes, DepotId};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    depots::{Depot, SILENT_AFTER, fault_of},
    driver::{Arrival, Centre},
    enlist,
};

/// Interval of status calls while data is sent to the depot or it is down.
const POLL_BUSY: Duration = Duration::from_millis(500);
/// Interval while something waits for its load: a load average covers a minute.
const POLL_LOAD: Duration = Duration::from_secs(2);
/// Interval otherwise.
const POLL_IDLE: Duration = Duration::from_secs(10);
/// Consecutive unanswered calls after which a depot counts as down rather than slow.
const SILENCES_MAX: u32 = 3;
/// Time after which a depot without news is reported again.
const REPORT_EVERY: Duration = Duration::from_secs(30);

/// Watches one depot until it is removed.
pub(crate) async fn watch(centre: Arc<Centre>, depot: Arc<Depot>) {
    let (depots, inputs) = (Arc::clone(&centre.depots), centre.inputs.clone());
    let mut told = Told::default();
    loop {
        let answer = depot.ask().await;
        // Looked up after the answer: a depot that was removed, or has other terms now, reports
        // nothing.
        let known = depots.get(depot.record.id);
        if !known.is_some_and(|known| Arc::ptr_eq(&known, &depot)) {
            return;
        }
        let now = crate::monotonic();
        told.heeds_load = centre.mind().heeds_load(depot.record.id);
        let news = depot.turned(now).into_iter();
        let news = news.chain(match answer {
            Ok(status) => told.heard(&depot, &status, now),
            Err(error) => told.failed(&depot, &error, now),
        });
        for input in news {
            if inputs.send(Arrival::bare(input)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(told.pause(&depot, now)) => {}
            () = depot.beaten.notified() => {}
        }
    }
}

/// Facts of a depot reported to the mind since the start: none at first, as anything may have
/// changed before.
#[derive(Debug, Default)]
struct Told {
    report: Option<(Report, Instant)>,
    /// Previous process, if it identified itself.
    instance: Option<String>,
    terms: Option<DepotTerms>,
    drain: Option<Drain>,
    follows: Option<bool>,
    stores: Option<bool>,
    reserves: Option<bool>,
    round_trip: Option<Duration>,
    /// Set if something is lent there below a load only; with the load reported then.
    heeds_load: bool,
    load: Option<Option<u32>>,
    /// Consecutive unanswered calls, and the bytes stored there by the last one.
    silences: u32,
    stored: Bytes,
}

impl Told {
    /// Returns the news in a depot's status.
    fn heard(&mut self, depot: &Depot, status: &RelayStatus, now: Instant) -> Vec<Input> {
        self.silences = 0;
        depot.heed(status);
        let id = depot.record.id;
        // First of all: until its hours are known, it is unclear whether it may be used.
        let mut news: Vec<_> = self.lent(depot).into_iter().collect();
        let drain = drain_of(status);
        if self.drain.replace(drain) != Some(drain) {
            news.push(Input::DepotDrained {
                depot: id,
                drain,
                is_own: true,
            });
        }
        let follows = status.follows;
        if self.follows.replace(follows) != Some(follows) {
            news.push(Input::DepotFollows { depot: id, follows });
        }
        let stores = status.lets_through;
        if self.stores.replace(stores) != Some(stores) {
            news.push(Input::DepotStores { depot: id, stores });
        }
        let reserves = status.reserves;
        if self.reserves.replace(reserves) != Some(reserves) {
            news.push(Input::DepotReserves {
                depot: id,
                reserves,
            });
        }
        news.extend(self.load(&depot.record, status.load_permille));
        news.extend(self.distance(depot));
        if self.is_another(status) {
            // It was away between two answers, and may have lost its data.
            news.extend(self.report(id, Report::Down(Fault::Unreachable), now));
        }
        news.extend(self.report(id, Report::up(&depot.record, status), now));
        news
    }

    /// Returns whether another process answers than before.
    fn is_another(&mut self, status: &RelayStatus) -> bool {
        let Some(now) = &status.instance else {
            return false;
        };
        let before = self.instance.replace(now.clone());
        before.is_some_and(|before| before != *now)
    }

    /// Returns its terms if they are news: its owner changed the hours, or a clock was changed.
    fn lent(&mut self, depot: &Depot) -> Option<Input> {
        let terms = enlist::terms(depot);
        if self.terms.as_ref() == Some(&terms) {
            return None;
        }
        self.terms = Some(terms);
        Some(enlist::lent(depot))
    }

    /// Returns the load of its machine, if it matters and is news. If only its owner sets a limit,
    /// news is that the load reaches it, or falls enough below it that the depot is used again.
    fn load(&mut self, record: &DepotRecord, load_permille: Option<u32>) -> Option<Input> {
        let bound = record.load_max_permille;
        if !self.heeds_load && bound.is_none() {
            self.load = None;
            return None;
        }
        let is_most = |load: u32| bound.is_some_and(|most| load >= most);
        let side = |load: Option<u32>| load.map(|load| (is_most(load), is_most(load_left(load))));
        let is_news = match self.load {
            None => true,
            Some(told) if self.heeds_load => told != load_permille,
            Some(told) => side(told) != side(load_permille),
        };
        is_news.then(|| {
            self.load = Some(load_permille);
            Input::LoadTold {
                depot: record.id,
                load_permille,
            }
        })
    }

    /// Returns its distance if that is news: an eighth less than reported, as only the shortest
    /// round trip counts.
    fn distance(&mut self, depot: &Depot) -> Option<Input> {
        let round_trip = depot.client.round_trip()?;
        let told = self.round_trip;
        let is_news = told.is_none_or(|told| round_trip + told / 8 <= told);
        is_news.then(|| {
            self.round_trip = Some(round_trip);
            Input::DistanceTold {
                depot: depot.record.id,
                round_trip,
            }
        })
    }

    /// Handles a status call that failed or was refused.
    fn failed(&mut self, depot: &Depot, error: &Error, now: Instant) -> Vec<Input> {
        // A depot that stores meanwhile is up: its path is full, and answers wait behind data.
        let stored = depot.meter.stored();
        let is_busy = std::mem::replace(&mut self.stored, stored) < stored;
        self.silences = if is_busy { 1 } else { self.silences + 1 };
        let surely = error.kind() != ErrorKind::TimedOut && error.kind() != ErrorKind::Busy;
        let is_down = surely || self.silences >= SILENCES_MAX;
        let report = is_down.then(|| Report::Down(fault_of(error)));
        let report = report.and_then(|report| self.report(depot.record.id, report, now));
        report.into_iter().collect()
    }

    fn report(&mut self, depot: DepotId, report: Report, now: Instant) -> Option<Input> {
        let is_told = self.report.as_ref().is_some_and(|(last, at)| {
            last.says_as_much_as(&report) && now.duration_since(*at) < REPORT_EVERY
        });
        (!is_told).then(|| {
            self.report = Some((report, now));
            report.input(depot)
        })
    }

    /// Returns the pause until the next status call.
    fn pause(&self, depot: &Depot, now: Instant) -> Duration {
        let is_up = matches!(self.report, Some((Report::Up { .. }, _)));
        let idle = is_up && self.silences == 0 && depot.meter.is_idle();
        if idle && (self.heeds_load || depot.record.load_max_permille.is_some()) {
            return POLL_LOAD;
        }
        match (idle, depot.speaks(now)) {
            (true, true) => SILENT_AFTER,
            (true, false) => POLL_IDLE,
            (false, _) => POLL_BUSY,
        }
    }
}

/// Returns how data on a relay that announces its end is drained.
fn drain_of(status: &RelayStatus) -> Drain {
    match status.draining {
        None => Drain::Off,
        Some(Draining::Keep) => Drain::Keep,
        Some(Draining::Move) => Drain::Move,
    }
}

/// Result of a status call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Up {
        free: Bytes,
        rate_max: Option<ByteRate>,
    },
    Down(Fault),
}

impl Report {
    fn up(record: &DepotRecord, status: &RelayStatus) -> Self {
        let rate_max = match (record.rate_max, status.rate_limit) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        Self::Up {
            free: status.free.min(record.capacity),
            rate_max,
        }
    }

    /// Returns whether two reports are equivalent. Free space changes with every fragment, which
    /// the mind counts itself: only an unexpected change of more than a hundredth is worth a line
    /// in the journal.
    fn says_as_much_as(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Up {
                    free: before,
                    rate_max: rate_before,
                },
                Self::Up {
                    free: after,
                    rate_max: rate_after,
                },
            ) => {
                let moved = before.get().abs_diff(after.get());
                rate_before == rate_after && moved <= before.get() / 100
            }
            (before, after) => before == after,
        }
    }

    fn input(self, depot: DepotId) -> Input {
        match self {
            Self::Up { free, rate_max } => Input::DepotUp {
                depot,
                free,
                rate_max,
            },
            Self::Down(fault) => Input::DepotDown { depot, fault },
        }
    }
}

/// Watches all depots of the queue until the service ends.
///
/// # Errors
/// None.
pub(crate) async fn watch_all(
    centre: Arc<Centre>,
    mut watches: mpsc::Receiver<Arc<Depot>>,
) -> Result<()> {
    let mut watching = JoinSet::new();
    while let Some(depot) = watches.recv().await {
        while watching.try_join_next().is_some() {}
        watching.spawn(watch(Arc::clone(&centre), depot));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::depots::tests::depot;
    use posthaste_core::contract::Windows;
    use posthaste_endpoint::relay::wire::HoursBody;
    use posthaste_types::Timestamp;

    /// Monday, 2027-01-11 00:00 UTC.
    const MONDAY: Timestamp = Timestamp::from_secs(1_799_625_600);

    fn status(hours: Option<(&str, i32)>) -> RelayStatus {
        RelayStatus {
            name: "campus".into(),
            capacity: Bytes::mebi(1),
            used: Bytes::ZERO,
            free: Bytes::mebi(1),
            reserved: Bytes::ZERO,
            rate_limit: None,
            received: Bytes::ZERO,
            version: "0".into(),
            connections: 0,
            draining: None,
            hours: hours.map(|(open, ahead_of_utc_min)| HoursBody {
                open: open.into(),
                ahead_of_utc_min,
            }),
            load_permille: None,
            forwards: false,
            follows: false,
            gathers: false,
            mends: false,
            scatters: false,
            measures: false,
            reserves: false,
            takes: false,
            lets_through: false,
            store: None,
            instance: None,
        }
    }

    #[tokio::test]
    async fn the_mind_is_told_of_hours_before_all_else_and_when_they_change() {
        let (depot, mut told) = (depot(), Told::default());
        let mut hear = |hours| -> Option<Windows> {
            let news = told.heard(&depot, &status(hours), crate::monotonic());
            match news.into_iter().next() {
                Some(Input::DepotLent { terms, .. }) => {
                    assert_eq!(terms.domain, "campus");
                    Some(terms.windows)
                }
                _ => None,
            }
        };
        let opens_at = |windows: Option<Windows>| windows.unwrap().next_change(MONDAY);
        let hour = |hour: u64| Some(MONDAY + Duration::from_secs(hour * 3600));
        assert_eq!(opens_at(hear(Some(("08-09", 0)))), hour(8));
        assert_eq!(hear(Some(("08-09", 0))), None);
        // In summer time.
        assert_eq!(opens_at(hear(Some(("08-09", 60)))), hour(7));
        // Unknown values of a later relay cost nothing.
        assert!(hear(Some(("[8]", 0))).unwrap().is_always());
        let shown = |depot: &Depot| depot.acquaintance(crate::monotonic()).hours;
        assert_eq!(shown(&depot), None);
        assert_eq!(hear(None), None);
        assert_eq!(opens_at(hear(Some(("07-09", 0)))), hour(7));
        assert_eq!(shown(&depot).unwrap().open, "07-09");
    }

    #[test]
    fn a_depot_that_does_not_answer_in_time_is_down_unless_it_stores_meanwhile() {
        let (depot, mut told) = (depot(), Told::default());
        let now = crate::monotonic();
        let mut fails = |kind| {
            let news = told.failed(&depot, &Error::new(kind, "ask", "campus"), now);
            !news.is_empty()
        };
        for _ in 0..5 {
            depot.meter.on_start(now, false);
            depot.meter.on_end(now, false, Bytes::mebi(1));
            assert!(!fails(ErrorKind::TimedOut));
        }
        assert!(!fails(ErrorKind::TimedOut));
        assert!(fails(ErrorKind::TimedOut));
        let mut told = Told::default();
        let surely = Error::new(ErrorKind::Unreachable, "ask", "campus");
        assert!(!told.failed(&depot, &surely, now).is_empty());
    }

    #[test]
    fn the_mind_is_told_of_a_load_when_it_comes_to_a_bound_and_well_below() {
        let (depot, mut told) = (depot(), Told::default());
        let record = DepotRecord {
            load_max_permille: Some(500),
            ..depot.record.clone()
        };
        for (load, is_news) in [
            (100, true),
            (399, false),
            (450, true),
            (499, false),
            (500, true),
            (900, false),
            (499, true),
            (401, false),
            (399, true),
            (1, false),
        ] {
            let news = told.load(&record, Some(load));
            assert_eq!(news.is_some(), is_news, "{load}");
        }
        assert!(told.load(&record, None).is_some());
    }
}
