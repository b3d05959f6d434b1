//! Results of the scans of requests' sources.

use posthaste_core::contract::Event;
use posthaste_types::{Bytes, RequestId};

/// Result of the scan of a source.
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
    /// The scan failed: one line for people.
    Failed {
        /// Name of the page under `docs/errors/` that explains it.
        code: String,
        /// Reason.
        error: String,
    },
}

/// Code and reason of a scan that was cancelled.
const CANCELLED: (&str, &str) = ("cancelled", "it was cancelled while its source was scanned");

impl Scan {
    /// Returns the result of a scan whose request was cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        let (code, error) = CANCELLED;
        Self::Failed {
            code: code.to_owned(),
            error: error.to_owned(),
        }
    }

    /// Returns whether the scan was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        matches!(self, Self::Failed { code, error } if (&**code, &**error) == CANCELLED)
    }
}

/// Result of the scan of a request's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scanned {
    /// Number of the request.
    pub request: RequestId,
    /// Result of the scan.
    pub scan: Scan,
    /// List of its files, if it is small enough to be kept here.
    pub list: Option<Vec<u8>>,
    /// Event shown to people if the scan ends the request: the mind gets no input about it.
    pub event: Option<Event>,
}

/// Returns the failure of a scan as it is stored.
pub(super) fn said(code: &str, error: &str) -> String {
    format!("{code}\t{error}")
}

/// Reads the failure of a scan: a code, a tab and the reason. Older journals have only the reason.
pub(super) fn failed(said: &str) -> Scan {
    let is_code = |code: &str| code.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let told = said.split_once('\t').filter(|(code, _)| is_code(code));
    let (code, error) = told.unwrap_or(("other", said));
    Scan::Failed {
        code: code.to_owned(),
        error: error.to_owned(),
    }
}
