use std::fmt;

/// Largest edit distance, in letters, between a word and the one that was probably meant.
const NEAR: usize = 2;

/// Error in a directive, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Line of the directive, from 1.
    pub line: usize,
    /// Description of the error, with the word that caused it.
    pub what: String,
    /// Probable intention, or the correct form.
    pub meant: Option<String>,
}

impl Complaint {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> Self {
        Self {
            line,
            what: what.into(),
            meant: None,
        }
    }

    pub(crate) fn meant(mut self, meant: impl Into<String>) -> Self {
        self.meant = Some(meant.into());
        self
    }

    /// Reports an unknown word, with the nearest of the known ones, or all.
    pub(crate) fn unknown(line: usize, word: &str, what: &str, known: &[&str]) -> Self {
        let distance = |other: &&&str| strsim::osa_distance(word, other);
        let nearest = known.iter().min_by_key(distance);
        let complaint = Self::new(line, format!("`{word}` is no {what}"));
        match nearest.filter(|nearest| distance(nearest) <= NEAR) {
            Some(nearest) => complaint.meant(*nearest),
            None => complaint.meant(known.join(", ")),
        }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)?;
        match &self.meant {
            Some(meant) => write!(f, " (write {meant})"),
            None => Ok(()),
        }
    }
}
