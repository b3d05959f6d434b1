//! Counts the bytes transferred on each path over time, and keeps them in the journal.
//!
//! Bytes of depots count when the depot has acknowledged them, bytes of sources when they arrive;
//! bytes that movers transfer count too. Counts are recorded three times a minute, if any changed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_api as api;
use posthaste_endpoint::Result;
use posthaste_journal::{HISTORY_WIDTHS, MovedRecord};
use posthaste_types::{Bytes, Timestamp};

use crate::{depots::Viewer, driver::Centre, render::moment};

/// Interval between counts.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Counts between two records: a crash may lose as many.
const COUNTS_KEPT_TOGETHER: u32 = 4;
/// Paths counted separately between two records, which bounds the rows of the journal. Further
/// paths count as [`OTHERS`].
const PATHS_MAX: usize = 256;
/// Name for all further paths.
const OTHERS: &str = "others";
/// Most steps of an answer, which bounds its size.
const STEPS_MAX: u64 = 1500;
/// Default number of steps: the width of a terminal.
const STEPS_USUAL: u64 = 60;

/// Counts since the last record.
#[derive(Debug, Default)]
struct Counted {
    /// Total of each path at the last count.
    totals: BTreeMap<String, u64>,
    /// Bytes since then, by minute and path.
    fresh: BTreeMap<(u64, String), u64>,
    /// Time of the last record.
    kept_to: Timestamp,
}

impl Counted {
    /// Counts the bytes of a path from its total since the service started.
    fn look(&mut self, path: &str, total: u64, now: Timestamp) {
        let before = self.totals.get(path).copied().unwrap_or(0);
        // A new path counts from the beginning.
        let came = total.checked_sub(before).unwrap_or(total);
        if came == 0 {
            return;
        }
        self.totals.insert(path.to_owned(), total);
        let minute = now.as_micros() / 60_000_000;
        let known = |counted: &Self| counted.fresh.keys().any(|(_, known)| known == path);
        let is_told = self.fresh.len() < PATHS_MAX || known(self);
        let name = if is_told { path } else { OTHERS };
        *self.fresh.entry((minute, name.to_owned())).or_default() += came;
    }

    fn records(&self) -> Vec<MovedRecord> {
        let records = self
            .fresh
            .iter()
            .map(|((minute, path), bytes)| MovedRecord {
                path: path.clone(),
                at: Timestamp::from_secs(minute * 60),
                bytes: Bytes::new(*bytes),
            });
        records.collect()
    }
}

/// History of transferred bytes.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Counted>);

/// Parameters of a query.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) path: Option<String>,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Length of each step, if given.
    pub(crate) step: Option<Duration>,
}

impl History {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self(Mutex::new(Counted {
            kept_to: now,
            ..Counted::default()
        }))
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, centre: &Centre) {
        let now = centre.clock.now();
        let sources: BTreeMap<_, _> = {
            let mind = centre.mind();
            mind.sources()
                .map(|view| (view.source, view.name))
                .collect()
        };
        let mut counted = self.counted();
        for depot in centre.depots.all() {
            counted.look(&depot.record.name, depot.meter.stored().get(), now);
        }
        for (source, flow) in centre.flows.all() {
            if let Some(name) = sources.get(&source) {
                counted.look(name, flow.total().get(), now);
            }
        }
    }

    /// Records the counts.
    fn keep(&self, centre: &Centre) -> Result<()> {
        let now = centre.clock.now();
        let records = self.counted().records();
        if !records.is_empty() {
            centre
                .store
                .journal(|journal| journal.keep_moved(&records, now))?;
        }
        let mut counted = self.counted();
        // Nobody else counts meanwhile.
        counted.fresh.clear();
        counted.kept_to = now;
        Ok(())
    }

    /// Returns the history of transferred bytes. Blocking.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn show(
        &self,
        centre: &Centre,
        wanted: &Wanted,
        viewer: Viewer<'_>,
    ) -> Result<api::History> {
        let (width, step, from, to) = steps(wanted, centre.clock.now());
        let (fresh, kept_to) = {
            let counted = self.counted();
            (counted.records(), counted.kept_to)
        };
        let span = (Timestamp::from_secs(from), Timestamp::from_secs(to));
        let path = wanted.path.as_deref();
        let kept = centre
            .store
            .journal(|journal| journal.moved(path, width, span))?;
        let fresh = fresh
            .into_iter()
            .filter(|one| path.is_none_or(|path| path == one.path));
        let moved = kept.into_iter().chain(fresh);
        let moved = moved.filter(|one| viewer.sees_name(&one.path));
        let count = usize::try_from((to - from) / step).unwrap_or(0);
        let mut total = vec![0; count];
        let mut paths: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for MovedRecord { path, at, bytes } in moved {
            let second = at.as_micros() / 1_000_000;
            let place = second.checked_sub(from).map(|after| after / step);
            let place = place.and_then(|place| usize::try_from(place).ok());
            let Some(place) = place.filter(|place| *place < count) else {
                continue;
            };
            total[place] += bytes.get();
            paths.entry(path).or_insert_with(|| vec![0; count])[place] += bytes.get();
        }
        Ok(api::History {
            from: moment(span.0),
            to: moment(span.1),
            step_s: step,
            kept_to: moment(kept_to),
            total,
            paths: paths
                .into_iter()
                .map(|(path, bytes)| api::MovedOnPath { path, bytes })
                .collect(),
        })
    }
}

/// Returns the stored width that covers the wanted span; and length, begin and end of its steps, in
/// seconds.
fn steps(wanted: &Wanted, now: Timestamp) -> (Duration, u64, u64, u64) {
    let second = |at: Timestamp| at.as_micros() / 1_000_000;
    let (from, to) = (second(wanted.from), second(wanted.to));
    let age = Duration::from_secs(second(now).saturating_sub(from));
    let (longest, _) = HISTORY_WIDTHS[HISTORY_WIDTHS.len() - 1];
    let kept = HISTORY_WIDTHS.into_iter().find(|(_, kept)| age <= *kept);
    let width = kept.map_or(longest, |(width, _)| width);
    let span = to.saturating_sub(from);
    let usual = || span.div_ceil(STEPS_USUAL);
    let step = wanted.step.map_or_else(usual, |step| step.as_secs());
    // No step is longer than the whole span.
    let step = step.min(to).max(span.div_ceil(STEPS_MAX)).max(1);
    let step = step.next_multiple_of(width.as_secs());
    let from = from - from % step;
    let to = to.max(from + 1).next_multiple_of(step);
    (width, step, from, to)
}

/// Counts and records until the service ends.
///
/// # Errors
/// The journal's, unless it is temporary.
pub(crate) async fn keep_all(centre: Arc<Centre>) -> Result<()> {
    let mut counts = 0;
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        centre.history.count(&centre);
        counts += 1;
        if counts % COUNTS_KEPT_TOGETHER == 0 {
            let kept = tokio::task::block_in_place(|| centre.history.keep(&centre));
            match kept {
                // The counts stay for the next attempt.
                Err(error) if error.is_temporary() => tracing::warn!("{error}"),
                other => other?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86400;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(second)
    }

    fn asked(from: u64, to: u64, step: Option<u64>) -> (u64, u64, u64, u64) {
        let wanted = Wanted {
            path: None,
            from: at(from),
            to: at(to),
            step: step.map(Duration::from_secs),
        };
        let (width, step, from, to) = steps(&wanted, at(1000 * DAY));
        (width.as_secs(), step, from, to)
    }

    #[test]
    fn what_is_older_is_told_in_longer_steps() {
        let now = 1000 * DAY;
        assert_eq!(asked(now - 3600, now, None), (60, 60, now - 3600, now));
        assert_eq!(asked(now - 6 * 3600, now, None).1, 360);
        assert_eq!(asked(now - 30 * DAY, now, Some(60)).0, 3600);
        assert_eq!(asked(now - 700 * DAY, now, None).0, DAY);
        let (_, step, from, to) = asked(now - 12 * 3600, now, Some(1));
        assert_eq!((step, (to - from) / step <= STEPS_MAX), (60, true));
        // No step is longer than the whole span, or zero.
        let (_, step, from, to) = asked(now - 3600, now, Some(u64::MAX));
        assert!(from < to && to <= from + step, "{step}");
        assert_eq!(asked(now - 3600, now, Some(0)).1, 60);
        let (_, step, from, to) = asked(0, now, Some(3600));
        assert!((to - from) / step <= STEPS_MAX, "{step}");
        // An empty span is one step.
        assert_eq!(asked(now, now, None), (60, 60, now, now + 60));
    }

    #[test]
    fn every_byte_counts_once_also_of_a_path_that_begins_anew() {
        let mut counted = Counted::default();
        for (total, second) in [(5, 60), (5, 65), (9, 119), (12, 120), (2, 125)] {
            counted.look("ash", total, at(second));
        }
        let records: Vec<_> = counted.records().into_iter().collect();
        let bytes = |second| {
            let mut of = records.iter().filter(|one| one.at == at(second));
            of.next().map(|one| one.bytes.get())
        };
        assert_eq!((bytes(60), bytes(120)), (Some(9), Some(3 + 2)));
    }

    #[test]
    fn paths_beyond_those_that_are_told_apart_count_together() {
        let mut counted = Counted::default();
        for number in 0..PATHS_MAX + 10 {
            counted.look(&format!("path-{number}"), 1, at(60));
        }
        let records = counted.records();
        let others = records.iter().find(|one| one.path == OTHERS).unwrap();
        assert_eq!((records.len(), others.bytes.get()), (PATHS_MAX + 1, 10));
    }
}
