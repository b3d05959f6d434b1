//! Files that stay at a release, and why.

use posthaste_endpoint::{Error, Result};

/// Most files that stay which are named.
const STAYING_NAMED_MAX: usize = 10;

/// Files that stay.
#[derive(Default)]
pub(super) struct Staying {
    /// Why the first stays; of one that may go later before one that won't.
    pub(super) first: Option<Error>,
    /// Names of the others: the first of them.
    named: Vec<String>,
    others: usize,
}

impl Staying {
    pub(super) fn note(&mut self, error: Error) {
        let Some(first) = &mut self.first else {
            self.first = Some(error);
            return;
        };
        let mut other = error;
        if other.is_temporary() && !first.is_temporary() {
            std::mem::swap(first, &mut other);
        }
        self.others += 1;
        if self.named.len() < STAYING_NAMED_MAX {
            self.named.push(other.subject().to_owned());
        }
    }

    /// Returns the error that names them, if there are any.
    pub(super) fn told(self) -> Result<()> {
        let Some(first) = self.first else {
            return Ok(());
        };
        if self.others == 0 {
            return Err(first);
        }
        let (others, named) = (self.others, self.named.join(", "));
        let rest = match others - self.named.len() {
            0 => String::new(),
            unnamed => format!(" and {unnamed} more"),
        };
        let stay = if others == 1 { "stays" } else { "stay" };
        let why = first.cause_text();
        Err(first.cause(format!("{why}; {others} more {stay}: {named}{rest}")))
    }
}
