//! Detection of listings without an end: pages that repeat, bring one thing again and again, or
//! nothing any more.

/// Most empty pages in a row, or repetitions of a prefix: a store may pass over millions of removed
/// names.
const EMPTY_MAX: u32 = 10_000;

/// Single remembered mark of those at which pages continued, and the last name of its page. It is
/// replaced whenever twice as many have come (Brent's cycle detection).
#[derive(Debug, Clone, Default)]
pub(crate) struct Circle {
    kept: Option<(Vec<u8>, Vec<u8>)>,
    marks: u64,
    empty: u32,
    again: u32,
}

impl Circle {
    /// Returns whether this mark or the last name of the page before it repeats, or too many pages
    /// are empty. A cycle is found within three rounds. A prefix, with its slash, may come with
    /// each page from which others are grouped into it.
    pub(crate) fn closes(&mut self, mark: &[u8], last: Option<&[u8]>) -> bool {
        self.empty = if last.is_none() { self.empty + 1 } else { 0 };
        let last = last.unwrap_or_default();
        if let Some((mark_then, last_then)) = &self.kept {
            let is_again = !last.is_empty() && last_then == last;
            self.again += u32::from(is_again);
            let is_object = !last.ends_with(b"/");
            if (!mark.is_empty() && mark_then == mark) || (is_again && is_object) {
                return true;
            }
        }
        self.marks += 1;
        if self.marks.is_power_of_two() {
            self.kept = Some((mark.to_vec(), last.to_vec()));
        }
        self.empty.max(self.again) > EMPTY_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_any_length_are_found() {
        let found_after = |lead: usize, length: usize, of_names: bool| {
            let mut circle = Circle::default();
            let marks = (0..lead).chain((lead..lead + length).cycle());
            let marks = marks.map(|mark| mark.to_string().into_bytes());
            let mut steps = marks.zip(0..);
            let closes = |(mark, new): (Vec<u8>, usize)| match of_names {
                true => circle.closes(new.to_string().as_bytes(), Some(&mark)),
                false => circle.closes(&mark, Some(new.to_string().as_bytes())),
            };
            steps.position(closes).unwrap()
        };
        for (length, of_names) in [1, 2, 3, 100]
            .into_iter()
            .flat_map(|n| [(n, false), (n, true)])
        {
            assert!(found_after(0, length, of_names) <= 3 * length, "{length}");
            assert!(
                found_after(50, length, of_names) <= 3 * (50 + length),
                "{length}"
            );
        }
        let mut straight = Circle::default();
        let mut closes = |mark: String| straight.closes(mark.as_bytes(), Some(mark.as_bytes()));
        assert!((0..1_000).all(|mark| !closes(mark.to_string())));
        let mut rolled = Circle::default();
        let mut closes = |mark: u32| rolled.closes(mark.to_string().as_bytes(), Some(b"d/"));
        assert!((0..EMPTY_MAX).all(|mark| !closes(mark)));
        assert!((EMPTY_MAX..3 * EMPTY_MAX).any(closes));
    }

    #[test]
    fn pages_that_bring_nothing_end_sometime() {
        let mut circle = Circle::default();
        let mut closes = |mark: u32, last| circle.closes(mark.to_string().as_bytes(), last);
        assert!((0..EMPTY_MAX).all(|mark| !closes(mark, None)));
        assert!(!closes(EMPTY_MAX, Some(b"a")), "something came");
        assert!((EMPTY_MAX + 1..3 * EMPTY_MAX).any(|mark| closes(mark, None)));
    }
}
