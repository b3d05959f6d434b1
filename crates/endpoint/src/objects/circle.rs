//! Finds out when a store's pages come to no end: they come round, or bring nothing any more.

/// Pages in a row that bring nothing: a store may go through millions of names that were removed.
const EMPTY_MAX: u32 = 10_000;

/// The one mark that is kept of those that said where a page goes on: each time that twice as many have come, the newest
/// (Brent's way to find a cycle).
#[derive(Debug, Clone, Default)]
pub(crate) struct Circle {
    kept: Option<String>,
    marks: u64,
    empty: u32,
}

impl Circle {
    /// Whether this mark came before, or too many pages that bring nothing. A circle is found before it was gone round three times.
    pub(crate) fn closes(&mut self, mark: &str, is_empty: bool) -> bool {
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if self.kept.as_deref() == Some(mark) || self.empty > EMPTY_MAX {
            return true;
        }
        self.marks += 1;
        if self.marks.is_power_of_two() {
            self.kept = Some(mark.to_owned());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_any_length_are_found() {
        let found_after = |lead: usize, length: usize| {
            let mut circle = Circle::default();
            let marks = (0..lead).chain((lead..lead + length).cycle());
            let mut marks = marks.map(|mark| mark.to_string());
            marks.position(|mark| circle.closes(&mark, false)).unwrap()
        };
        for length in [1, 2, 3, 100] {
            assert!(found_after(0, length) <= 3 * length, "{length}");
            assert!(found_after(50, length) <= 3 * (50 + length), "{length}");
        }
        let mut straight = Circle::default();
        assert!((0..1_000).all(|mark| !straight.closes(&mark.to_string(), false)));
    }

    #[test]
    fn pages_that_bring_nothing_end_sometime() {
        let mut circle = Circle::default();
        let mut closes = |mark: u32, is_empty| circle.closes(&mark.to_string(), is_empty);
        assert!((0..EMPTY_MAX).all(|mark| !closes(mark, true)));
        assert!(!closes(EMPTY_MAX, false), "something came");
        assert!((EMPTY_MAX + 1..3 * EMPTY_MAX).any(|mark| closes(mark, true)));
    }
}
