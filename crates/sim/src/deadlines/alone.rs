//! Latest time by which a request could be safe if it were the only one, including depots' losses.
//!
//! The plan over time ignores losses: a transferred byte counts for good. For a single moment the
//! rule is simpler: data counts unless its depot is gone or came back empty since. So each request
//! is solved alone, at each moment after which a depot stops counting.

use std::{collections::BTreeSet, time::Duration};

use posthaste_plan::horizon::{Demand, Problem};
use posthaste_solve::{Effort, SolveError, solve};
use posthaste_types::Bytes;

use super::Absence;

/// Solver effort for one request on few links; one linear program decides.
const EFFORT: Effort = Effort {
    programs: 1,
    columns: 20_000,
};

/// Returns the last moment, up to its deadline, by which a demand alone can be safe; none if there
/// is none. Data on a depot that is gone still counts for `unnoticed`, because nobody can know yet.
///
/// # Errors
/// Any error of the solver.
pub(super) fn last_moment(
    problem: &Problem,
    demand: &Demand,
    absences: &[Absence],
    unnoticed: Duration,
) -> Result<Option<Duration>, SolveError> {
    let Some(deadline) = demand.offload_by else {
        return Ok(None);
    };
    let uses = |place: usize| demand.sink == Some(place + 1) || demand.via.contains(&(place + 1));
    let absences = absences.iter().filter(|absence| uses(absence.place));
    let absences: Vec<Absence> = absences.copied().collect();
    let noticed = absences.iter().map(|absence| absence.from + unnoticed);
    let moments = noticed.filter(|at| (demand.release..deadline).contains(at));
    let moments: BTreeSet<Duration> = moments.chain([deadline]).collect();
    for moment in moments.into_iter().rev() {
        // The slot that contains the moment counts in full.
        let slots = problem.grid.slots();
        let slot = (0..slots).find(|slot| problem.grid.start(slot + 1) >= moment);
        let by = slot.map_or(deadline, |slot| problem.grid.start(slot + 1));
        let by = by.min(deadline);
        let alone = alone(problem, demand, by, |place| {
            counts_from(&absences, place, moment, unnoticed)
        });
        let schedule = solve(&alone, EFFORT)?;
        if schedule
            .shortfalls
            .iter()
            .all(|shortfall| shortfall.is_none())
        {
            return Ok(Some(by));
        }
    }
    Ok(None)
}

/// Returns the time since which data sent to a depot counts at a moment; none if no data counts.
fn counts_from(
    absences: &[Absence],
    place: usize,
    moment: Duration,
    unnoticed: Duration,
) -> Option<Duration> {
    let here = absences.iter().filter(|absence| absence.place == place);
    let mut from = Duration::ZERO;
    for absence in here.filter(|absence| absence.from + unnoticed < moment) {
        if absence.until > moment {
            return None;
        }
        if absence.is_wiped {
            from = from.max(absence.from);
        }
    }
    Some(from)
}

/// Returns the problem with one demand due then, and only link capacity that counts.
fn alone(
    problem: &Problem,
    demand: &Demand,
    by: Duration,
    counts_from: impl Fn(usize) -> Option<Duration>,
) -> Problem {
    let mut alone = Problem {
        demands: vec![Demand {
            offload_by: Some(by),
            ..demand.clone()
        }],
        ..problem.clone()
    };
    for link in &mut alone.links {
        let from = link.to.checked_sub(1).and_then(&counts_from);
        for (slot, capacity) in link.capacity.iter_mut().enumerate() {
            if from.is_none_or(|from| problem.grid.start(slot + 1) <= from) {
                *capacity = Bytes::ZERO;
            }
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use posthaste_plan::horizon::{Grid, Link, Node, Price};
    use posthaste_types::Code;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Returns two depots that carry ten bytes a second for a minute, and a request of 100 bytes
    /// that needs both.
    fn small() -> Problem {
        let grid = Grid::even(secs(10), 6);
        let link = |place: usize| Link {
            from: 0,
            to: place + 1,
            capacity: vec![Bytes::new(100); 6],
            price: Price::FREE,
        };
        let node = |domain| Node {
            domains: vec![domain],
            ..Node::default()
        };
        Problem {
            grid,
            nodes: (0..3).map(node).collect(),
            links: (0..2).map(link).collect(),
            demands: vec![Demand {
                source: 0,
                sink: None,
                bytes: Bytes::new(100),
                code: Code::new(1, 1).expect("a code"),
                held: Vec::new(),
                release: Duration::ZERO,
                offload_by: Some(secs(60)),
                deliver_by: None,
                not_before: None,
                via: vec![1, 2],
                weight: 1,
                budget: None,
                rate_max: None,
                lent: Vec::new(),
                pinned: Vec::new(),
            }],
            ..Problem::default()
        }
    }

    fn last(absences: &[Absence]) -> Option<Duration> {
        let mut problem = small();
        for absence in absences {
            let capacity = problem.links[absence.place].capacity.iter_mut().enumerate();
            for (slot, bytes) in capacity {
                let start = problem.grid.start(slot);
                if (absence.from..absence.until).contains(&start) {
                    *bytes = Bytes::ZERO;
                }
            }
        }
        last_moment(&problem, &problem.demands[0], absences, secs(2)).expect("a sound problem")
    }

    const fn absence(from: u64, until: u64, is_wiped: bool) -> Absence {
        Absence {
            place: 0,
            from: secs(from),
            until: secs(until),
            is_wiped,
        }
    }

    #[test]
    fn who_loses_nothing_can_be_safe_by_the_deadline() {
        assert_eq!(last(&[]), Some(secs(60)));
        assert_eq!(last(&[absence(20, 40, false)]), Some(secs(60)));
        assert_eq!(last(&[absence(20, 40, true)]), Some(secs(60)));
    }

    #[test]
    fn what_comes_back_empty_too_late_was_safe_before_or_never() {
        assert_eq!(last(&[absence(20, 55, true)]), Some(secs(30)));
        assert_eq!(last(&[absence(20, 90, false)]), Some(secs(30)));
        assert_eq!(last(&[absence(0, 55, true)]), None);
    }
}
