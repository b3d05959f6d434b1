//! Jobs of an array that one record of Slurm stands for, as Slurm has not split them off yet.

use std::{iter::StepBy, ops::RangeInclusive};

/// Jobs of an array that a record stands for.
pub(super) struct Places<'a>(&'a str);

impl<'a> Places<'a> {
    /// Reads `1,3-7:2%4`; the number after `%` only bounds how many run at once. Slurm cuts long
    /// lists short (`SLURM_BITSTR_LEN`); the cut item is invalid and left out.
    pub(super) fn read(text: &'a str) -> Self {
        Self(text.split('%').next().unwrap_or_default())
    }

    /// Returns the places of the jobs, up to four thousand million for each span.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.spans().flatten()
    }

    /// Returns the number of jobs, from the lengths of the spans.
    pub(super) fn count(&self) -> usize {
        let lengths = self.spans().map(|span| span.size_hint().0);
        lengths.fold(0, usize::saturating_add)
    }

    fn spans(&self) -> impl Iterator<Item = StepBy<RangeInclusive<u32>>> + use<'a> {
        self.0.split(',').filter_map(span)
    }
}

/// Reads `3`, `3-7` or `3-7:2`; `None` for any other text.
fn span(text: &str) -> Option<StepBy<RangeInclusive<u32>>> {
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    let read = |word: &str| word.parse::<u32>().ok();
    let step = step.parse::<usize>().ok().filter(|step| *step > 0)?;
    Some((read(first)?..=read(last)?).step_by(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_array_stands_for_the_jobs_that_it_names() {
        for (text, wanted) in [
            ("4", vec![4]),
            ("0-2", vec![0, 1, 2]),
            ("1,3-7:2%4", vec![1, 3, 5, 7]),
            ("5-6%1", vec![5, 6]),
            ("1,3,5,...", vec![1, 3, 5]),
            ("1,3,1...", vec![1, 3]),
            ("8-1...", vec![]),
            ("3-1", vec![]),
            ("1-9:0", vec![]),
            ("", vec![]),
            ("0x3", vec![]),
            ("99999999999", vec![]),
        ] {
            let places = Places::read(text);
            assert_eq!(places.iter().collect::<Vec<_>>(), wanted, "{text}");
            assert_eq!(places.count(), wanted.len(), "{text}");
        }
        let many = Places::read("0-4294967295,7-4294967295:2");
        assert_eq!(many.iter().take(3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(many.count(), (1 << 32) + (1 << 31) - 3);
    }
}
