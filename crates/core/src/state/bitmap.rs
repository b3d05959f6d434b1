use alloc::{boxed::Box, vec, vec::Vec};
use core::ops::Range;
use posthaste_types::record;

record! {
    /// Set of chunks, one bit each, that gives its lowest and its highest member in amortized
    /// constant time. While all chunks are among the first 64 it allocates nothing.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) enum Bitmap {
        /// Members, as a mask.
        0 = Few { word: u64 },
        1 = Many { words: Box<Words> },
    }
}

record! {
    /// Mask of any length.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Words {
        words: Vec<u64>,
        /// Index below which no word has a bit set.
        hint: u32,
        /// Index from which no word has a bit set.
        end: u32,
        count: u32,
    }
}

impl Bitmap {
    /// Returns a set without members, with room for so many chunks.
    pub(crate) fn empty(chunks: u32) -> Self {
        match words_for(chunks) {
            0 | 1 => Self::Few { word: 0 },
            words => Self::Many {
                words: Box::new(Words {
                    words: vec![0; words],
                    hint: 0,
                    end: 0,
                    count: 0,
                }),
            },
        }
    }

    /// Returns the set of all of so many chunks.
    pub(crate) fn full(chunks: u32) -> Self {
        let last = match chunks % 64 {
            0 => u64::MAX,
            rest => (1 << rest) - 1,
        };
        match words_for(chunks) {
            0 => Self::Few { word: 0 },
            1 => Self::Few { word: last },
            count => {
                let mut words = vec![u64::MAX; count];
                words[count - 1] = last;
                Self::Many {
                    words: Box::new(Words {
                        words,
                        hint: 0,
                        end: chunks.div_ceil(64),
                        count: chunks,
                    }),
                }
            }
        }
    }

    /// Returns whether it has room for exactly this many chunks.
    pub(crate) fn fits(&self, chunks: u32) -> bool {
        match self {
            Self::Few { word } => chunks <= 64 && *word & !u64::MAX.unbounded_shr(64 - chunks) == 0,
            Self::Many { words } => chunks > 64 && words.fits(chunks),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Few { word } => word.count_ones(),
            Self::Many { words } => words.count,
        }
    }

    pub(crate) fn contains(&self, chunk: u32) -> bool {
        match self {
            Self::Few { word } => word.unbounded_shr(chunk) & 1 == 1,
            Self::Many { words } => words.contains(chunk),
        }
    }

    pub(crate) fn insert(&mut self, chunk: u32) {
        match self {
            Self::Few { word } => *word |= 1_u64.unbounded_shl(chunk),
            Self::Many { words } => words.insert(chunk),
        }
    }

    pub(crate) fn remove(&mut self, chunk: u32) {
        match self {
            Self::Few { word } => *word &= !1_u64.unbounded_shl(chunk),
            Self::Many { words } => words.remove(chunk),
        }
    }

    /// Returns the lowest member.
    pub(crate) fn first(&self) -> Option<u32> {
        match self {
            Self::Few { word: 0 } => None,
            Self::Few { word } => Some(word.trailing_zeros()),
            Self::Many { words } => words.first(),
        }
    }

    /// Counts members in a range.
    pub(crate) fn count_within(&self, chunks: Range<u32>) -> u32 {
        let words = match self {
            Self::Few { word } => core::slice::from_ref(word),
            Self::Many { words } => &words.words[..],
        };
        if chunks.is_empty() {
            return 0;
        }
        let (first, last) = (chunks.start / 64, (chunks.end - 1) / 64);
        let within = (first..=last).zip(words.iter().skip(first as usize));
        let counts = within.map(|(place, word)| {
            let from = u64::MAX << chunks.start.saturating_sub(place * 64).min(63);
            let until = u64::MAX.unbounded_shr((place * 64 + 64).saturating_sub(chunks.end));
            (word & from & until).count_ones()
        });
        counts.sum()
    }

    /// Returns all members, the lowest first.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        let (words, from) = match self {
            Self::Few { word } => (core::slice::from_ref(word), 0),
            Self::Many { words } => (&words.words[..], words.hint),
        };
        let words = (0u32..).zip(words).skip(from as usize);
        words.flat_map(|(place, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| place * 64 + bit)
        })
    }

    /// Removes and returns the lowest member.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        match self {
            Self::Few { word: 0 } => None,
            Self::Few { word } => {
                let chunk = word.trailing_zeros();
                *word &= *word - 1;
                Some(chunk)
            }
            Self::Many { words } => words.pop(),
        }
    }

    /// Removes and returns the highest member.
    pub(crate) fn pop_last(&mut self) -> Option<u32> {
        match self {
            Self::Few { word: 0 } => None,
            Self::Few { word } => {
                let chunk = 63 - word.leading_zeros();
                *word &= !(1 << chunk);
                Some(chunk)
            }
            Self::Many { words } => words.pop_last(),
        }
    }

    /// Moves all members of `other`, which has room for as many chunks, here.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        match (self, other) {
            (Self::Few { word }, Self::Few { word: more }) => *word |= core::mem::take(more),
            (Self::Many { words }, Self::Many { words: more }) => words.absorb(more),
            // Both belong to one dataset, so their sizes agree.
            (Self::Few { .. }, Self::Many { .. }) | (Self::Many { .. }, Self::Few { .. }) => {}
        }
    }
}

impl Words {
    /// Returns whether it has room for exactly this many chunks.
    fn fits(&self, chunks: u32) -> bool {
        self.words.len() == words_for(chunks)
            && self.end as usize <= self.words.len()
            && self.count == self.words.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    fn contains(&self, chunk: u32) -> bool {
        self.words[chunk as usize / 64] >> (chunk % 64) & 1 == 1
    }

    fn insert(&mut self, chunk: u32) {
        if !self.contains(chunk) {
            self.words[chunk as usize / 64] |= 1 << (chunk % 64);
            self.count += 1;
            self.hint = self.hint.min(chunk / 64);
            self.end = self.end.max(chunk / 64 + 1);
        }
    }

    fn remove(&mut self, chunk: u32) {
        if self.contains(chunk) {
            self.words[chunk as usize / 64] &= !(1 << (chunk % 64));
            self.count -= 1;
        }
    }

    fn first(&self) -> Option<u32> {
        let words = self.words.iter().enumerate().skip(self.hint as usize);
        let (place, word) = words.into_iter().find(|(_, word)| **word != 0)?;
        u32::try_from(place)
            .ok()
            .map(|place| place * 64 + word.trailing_zeros())
    }

    /// Removes and returns the lowest member.
    fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let word = (self.hint as usize..self.words.len()).find(|&word| self.words[word] != 0)?;
        let word_u32 = u32::try_from(word).ok()?;
        self.hint = word_u32;
        let chunk = word_u32 * 64 + self.words[word].trailing_zeros();
        self.remove(chunk);
        Some(chunk)
    }

    /// Removes and returns the highest member.
    fn pop_last(&mut self) -> Option<u32> {
        let words = self.words.get(..self.end as usize)?;
        let word = words.iter().rposition(|&word| word != 0);
        self.end = word.map_or(0, |word| {
            u32::try_from(word).map_or(u32::MAX, |word| word + 1)
        });
        let chunk = self.end.checked_sub(1)? * 64 + 63 - self.words[word?].leading_zeros();
        self.remove(chunk);
        Some(chunk)
    }

    /// Moves all members of `other` here.
    fn absorb(&mut self, other: &mut Self) {
        if other.count == 0 {
            return;
        }
        for (word, more) in self.words.iter_mut().zip(&mut other.words) {
            *word |= core::mem::take(more);
        }
        self.count = self.words.iter().map(|word| word.count_ones()).sum();
        self.end = self.end.max(other.end);
        (self.hint, other.hint, other.end, other.count) = (0, 0, 0, 0);
    }
}

fn words_for(chunks: u32) -> usize {
    chunks.div_ceil(64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bitmap_is_a_sorted_set(
            chunks in 1u32..300,
            moves in proptest::collection::vec((0u8..5, 0u32..300), 0..200),
            full in any::<bool>(),
        ) {
            let mut bitmap = if full { Bitmap::full(chunks) } else { Bitmap::empty(chunks) };
            let mut model: BTreeSet<u32> = if full { (0..chunks).collect() } else { BTreeSet::new() };
            for (kind, chunk) in moves {
                let chunk = chunk % chunks;
                match kind {
                    0 => { bitmap.insert(chunk); model.insert(chunk); }
                    1 => { bitmap.remove(chunk); model.remove(&chunk); }
                    2 => prop_assert_eq!(bitmap.pop(), model.pop_first()),
                    3 => prop_assert_eq!(bitmap.pop_last(), model.pop_last()),
                    _ => {
                        let mut other = Bitmap::empty(chunks);
                        other.insert(chunk);
                        bitmap.absorb(&mut other);
                        model.insert(chunk);
                        prop_assert_eq!(other.len(), 0);
                    }
                }
                prop_assert_eq!(bitmap.len() as usize, model.len());
                let within = chunk / 3..chunk + 1;
                let count = bitmap.count_within(within.clone()) as usize;
                prop_assert_eq!(count, model.range(within).count());
                prop_assert!(bitmap.fits(chunks));
            }
        }
    }
}
