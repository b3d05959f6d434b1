//! Choice of the pages of a listing to request: many at once, each key once.
//!
//! Stores list keys in order, 1,000 to a page, and a page is requested by the last key of the one
//! before. That means one request after the other, unless the start of a later page is guessed.
//! Here the remaining keys are cut into ranges that are listed in parallel; the one with most left
//! is cut again whenever a request may be made. A guess that is too far costs one request and shows
//! where keys end. For intuition, cost and failures see docs/algorithms/parallel-listing.md.
//!
//! This is the deciding half: no requests, no clock, no randomness. Keys are relative to the listed
//! prefix.

mod alphabet;
mod range;

use std::{
    collections::HashSet,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use alphabet::Alphabet;
use range::{Range, directories_alike};

/// Fewest pages that a range must seem to have left to be cut: with fewer, the early last page of
/// each half costs more than is gained.
const PAGES_LEFT_MIN: f64 = 4.0;

/// Guesses that may fail at the start, and one more for so many pages.
const WASTED_FREE: u64 = 8;
const PAGES_PER_WASTED: u64 = 4;

/// Guesses in flight at the start. Each good one allows one more, each bad one halves them, like
/// TCP with packets.
const GUESSES_FIRST: usize = 4;

/// Item of a page.
pub(super) trait Keyed {
    /// Returns its key behind the listed prefix.
    fn key(&self) -> &str;
}

/// Page to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    /// Range to name when the page has arrived.
    pub range: u64,
    pub from: Start,
}

/// Start of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// First key.
    First,
    /// Position after this key, which need not exist.
    After(String),
    /// End of the page before it, in the store's own words.
    Token(String),
}

/// Error for a store that lists keys out of order when it is too late to list them sequentially, or
/// that lists some again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disorder;

/// Keys still to list: those after the first, up to and including the second if there is one.
pub(super) type Span = (String, Option<String>);

/// Trust that the store starts pages as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Unknown,
    /// First guess in flight: this range.
    Asked(u64),
    Earned,
    /// No trust: the store ignores the start or has no order. One page follows the other, by the
    /// store's own tokens.
    Lost,
}

/// State of a listing.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Ranges in the order of keys.
    ranges: Vec<Range>,
    alphabet: Alphabet,
    trust: Trust,
    next_id: u64,
    /// Pages in flight, including those no longer needed.
    flying: usize,
    pages: u64,
    /// Pages that brought nothing of their range.
    wasted: u64,
    /// Guesses that may be in flight.
    guesses: usize,
    /// Keys of the fullest page so far.
    page_keys: f64,
    /// True if keys are names of one directory: no range begins below one of its directories.
    flat: bool,
    /// Hashes of the directories reported before the store's order was trusted.
    told: HashSet<u64>,
    hashing: BuildHasherDefault<DefaultHasher>,
}

impl Ranges {
    /// Begins a listing.
    pub(super) fn new(flat: bool) -> Self {
        Self::of(flat, vec![(String::new(), None)], Trust::Unknown)
    }

    /// Continues a listing with what [`Ranges::spans`] returned.
    pub(super) fn resumed(flat: bool, spans: Vec<Span>) -> Self {
        Self::of(flat, spans, Trust::Earned)
    }

    fn of(flat: bool, spans: Vec<Span>, trust: Trust) -> Self {
        let ranges = (0..).zip(spans).map(|(id, (after, end))| Range {
            id,
            loose: end.is_none(),
            after,
            end,
            leap: 1,
            whole: true,
            ..Range::default()
        });
        let ranges: Vec<Range> = ranges.collect();
        Self {
            next_id: ranges.len() as u64,
            ranges,
            alphabet: Alphabet::default(),
            trust,
            flying: 0,
            pages: 0,
            wasted: 0,
            guesses: GUESSES_FIRST,
            page_keys: 1.0,
            flat,
            told: HashSet::new(),
            hashing: BuildHasherDefault::default(),
        }
    }

    /// Returns the rest to list; nothing while it is unknown whether the store starts pages as
    /// requested.
    pub(super) fn spans(&self) -> Option<Vec<Span>> {
        if self.trust != Trust::Earned {
            return None;
        }
        let spans = self.ranges.iter().map(|range| {
            let mut after = range.after.clone();
            if self.flat && after.ends_with('/') {
                // Some stores would list a directory again that has keys behind its name.
                after.push(char::MAX);
            }
            (after, range.end.clone())
        });
        Some(spans.collect())
    }

    /// Returns the next page to request while `flying_max` may be in flight.
    pub(super) fn next(&mut self, flying_max: usize) -> Option<Ask> {
        if self.flying >= flying_max {
            return None;
        }
        let ready = self.ranges.iter().position(|range| !range.flying);
        let place = ready.or_else(|| self.cut())?;
        let range = &mut self.ranges[place];
        range.flying = true;
        self.flying += 1;
        let from = match &range.token {
            Some(token) => Start::Token(token.clone()),
            None if range.after.is_empty() => Start::First,
            None => Start::After(range.after.clone()),
        };
        Some(Ask {
            range: range.id,
            from,
        })
    }

    /// Records that a page failed. Returns whether that only means that the store won't start pages
    /// as requested; otherwise it may be requested again.
    pub(super) fn failed(&mut self, id: u64, refused: bool) -> bool {
        self.flying -= 1;
        let is_probe = self.trust == Trust::Asked(id);
        if is_probe && refused {
            self.distrust();
            return true;
        }
        if let Some(range) = self.ranges.iter_mut().find(|range| range.id == id) {
            range.flying = false;
        }
        false
    }

    /// Accepts a page and removes from it the keys that another one brings. Returns the directories
    /// to report first, each with its place in the page.
    pub(super) fn arrived<T: Keyed>(
        &mut self,
        id: u64,
        page: &mut Vec<T>,
        next: Option<String>,
    ) -> Result<Vec<(usize, String)>, Disorder> {
        self.flying -= 1;
        let Some(mut place) = self.ranges.iter().position(|range| range.id == id) else {
            // All its keys arrived otherwise.
            page.clear();
            return Ok(Vec::new());
        };
        self.pages += 1;
        let keys = f64::from(u32::try_from(page.len()).unwrap_or(u32::MAX));
        self.page_keys = self.page_keys.max(keys);
        let range = &mut self.ranges[place];
        range.flying = false;
        let last = page.last().map(|last| last.key().as_bytes());
        if let Some(next) = &next
            && range.circle.closes(next.as_bytes(), last)
        {
            return Err(Disorder);
        }
        let starts_right =
            |first: &T| *first.key() > *range.after || (range.after.is_empty() && !range.begun);
        let in_order =
            page.first().is_none_or(starts_right) && page.is_sorted_by(|a, b| a.key() < b.key());
        if !in_order && self.trust == Trust::Earned {
            return Err(Disorder);
        }
        if !in_order && self.trust != Trust::Lost {
            let is_probe = self.trust == Trust::Asked(id);
            self.distrust();
            if is_probe {
                page.clear();
                return Ok(Vec::new());
            }
        }
        if self.trust == Trust::Asked(id) {
            let all = page.len();
            place = self.settle(place, page);
            if all > 0 && page.is_empty() {
                // The range before it was faster; this one now starts where that one is.
                return Ok(Vec::new());
            }
        }
        Ok(self.take(place, page, next))
    }

    /// Gives up guessing: the store ignores starts, so the keys of the first guess come in
    /// sequence.
    fn distrust(&mut self) {
        if let Trust::Asked(probe) = self.trust {
            self.ranges.retain(|range| range.id != probe);
            self.wasted += 1;
        }
        self.trust = Trust::Lost;
    }

    /// Confirms the first guess. The range before it had no end until now, and may have gone beyond
    /// the guess.
    fn settle<T: Keyed>(&mut self, place: usize, page: &mut Vec<T>) -> usize {
        self.trust = Trust::Earned;
        self.told = HashSet::new();
        let guess = self.ranges[place].after.clone();
        let before = &mut self.ranges[place - 1];
        let cut = guess.max(before.after.clone());
        before.end = Some(cut.clone());
        let is_through = before.is_through();
        page.retain(|found| *found.key() > *cut);
        self.ranges[place].after = cut;
        if is_through {
            self.ranges.remove(place - 1);
            return place - 1;
        }
        place
    }

    fn take<T: Keyed>(
        &mut self,
        place: usize,
        page: &mut Vec<T>,
        next: Option<String>,
    ) -> Vec<(usize, String)> {
        let range = &mut self.ranges[place];
        let all = page.len();
        let mut known = if range.begun { &*range.after } else { "" };
        for key in page.iter().map(Keyed::key) {
            self.alphabet.learn(known, key);
            known = key;
        }
        if let Some(end) = &range.end {
            page.truncate(page.partition_point(|found| *found.key() <= **end));
        }
        let is_last = page.len() == all && next.is_none();
        let before = range.after.clone();
        let (id, is_new) = (range.id, !range.begun);
        let ends = page.len() < all || next.is_none();
        range.take(page, next);
        let ends = ends || range.is_through();
        if is_new {
            self.judge(place, !page.is_empty());
        }
        let range = &self.ranges[place];
        if let Some(end) = range.end.as_ref().filter(|_| ends && range.begun) {
            self.alphabet.close(&range.after, end);
        }
        let directories = self.tell(&before, page);
        if is_last {
            self.end_at(place);
        } else if ends {
            self.ranges.retain(|range| range.id != id);
        }
        directories
    }

    /// Ends the listing at this range: nothing is behind its last key, so guesses in flight are
    /// void.
    fn end_at(&mut self, place: usize) {
        let all = self.ranges.len();
        let mut at = 0..all;
        self.ranges.retain(|range| {
            let at = at.next().unwrap_or(all);
            at < place || (at > place && range.begun)
        });
        self.wasted += (all - 1 - self.ranges.len()) as u64;
    }

    /// Judges the guess behind which a range began by its first page.
    fn judge(&mut self, place: usize, found: bool) {
        let (id, loose) = (self.ranges[place].id, self.ranges[place].loose);
        if found {
            self.guesses += 1;
        } else {
            self.wasted += 1;
            self.guesses = (self.guesses / 2).max(1);
        }
        if let Some(before) = self.ranges.iter_mut().find(|range| range.probe == Some(id)) {
            before.probe = None;
            before.whole = false;
            before.loose = !found && loose;
            before.leap = (before.leap / 2).max(1);
        }
    }

    /// Returns the directories whose first keys these are.
    fn tell<T: Keyed>(&mut self, before: &str, page: &[T]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let mut last = before;
        for (place, key) in page.iter().map(Keyed::key).enumerate() {
            if !self.flat {
                let shared = directories_alike(last, key);
                for (slash, _) in key[shared..].match_indices('/') {
                    let directory = &key[..shared + slash];
                    let is_named = !directory.is_empty() && !directory.ends_with('/');
                    let is_new = self.trust == Trust::Earned
                        || self.told.insert(self.hashing.hash_one(directory));
                    if is_named && is_new {
                        found.push((place, directory.to_owned()));
                    }
                }
            }
            last = key;
        }
        found
    }

    /// Cuts the range with most left in two, and returns the place of the new one.
    fn cut(&mut self) -> Option<usize> {
        let is_wasteful = self.wasted > WASTED_FREE + self.pages / PAGES_PER_WASTED;
        let guesses = self.ranges.iter().filter(|range| !range.begun).count();
        if is_wasteful
            || guesses >= self.guesses
            || !matches!(self.trust, Trust::Unknown | Trust::Earned)
        {
            return None;
        }
        loop {
            let rests = self.ranges.iter().map(|range| range.left(&self.alphabet));
            let (place, rest) = rests.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
            if rest < PAGES_LEFT_MIN * self.page_keys {
                return None;
            }
            match self.ranges[place].point(&self.alphabet, self.flat) {
                Some(point) => {
                    self.cut_at(place, point, rest / 2.0);
                    return Some(place + 1);
                }
                None => self.ranges[place].whole = true,
            }
        }
    }

    fn cut_at(&mut self, place: usize, point: String, rest: f64) {
        let id = self.next_id;
        self.next_id += 1;
        let before = &mut self.ranges[place];
        let after = Range {
            id,
            after: point.clone(),
            end: before.end.clone(),
            loose: before.loose,
            leap: before.bolder(),
            first: before.model().to_owned(),
            alike: before.alike,
            rest,
            ..Range::default()
        };
        before.rest = rest;
        before.probe = before.loose.then_some(id);
        if self.trust == Trust::Unknown {
            // Its end stays open: if the store ignores the start, all keys come in sequence.
            self.trust = Trust::Asked(id);
        } else {
            before.end = Some(point);
        }
        self.ranges.insert(place + 1, after);
    }
}

#[cfg(test)]
mod tests;
