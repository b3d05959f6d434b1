//! One range of a listing, and where to cut it.

use super::{
    Keyed,
    alphabet::{Alphabet, after_block, common},
};
use crate::objects::Circle;

/// How boldly a guess goes at most, in letters.
const LEAP_MAX: usize = 64;

/// Keys behind `after` up to and with `end`. The directories `after` lies in are told.
#[derive(Debug, Default)]
pub(super) struct Range {
    pub id: u64,
    /// The first key of its last page; before that, the key its guess was made of.
    pub first: String,
    /// The last key told, or the guess it begins behind.
    pub after: String,
    pub end: Option<String>,
    pub token: Option<String>,
    pub begun: bool,
    pub flying: bool,
    /// Keys of its last page.
    pub keys: f64,
    /// Keys it is thought to have while nothing of it has come.
    pub rest: f64,
    /// No key is known near its end, which may be far behind the last one.
    pub loose: bool,
    /// The range behind it, when its end was a guess and nothing behind it has come.
    pub probe: Option<u64>,
    /// How boldly the next guess goes.
    pub leap: usize,
    /// Letters its last page's keys begin with alike.
    pub alike: usize,
    /// There is no good place to cut it before its next page.
    pub whole: bool,
    /// Of the store's own words for where its pages go on.
    pub circle: Circle,
}

impl Range {
    pub(super) fn is_through(&self) -> bool {
        self.end.as_ref().is_some_and(|end| self.after >= *end)
    }

    /// The last real key it knows.
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

    /// How boldly the guess behind its next one goes.
    pub(super) fn bolder(&self) -> usize {
        (self.leap * 2).min(LEAP_MAX)
    }

    /// Keys it seems to have left; none if it can't be cut now.
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

    /// Where to cut it. In directories that are not told nobody cuts, so that the first range to
    /// get there tells them.
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

    /// A guess while nobody knows where keys end: the end of the block of all keys that begin as
    /// the last one does, in ever fewer letters the longer that goes well.
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

/// Bytes of the directories both keys lie in, with their slashes.
pub(super) fn directories_alike(one: &str, other: &str) -> usize {
    let bytes = one.bytes().zip(other.bytes());
    let alike = bytes.take_while(|(one, other)| one == other).count();
    let shared = &other.as_bytes()[..alike];
    shared
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |slash| slash + 1)
}
