//! Range of a listing, and the place to cut it.

use super::{
    Keyed,
    alphabet::{Alphabet, after_block, common},
};
use crate::objects::Circle;

/// Boldest leap of a guess, in letters.
const LEAP_MAX: usize = 64;

/// Keys after `after` up to and including `end`. The directories of `after` are reported.
#[derive(Debug, Default)]
pub(super) struct Range {
    pub id: u64,
    /// First key of its last page; before that, the key of its guess.
    pub first: String,
    /// Last key reported, or the guess behind which it begins.
    pub after: String,
    pub end: Option<String>,
    pub token: Option<String>,
    pub begun: bool,
    pub flying: bool,
    /// Keys of its last page.
    pub keys: f64,
    /// Estimated keys while none has arrived.
    pub rest: f64,
    /// True if no key is known near its end, which may be far behind the last one.
    pub loose: bool,
    /// Range behind it, if its end was a guess and nothing behind it has arrived.
    pub probe: Option<u64>,
    /// Boldness of the next guess.
    pub leap: usize,
    /// Letters that the keys of its last page share at the start.
    pub alike: usize,
    /// True if there is no good place to cut it before its next page.
    pub whole: bool,
    /// Detector of cycles in the store's own tokens.
    pub circle: Circle,
}

impl Range {
    pub(super) fn is_through(&self) -> bool {
        self.end.as_ref().is_some_and(|end| self.after >= *end)
    }

    /// Returns the last real key that it knows.
    pub(super) fn model(&self) -> &str {
        if self.keys == 0.0 && !self.first.is_empty() {
            return &self.first;
        }
        &self.after
    }

    pub(super) fn take<T: Keyed>(&mut self, page: &[T], next: Option<String>) {
        self.token = next;
        self.begun = true;
        if let [first, ..] = page
            && let [.., last] = page
        {
            first.key().clone_into(&mut self.first);
            self.alike = common(first.key(), last.key());
            last.key().clone_into(&mut self.after);
            self.keys = f64::from(u32::try_from(page.len()).unwrap_or(u32::MAX));
            self.whole = false;
        }
    }

    /// Returns the boldness of the guess after the next.
    pub(super) fn bolder(&self) -> usize {
        (self.leap * 2).min(LEAP_MAX)
    }

    /// Returns its estimated remaining keys; none if it can't be cut now.
    pub(super) fn left(&self, alphabet: &Alphabet) -> f64 {
        if self.whole || self.probe.is_some() {
            return 0.0;
        }
        let Some(end) = &self.end else {
            return f64::INFINITY;
        };
        if self.keys == 0.0 {
            return Some(self.rest)
                .filter(|rest| rest.is_finite())
                .unwrap_or(0.0);
        }
        let share = alphabet.share(&self.first, &self.after, end);
        self.keys * (1.0 - share) / share
    }

    /// Returns the place to cut it. Directories not reported yet are never cut, so that the first
    /// range to get there reports them.
    pub(super) fn point(&self, alphabet: &Alphabet, flat: bool) -> Option<String> {
        let mut point = match (&self.end, self.loose) {
            (Some(end), false) => alphabet.between(&self.after, end),
            (_, true) | (None, _) => self.leap(alphabet),
        }?;
        let shared = if flat {
            0
        } else {
            directories_alike(&self.after, &point)
        };
        if let Some(slash) = point[shared..].find('/') {
            point.truncate(shared + slash);
        }
        let fits = point > self.after && self.end.as_ref().is_none_or(|end| point < *end);
        fits.then_some(point)
    }

    /// Guesses while the end of the keys is unknown: the end of the block of keys that share a
    /// prefix with the last one. The prefix gets shorter the longer that succeeds.
    fn leap(&self, alphabet: &Alphabet) -> Option<String> {
        let model = self.model();
        let lowest = match &self.end {
            Some(end) => common(model, end) + 1,
            None => 0,
        };
        let live = |place: &usize| alphabet.is_live(model, *place);
        let bold = self.alike.checked_sub(1 + self.leap);
        let finest = bold.and_then(|bold| (lowest..=bold).rev().find(live));
        if let Some(place) = finest {
            return after_block(model, place);
        }
        // Bolder than there are places: further in the letters of the first one.
        let place = (lowest..=self.alike).find(live).unwrap_or(lowest);
        let steps = (place + 1 + self.leap).saturating_sub(self.alike).max(1);
        let point = alphabet.ahead(model, place, steps);
        let fits = |point: &String| self.end.as_ref().is_none_or(|end| point < end);
        point.filter(fits).or_else(|| {
            let end = self.end.as_ref()?;
            alphabet.between(&self.after, end)
        })
    }
}

/// Returns the bytes of the directories in which both keys lie, with their slashes.
pub(super) fn directories_alike(one: &str, other: &str) -> usize {
    let bytes = one.bytes().zip(other.bytes());
    let alike = bytes.take_while(|(one, other)| one == other).count();
    let shared = &other.as_bytes()[..alike];
    shared
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1)
}
