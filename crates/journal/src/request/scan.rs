//! How looking at a request's source ended.

use posthaste_core::contract::Event;
use posthaste_types::{Bytes, RequestId};

/// How the scan of a source ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scan {
    /// The dataset is sealed.
    Sealed {
        /// Size of its byte stream.
        bytes: Bytes,
        /// Entries in its list.
        files: u64,
        /// Size of its chunks.
        chunk_size: Bytes,
    },
    /// It could not be scanned: one line for people.
    Failed {
        /// The page under `docs/errors/` that explains it.
        code: String,
        /// Why.
        error: String,
    },
}

/// Stands for the failure of a scan that somebody ended.
const CANCELLED: (&str, &str) = ("cancelled", "it was cancelled while its source was scanned");

impl Scan {
    /// That of a source that nobody wants scanned any more: its request is cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        let (code, error) = CANCELLED;
        Self::Failed {
            code: code.to_owned(),
            error: error.to_owned(),
        }
    }

    /// Whether somebody ended it.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Failed { code, error } if (&**code, &**error) == CANCELLED)
    }
}

/// What the scan of a request's source brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// The request.
    pub request: RequestId,
    /// How it ended.
    pub scan: Scan,
    /// The list of its files, where that is small enough to be kept here.
    pub list: Option<Vec<u8>>,
    /// What people hear of that, where it ends the request: the mind was not told of it.
    pub event: Option<Event>,
}

/// How a scan failed, as it is kept.
pub(super) fn said(code: &str, error: &str) -> String {
    format!("{code}\t{error}")
}

/// Reads how a scan failed: a code, a tab and why. Journals of before have only why.
pub(super) fn failed(said: &str) -> Scan {
    let is_code = |code: &str| code.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let told = said.split_once('\t').filter(|(code, _)| is_code(code));
    let (code, error) = told.unwrap_or(("other", said));
    Scan::Failed {
        code: code.to_owned(),
        error: error.to_owned(),
    }
}
