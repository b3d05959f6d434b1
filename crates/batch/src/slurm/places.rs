//! Which jobs of an array one record of Slurm stands for, that it has not made jobs of their own yet.

/// The places of the jobs in `1,3-7:2%4`, `most` at most: what is behind the `%` bounds only how many run at once. Slurm cuts
/// long ones short (`SLURM_BITSTR_LEN`): what it cut off makes no sense, and is left out.
pub(super) fn places(text: &str, most: usize) -> impl Iterator<Item = u32> {
    let listed = text.split('%').next().unwrap_or_default();
    listed.split(',').flat_map(span).take(most)
}

/// `3`, `3-7`, `3-7:2`; nothing for what is none of them.
fn span(text: &str) -> impl Iterator<Item = u32> + use<> {
    let (ends, step) = text.split_once(':').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-').unwrap_or((ends, ends));
    let read = |word: &str| word.parse::<u32>().ok();
    let read = read(first).zip(read(last)).zip(step.parse::<usize>().ok());
    let read = read.filter(|(_, step)| *step > 0);
    read.into_iter()
        .flat_map(|((first, last), step)| (first..=last).step_by(step))
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
            assert_eq!(places(text, 9).collect::<Vec<_>>(), wanted, "{text}");
        }
        assert_eq!(places("0-4294967295", 3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
