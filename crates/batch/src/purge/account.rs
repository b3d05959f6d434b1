//! What a scan found: how much goes when, and which directories are to be saved first.

use std::collections::BTreeMap;

use super::{Confidence, Death};

/// Directories told apart; what lies in others is told together.
const GROUPS_MAX: usize = 20_000;

/// Files, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What goes on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Day {
    /// All of it.
    pub all: Sum,
    /// What of it is predicted rather than certain.
    pub predicted: Sum,
    /// What of it is safe elsewhere.
    pub safe: Sum,
}

/// What goes of one directory, and all that lies below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// What goes within the time asked about and is not safe elsewhere.
    pub dying: Sum,
    /// What of that only may go.
    pub possible: Sum,
    /// What goes and is safe elsewhere.
    pub safe: Sum,
    /// Of what is not safe, the first to go.
    pub first: Option<Death>,
}

impl Group {
    const NOTHING: Self = Self {
        dying: Sum { files: 0, bytes: 0 },
        possible: Sum { files: 0, bytes: 0 },
        safe: Sum { files: 0, bytes: 0 },
        first: None,
    };

    fn take(&mut self, death: Death) {
        let key = |death: &Death| (death.confidence == Confidence::Possible, death.at_s);
        if self.first.is_none_or(|first| key(&death) < key(&first)) {
            self.first = Some(death);
        }
    }
}

/// How a file stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No rule takes it.
    Stays,
    /// It goes after the time asked about.
    Later,
    /// It goes within that time.
    Dies(Death),
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Everything.
    pub total: Sum,
    /// What no rule takes.
    pub stays: Sum,
    /// What goes later.
    pub later: Sum,
    /// What may go, nobody can say when.
    pub possible: Sum,
    /// What goes on which day; the first is today.
    pub days: Vec<Day>,
    /// What goes of which directory, by its path below the root that was scanned; the rest under `None`.
    pub groups: BTreeMap<Option<Vec<u8>>, Group>,
    /// Files of which nobody knows when they were made.
    pub unborn: u64,
    /// Names of a path that make a group.
    depth: usize,
    /// The ends of the days, in seconds since 1970.
    midnights: Vec<i64>,
}

impl Account {
    /// An account of days that end at these moments, and of directories this deep.
    #[must_use]
    pub fn new(midnights: Vec<i64>, depth: usize) -> Self {
        Self {
            total: Sum::default(),
            stays: Sum::default(),
            later: Sum::default(),
            possible: Sum::default(),
            days: vec![Day::default(); midnights.len()],
            groups: BTreeMap::new(),
            unborn: 0,
            depth,
            midnights,
        }
    }

    /// The group of the files of a directory, by its path below the root.
    pub(super) fn group_of<'a>(&self, directory: &'a [u8]) -> &'a [u8] {
        let mut ends = directory.iter().enumerate();
        let mut ends = ends.by_ref().filter(|(_, byte)| **byte == b'/');
        match ends.nth(self.depth.saturating_sub(1)) {
            _ if self.depth == 0 => &[],
            Some((end, _)) => &directory[..end],
            None => directory,
        }
    }

    /// Counts a file.
    pub(super) fn count(&mut self, group: &[u8], bytes: u64, fate: Fate, is_safe: bool) {
        self.total.add(bytes);
        let death = match fate {
            Fate::Stays => return self.stays.add(bytes),
            Fate::Later => return self.later.add(bytes),
            Fate::Dies(death) => death,
        };
        let is_possible = death.confidence == Confidence::Possible;
        if is_possible {
            self.possible.add(bytes);
        } else {
            let place = self.midnights.partition_point(|end| *end <= death.at_s);
            if let Some(day) = self.days.get_mut(place) {
                day.all.add(bytes);
                if death.confidence == Confidence::Predicted {
                    day.predicted.add(bytes);
                }
                if is_safe {
                    day.safe.add(bytes);
                }
            }
        }
        let group = self.group(group);
        if is_safe {
            return group.safe.add(bytes);
        }
        group.dying.add(bytes);
        if is_possible {
            group.possible.add(bytes);
        }
        group.take(death);
    }

    fn group(&mut self, path: &[u8]) -> &mut Group {
        let known =
            self.groups.len() < GROUPS_MAX || self.groups.contains_key(&Some(path.to_vec()));
        let path = known.then(|| path.to_vec());
        self.groups.entry(path).or_insert(Group::NOTHING)
    }

    /// Adds what another account of the same days has.
    pub(super) fn merge(&mut self, other: Self) {
        self.total.merge(other.total);
        self.stays.merge(other.stays);
        self.later.merge(other.later);
        self.possible.merge(other.possible);
        self.unborn += other.unborn;
        for (day, of) in self.days.iter_mut().zip(other.days) {
            day.all.merge(of.all);
            day.predicted.merge(of.predicted);
            day.safe.merge(of.safe);
        }
        for (path, of) in other.groups {
            let group = match path {
                Some(path) => self.group(&path),
                None => self.groups.entry(None).or_insert(Group::NOTHING),
            };
            group.dying.merge(of.dying);
            group.possible.merge(of.possible);
            group.safe.merge(of.safe);
            if let Some(first) = of.first {
                group.take(first);
            }
        }
    }

    /// The directories of which something goes that is not safe elsewhere: the first to go first, then the largest.
    #[must_use]
    pub fn urgent(&self) -> Vec<(Option<&[u8]>, &Group)> {
        let mut urgent: Vec<_> = self
            .groups
            .iter()
            .filter(|(_, group)| group.first.is_some())
            .map(|(path, group)| (path.as_deref(), group))
            .collect();
        urgent.sort_by_key(|(path, group)| {
            let first = group.first.map(|death| {
                let possible = death.confidence == Confidence::Possible;
                let day = self.midnights.partition_point(|end| *end <= death.at_s);
                (possible, day)
            });
            (first, std::cmp::Reverse(group.dying.bytes), *path)
        });
        urgent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dies(at_s: i64, confidence: Confidence) -> Fate {
        Fate::Dies(Death {
            at_s,
            confidence,
            rule: 0,
        })
    }

    #[test]
    fn days_groups_and_halves_of_a_scan_add_up() {
        let empty = Account::new(vec![100, 200], 1);
        let (mut one, mut two) = (empty.clone(), empty);
        assert_eq!(one.group_of(b"a/b/c"), b"a");
        assert_eq!(one.group_of(b""), b"");
        one.count(b"a", 5, dies(99, Confidence::Certain), false);
        one.count(b"a", 7, dies(100, Confidence::Predicted), false);
        one.count(b"b", 11, dies(100, Confidence::Certain), true);
        two.count(b"a", 1, dies(50, Confidence::Possible), false);
        two.count(b"c", 100, dies(98, Confidence::Certain), false);
        two.count(b"c", 1, Fate::Later, false);
        two.count(b"c", 1, Fate::Stays, false);
        one.merge(two);
        let sum = |files, bytes| Sum { files, bytes };
        assert_eq!(
            (one.total, one.stays, one.later),
            (sum(7, 126), sum(1, 1), sum(1, 1))
        );
        assert_eq!(
            (one.days[0].all, one.days[1].all),
            (sum(2, 105), sum(2, 18))
        );
        assert_eq!(
            (one.days[1].predicted, one.days[1].safe),
            (sum(1, 7), sum(1, 11))
        );
        assert_eq!(one.possible, sum(1, 1));
        let urgent: Vec<&[u8]> = one.urgent().iter().filter_map(|(path, _)| *path).collect();
        assert_eq!(
            urgent,
            [b"c", b"a"],
            "of one day the larger first; what is safe needs nothing"
        );
    }
}
