//! Notices for people during a copy.

use std::{fmt, sync::Arc};

/// Notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note<'a> {
    /// Warning for everybody.
    Warning(&'a str),
    /// Detail for verbose output.
    Detail(&'a str),
}

type Tell = dyn Fn(Note<'_>) + Send + Sync;

/// Receiver of notices; none by default.
#[derive(Clone, Default)]
pub struct Notices {
    tell: Option<Arc<Tell>>,
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

impl Notices {
    /// Creates a receiver that calls `tell` for each notice.
    pub fn new(tell: impl Fn(Note<'_>) + Send + Sync + 'static) -> Self {
        Self {
            tell: Some(Arc::new(tell)),
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        self.tell(Note::Warning(text));
    }

    pub(crate) fn detail(&self, text: &str) {
        self.tell(Note::Detail(text));
    }

    fn tell(&self, note: Note<'_>) {
        if let Some(tell) = &self.tell {
            tell(note);
        }
    }
}
