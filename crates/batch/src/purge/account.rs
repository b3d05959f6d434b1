//! Result of a scan: how much is removed when, and which directories to save first.

use std::collections::BTreeMap;

use super::{Confidence, Death};

/// Most directories counted separately; the others share one group.
const GROUPS_MAX: usize = 20_000;

/// Count of files and of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Number of files.
    pub files: u64,
    /// Bytes of these files.
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

/// Files that are removed on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Day {
    /// All files of the day.
    pub all: Sum,
    /// Files whose removal is predicted rather than certain.
    pub predicted: Sum,
    /// Files that are safe elsewhere.
    pub safe: Sum,
}

/// Files of one directory, and of all below it, that are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Files removed within the period of the scan that are not safe elsewhere.
    pub dying: Sum,
    /// Files of `dying` whose removal is only possible.
    pub possible: Sum,
    /// Files removed that are safe elsewhere.
    pub safe: Sum,
    /// First removal of a file that is not safe elsewhere.
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

/// Fate of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// File that no rule removes.
    Stays,
    /// File that a rule removes after the period of the scan.
    Later,
    /// File that a rule removes within that period.
    Dies(Death),
}

/// Result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// All files.
    pub total: Sum,
    /// Files that no rule removes.
    pub stays: Sum,
    /// Files removed after the period of the scan.
    pub later: Sum,
    /// Files that may be removed at an unknown time.
    pub possible: Sum,
    /// Files removed on each day; the first day is today.
    pub days: Vec<Day>,
    /// Files removed of each directory, by its path below the scanned root; the rest under `None`.
    pub groups: BTreeMap<Option<Vec<u8>>, Group>,
    /// Files whose creation time is unknown.
    pub unborn: u64,
    /// Depth of a group, in names of its path.
    depth: usize,
    /// Ends of the days, in seconds since 1970.
    midnights: Vec<i64>,
}

impl Account {
    /// Returns an empty account with days that end at these moments, and groups of this depth.
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

    /// Returns the group of a directory's files, by the directory's path below the root.
    pub(super) fn group_of<'a>(&self, directory: &'a [u8]) -> &'a [u8] {
        let mut ends = directory.iter().enumerate();
        let mut ends = ends.by_ref().filter(|(_, byte)| **byte == b'/');
        match ends.nth(self.depth.saturating_sub(1)) {
            _ if self.depth == 0 => &[],
            Some((end, _)) => &directory[..end],
            None => directory,
        }
    }

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

    /// Adds another account of the same days.
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

    /// Returns the directories with removals that are not safe elsewhere: earliest first, then
    /// largest.
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
