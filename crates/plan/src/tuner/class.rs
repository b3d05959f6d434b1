//! Classes of files by size relative to the path's bandwidth-delay product (storkcloud-2013
//! Algorithm 1).

use core::ops::AddAssign;
use posthaste_types::{Bytes, record};

/// Fewest files of a class of its own.
const FILES_MIN: u64 = 2;
/// Fewest bandwidth-delay products of a class of its own: with less it would end before its own
/// setting showed.
const PRODUCTS_MIN: u64 = 5;

record! {
    /// Size of a file relative to the bandwidth-delay product of the path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Class {
        /// Under a tenth of it: the round trip costs more than the data.
        0 = Small,
        /// Under half of it.
        1 = Middle,
        /// Under twenty times it.
        2 = Large,
        /// Twenty times it or more.
        3 = Huge,
    }
}

impl Class {
    /// All classes, the smallest files first.
    pub const ALL: [Self; 4] = [Self::Small, Self::Middle, Self::Large, Self::Huge];

    /// Returns the class of a file of `size` on a path that holds `bdp` (storkcloud-2013 Algorithm
    /// 1, lines 5-13).
    #[must_use]
    pub const fn of(size: Bytes, bdp: Bytes) -> Self {
        let (size, bdp) = (size.get(), bdp.get());
        if size.saturating_mul(10) < bdp {
            Self::Small
        } else if size.saturating_mul(2) < bdp {
            Self::Middle
        } else if size < bdp.saturating_mul(20) {
            Self::Large
        } else {
            Self::Huge
        }
    }

    /// Returns its place among [`Class::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Middle => 1,
            Self::Large => 2,
            Self::Huge => 3,
        }
    }
}

record! {
    /// A set of classes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct ClassSet {
        bits: u8,
    }
}

impl ClassSet {
    /// No class.
    pub const NONE: Self = Self { bits: 0 };
    /// Every class.
    pub const ALL: Self = Self { bits: 0b1111 };

    /// Returns the set of one class.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        Self {
            bits: 1 << class.index(),
        }
    }

    /// Returns the set with `class` added.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self {
            bits: self.bits | 1 << class.index(),
        }
    }

    /// Returns the classes of either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self {
            bits: self.bits | other.bits,
        }
    }

    /// Returns whether `class` is in the set.
    #[must_use]
    pub const fn contains(self, class: Class) -> bool {
        self.bits >> class.index() & 1 == 1
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Iterates over the classes, the smallest files first.
    pub fn iter(self) -> impl Iterator<Item = Class> {
        Class::ALL
            .into_iter()
            .filter(move |class| self.contains(*class))
    }
}

record! {
    /// Number of files and their bytes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Stock {
        /// Number of files.
        pub files: u64,
        /// Bytes of all of them.
        pub bytes: Bytes,
    }
}

impl Stock {
    /// Returns the mean size of a file; at least one byte, so that it can be a divisor.
    #[must_use]
    pub fn mean(self) -> Bytes {
        Bytes::new((self.bytes.get() / self.files.max(1)).max(1))
    }
}

impl AddAssign for Stock {
    fn add_assign(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.bytes += other.bytes;
    }
}

record! {
    /// Known files left to move, by class.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Stocks {
        of: [Stock; 4],
    }
}

impl Stocks {
    /// Returns the rest of one class.
    #[must_use]
    pub const fn get(&self, class: Class) -> Stock {
        self.of[class.index()]
    }

    /// Adds a file of `size`.
    pub fn add(&mut self, class: Class, size: Bytes) {
        self.add_all(class, 1, size);
    }

    /// Adds `files` of `size` each.
    pub fn add_all(&mut self, class: Class, files: u64, size: Bytes) {
        self.of[class.index()] += Stock {
            files,
            bytes: size.times(files),
        };
    }

    /// Removes a file of `size`.
    pub fn remove(&mut self, class: Class, size: Bytes) {
        let stock = &mut self.of[class.index()];
        stock.files = stock.files.saturating_sub(1);
        stock.bytes -= size;
    }

    /// Returns the sum of all classes.
    #[must_use]
    pub fn total(&self) -> Stock {
        self.sum(ClassSet::ALL)
    }

    /// Returns the sum of these classes.
    #[must_use]
    pub fn sum(&self, classes: ClassSet) -> Stock {
        let mut sum = Stock::default();
        classes.iter().for_each(|class| sum += self.get(class));
        sum
    }

    /// Returns the classes that have files.
    #[must_use]
    pub fn present(&self) -> ClassSet {
        Class::ALL
            .into_iter()
            .filter(|class| self.get(*class).files > 0)
            .fold(ClassSet::NONE, ClassSet::with)
    }

    /// Returns the merged classes, each under the name of one of them. A class with fewer than 2
    /// files or less than 5 bandwidth-delay products joins the one whose mean size is nearest, by
    /// ratio (storkcloud-2013 `mergePartitions`).
    #[must_use]
    pub fn merged(&self, bdp: Bytes) -> alloc::vec::Vec<(Class, ClassSet)> {
        let mut groups: alloc::vec::Vec<(Class, ClassSet)> = self
            .present()
            .iter()
            .map(|class| (class, ClassSet::of(class)))
            .collect();
        while groups.len() > 1 {
            let is_slight = |(_, classes): &(Class, ClassSet)| {
                let stock = self.sum(*classes);
                stock.files < FILES_MIN || stock.bytes < bdp.times(PRODUCTS_MIN)
            };
            let Some(slight) = groups.iter().position(is_slight) else {
                break;
            };
            let (_, classes) = groups.remove(slight);
            let mean = self.sum(classes).mean();
            let nearest = groups
                .iter()
                .enumerate()
                .min_by_key(|(_, (_, other))| ratio_permille(mean, self.sum(*other).mean()))
                .map_or(0, |(place, _)| place);
            if let Some((_, into)) = groups.get_mut(nearest) {
                *into = into.union(classes);
            }
        }
        groups
    }
}

/// Returns the ratio of the larger to the smaller, in thousandths.
fn ratio_permille(one: Bytes, other: Bytes) -> u128 {
    let (small, large) = (one.min(other), one.max(other));
    u128::from(large.get()) * 1000 / u128::from(small.get().max(1))
}
