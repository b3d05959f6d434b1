//! What people should know while a copy goes on.

use std::{fmt, sync::Arc};

/// Something to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note<'a> {
    /// Worth a line to everybody.
    Warning(&'a str),
    /// For who wants to know everything.
    Detail(&'a str),
}

type Tell = dyn Fn(Note<'_>) + Send + Sync;

/// Whom to tell; nobody by default.
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
    /// Calls `tell` for each.
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
