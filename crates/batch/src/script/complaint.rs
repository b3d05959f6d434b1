use std::fmt;

/// How far two words may be apart, letters changed, for one to be meant by the other.
const NEAR: usize = 2;

/// Something wrong in a directive, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, with the word it is about.
    pub what: String,
    /// What was meant, as far as can be told, or how it is written.
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

    /// A word that is none of these; says the nearest of them, or all.
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
