//! Positions of keys, guessed from those seen: the letters at each place of a key.
//!
//! Keys are read as numbers written with these letters, so that the middle between two keys is a
//! number too. Letters and not bytes, so that every guess is text that a store accepts. Stores
//! order keys by the bytes of UTF-8, which is the order of code points and so that of `str`.

use std::collections::HashMap;

/// Most places watched: some hundred bytes each.
const PLACES_MAX: usize = 8_192;

/// Letters that decide the middle: beyond them a double has no digits left.
const DEPTH: usize = 10;

const DIGITS: u128 = span(b'0', b'9');
const LOWER: u128 = span(b'a', b'z');
const UPPER: u128 = span(b'A', b'Z');
const HEX_LOWER: u128 = span(b'a', b'f');
const HEX_UPPER: u128 = span(b'A', b'F');

const fn span(first: u8, last: u8) -> u128 {
    (((1 << (last - first)) - 1) << first) | (1 << last)
}

/// Set of letters.
#[derive(Debug, Clone, Copy, Default)]
struct Letters {
    /// Bit for each ASCII letter.
    ascii: u128,
    /// Lowest and highest beyond ASCII.
    beyond: Option<(u32, u32)>,
}

impl Letters {
    fn add(&mut self, letter: char) {
        let code = u32::from(letter);
        if code < 128 {
            self.ascii |= 1 << code;
        } else {
            let (low, high) = self.beyond.unwrap_or((code, code));
            self.beyond = Some((low.min(code), high.max(code)));
        }
    }

    fn with(mut self, letter: Option<char>) -> Self {
        if let Some(letter) = letter {
            self.add(letter);
        }
        self
    }

    /// Adds the letters that are likely given those seen: digits come together, and hexadecimal
    /// ones too.
    fn likely(mut self) -> Self {
        let has_digits = self.ascii & DIGITS != 0;
        if has_digits {
            self.ascii |= DIGITS;
        }
        for (all, hex) in [(LOWER, HEX_LOWER), (UPPER, HEX_UPPER)] {
            let seen = self.ascii & all;
            if has_digits && seen != 0 && seen & !hex == 0 {
                self.ascii |= hex;
            }
        }
        self
    }

    fn count(self) -> u32 {
        let beyond = self.beyond.map_or(0, |(low, high)| high - low + 1);
        self.ascii.count_ones() + beyond
    }

    /// Returns the number of letters before this one.
    fn rank(self, letter: char) -> u32 {
        let code = u32::from(letter);
        if code < 128 {
            return (self.ascii & ((1 << code) - 1)).count_ones();
        }
        let above = self.beyond.map_or(0, |(low, _)| code.saturating_sub(low));
        self.ascii.count_ones() + above
    }

    /// Returns the letter with so many before it.
    fn nth(self, rank: u32) -> Option<char> {
        if rank >= self.count() {
            return None;
        }
        let mut left = self.ascii;
        let ascii = left.count_ones();
        if rank < ascii {
            for _ in 0..rank {
                left &= left - 1;
            }
            return char::from_u32(left.trailing_zeros());
        }
        let (low, _) = self.beyond?;
        char::from_u32(low + rank - ascii)
    }
}

/// Letters seen at one place.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    letters: Letters,
    /// True if keys went on to others after the last of them: no more will come.
    closed: bool,
}

/// Place in a key: the level of the directory and the letter of its name, so that names before it
/// may have any length. The letter before it distinguishes words from numbers; `None` stands for
/// any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Place {
    level: u16,
    offset: u16,
    before: Option<char>,
}

impl Place {
    fn behind(self, letter: char) -> Self {
        let (level, offset) = match letter {
            '/' => (self.level.saturating_add(1), 0),
            _ => (self.level, self.offset.saturating_add(1)),
        };
        Self {
            level,
            offset,
            before: Some(letter),
        }
    }

    fn behind_all(letters: impl Iterator<Item = char>) -> Self {
        letters.fold(Self::default(), Self::behind)
    }

    fn whatever_before(self) -> Self {
        Self {
            before: None,
            ..self
        }
    }
}

/// Letters of keys.
#[derive(Debug, Default)]
pub(super) struct Alphabet {
    seen: HashMap<Place, Seen>,
}

impl Alphabet {
    /// Learns from a key after `before`, with which it shares a prefix.
    pub(super) fn learn(&mut self, before: &str, key: &str) {
        let shared = common(before, key);
        let mut place = Place::behind_all(key.chars().take(shared));
        for letter in key.chars().skip(shared) {
            for place in [place, place.whatever_before()] {
                if self.seen.len() < PLACES_MAX || self.seen.contains_key(&place) {
                    self.seen.entry(place).or_default().letters.add(letter);
                }
            }
            place = place.behind(letter);
        }
        self.close(before, key);
    }

    /// Learns that nothing lies between a key and a later place.
    pub(super) fn close(&mut self, last: &str, end: &str) {
        let shared = common(last, end);
        let mut place = Place::behind_all(last.chars().take(shared));
        for letter in last.chars().skip(shared) {
            place = place.behind(letter);
            if let Some(seen) = self.seen.get_mut(&place) {
                seen.closed = true;
            }
        }
    }

    /// Returns the letters that may stand at a place.
    fn letters(&self, place: Place) -> Letters {
        match self.seen.get(&place) {
            Some(seen) if seen.closed => seen.letters,
            Some(seen) => seen.letters.likely(),
            None => {
                let seen = self.seen.get(&place.whatever_before());
                seen.copied().unwrap_or_default().letters.likely()
            }
        }
    }

    /// Returns a key about in the middle between two others, as short as possible: a quarter of the
    /// distance to either side is near enough.
    pub(super) fn between(&self, low: &str, high: &str) -> Option<String> {
        let scale = Scale::new(self, low, high);
        let (x, y) = (scale.fraction(low), scale.fraction(high));
        let quarter = (y - x) / 4.0;
        if quarter <= 0.0 {
            return None;
        }
        let middle = x + 2.0 * quarter;
        let (mut value, mut unit) = (0.0, 1.0);
        let mut point: String = low.chars().take(scale.common).collect();
        let (mut place, mut letters) = (scale.place, scale.first);
        for _ in 0..DEPTH {
            unit /= f64::from(letters.count().max(1));
            let rank = whole((middle - value) / unit).min(letters.count().saturating_sub(1));
            for rank in [rank, rank + 1] {
                let there = value + f64::from(rank) * unit;
                if (there - middle).abs() <= quarter
                    && let Some(letter) = letters.nth(rank)
                {
                    let guess = format!("{point}{letter}");
                    if *low < *guess && *guess < *high {
                        return Some(guess);
                    }
                }
            }
            value += f64::from(rank) * unit;
            let letter = letters.nth(rank)?;
            point.push(letter);
            place = place.behind(letter);
            letters = self.letters(place);
        }
        None
    }

    /// Returns the share of the way from `first` to `end` that lies behind `here`: 0 to 1.
    pub(super) fn share(&self, first: &str, here: &str, end: &str) -> f64 {
        let scale = Scale::new(self, first, end);
        let (from, to) = (scale.fraction(first), scale.fraction(end));
        if to <= from {
            return 1.0;
        }
        ((scale.fraction(here) - from) / (to - from)).clamp(0.0, 1.0)
    }

    /// Returns a key after the given one: it shares a prefix and advances `steps` likely letters at
    /// `place`, or past all likely ones.
    pub(super) fn ahead(&self, key: &str, place: usize, steps: usize) -> Option<String> {
        let letter = key.chars().nth(place)?;
        let letters = self.letters_in(key, place).with(Some(letter));
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let common: String = key.chars().take(place).collect();
        let known = letters.nth(letters.rank(letter).saturating_add(steps));
        let letter = known.or_else(|| {
            let last = letters.nth(letters.count() - 1)?;
            let beyond = u32::from(letter).saturating_add(steps);
            char::from_u32(beyond.max(u32::from(last) + 1))
        })?;
        Some(format!("{common}{letter}"))
    }

    fn letters_in(&self, key: &str, place: usize) -> Letters {
        self.letters(Place::behind_all(key.chars().take(place)))
    }

    /// Returns whether letters after the key's are expected at one of its places.
    pub(super) fn is_live(&self, key: &str, place: usize) -> bool {
        let Some(letter) = key.chars().nth(place) else {
            return false;
        };
        let letters = self.letters_in(key, place).with(Some(letter));
        letters.rank(letter) + 1 < letters.count()
    }
}

/// Rounds down; nothing is below zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions from doubles saturate, and ranks are far below the limit"
)]
fn whole(number: f64) -> u32 {
    number as u32
}

/// Places at which keys between two others differ.
struct Scale<'a> {
    alphabet: &'a Alphabet,
    /// Number of letters that both share at the start.
    common: usize,
    /// First place where they differ, and its letters with both of theirs.
    place: Place,
    first: Letters,
}

impl<'a> Scale<'a> {
    fn new(alphabet: &'a Alphabet, low: &str, high: &str) -> Self {
        let common = common(low, high);
        let place = Place::behind_all(low.chars().take(common));
        let letters = alphabet.letters(place);
        Self {
            alphabet,
            common,
            place,
            first: letters
                .with(low.chars().nth(common))
                .with(high.chars().nth(common)),
        }
    }

    /// Returns the key as a number from 0 to 1.
    fn fraction(&self, key: &str) -> f64 {
        let (mut value, mut unit) = (0.0, 1.0);
        let (mut place, mut letters) = (self.place, self.first);
        for letter in key.chars().skip(self.common).take(DEPTH) {
            letters.add(letter);
            unit /= f64::from(letters.count());
            value += f64::from(letters.rank(letter)) * unit;
            place = place.behind(letter);
            letters = self.alphabet.letters(place);
        }
        value
    }
}

/// Returns the number of letters that two keys share at the start.
pub(super) fn common(one: &str, other: &str) -> usize {
    one.chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other)
        .count()
}

/// Returns the first key after all that share the letters of `key` up to and including `place`.
pub(super) fn after_block(key: &str, place: usize) -> Option<String> {
    let mut point: String = key.chars().take(place).collect();
    let letter = u32::from(key.chars().nth(place)?);
    // The gap in the middle of the code points holds no letters.
    let next = char::from_u32(letter + 1).or_else(|| char::from_u32(0xe000))?;
    if u32::from(next) <= letter {
        return None;
    }
    point.push(next);
    Some(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alphabet<'a>(keys: impl IntoIterator<Item = &'a str>) -> Alphabet {
        let mut alphabet = Alphabet::default();
        let mut before = "";
        for key in keys {
            alphabet.learn(before, key);
            before = key;
        }
        alphabet
    }

    #[test]
    fn the_middle_of_numbers_is_a_number() {
        let alphabet = alphabet(["img-0000000", "img-0000999"]);
        let middle = |low, high| alphabet.between(low, high);
        assert_eq!(
            middle("img-0000999", "img-0100000").as_deref(),
            Some("img-005")
        );
        assert_eq!(
            middle("img-0012999", "img-0019999").as_deref(),
            Some("img-0016")
        );
        assert_eq!(middle("img-2", "img-2"), None);
    }

    #[test]
    fn the_middle_of_hashes_and_words_is_between_them() {
        let hashes = alphabet(["00a3", "01ff", "0b3c", "a000"]);
        assert_eq!(hashes.between("0b3c", "ffff").as_deref(), Some("8"));
        let far = alphabet(["\u{3b1}", "\u{3c9}"]);
        let middle = far.between("\u{3b1}x", "\u{3c9}").unwrap();
        assert!(*"\u{3b4}" < *middle && *middle < *"\u{3c6}", "{middle}");
    }

    #[test]
    fn what_never_follows_a_letter_is_not_guessed() {
        let keys = ["alpha-out/1", "alpha-raw/1", "alpha-tmp/1", "beta-out/1"];
        let words = alphabet(keys);
        assert_eq!(
            words.between("alpha-out/1", "alphb").as_deref(),
            Some("alpha-r")
        );
        assert!(words.is_live("alpha-out/1", 6) && !words.is_live("alpha-tmp/1", 6));
        assert!(!words.is_live("alpha-out/1", 2));
    }

    #[test]
    fn a_share_is_what_lies_behind() {
        let alphabet = alphabet(["k-000", "k-019", "k-350"]);
        let share = alphabet.share("k-000", "k-250", "k-500");
        assert!((share - 0.5).abs() < 0.01, "{share}");
        assert!(alphabet.share("k-000", "k-000", "k-500") < 1e-9);
        assert!((alphabet.share("k-0", "k-0", "k-0") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_block_ends_before_the_next_letter() {
        assert_eq!(after_block("abc", 1).as_deref(), Some("ac"));
        assert_eq!(after_block("a\u{d7ff}", 1).as_deref(), Some("a\u{e000}"));
        assert_eq!(after_block("a\u{10ffff}", 1), None);
        assert_eq!(after_block("abc", 3), None);
    }
}
