//! Granted reservations in a file that is intact whenever the process ends.

use std::path::Path;

use jiff::Timestamp as Moment;
use posthaste_endpoint::kept::KeptFile;
use serde::{Deserialize, Serialize};

use super::wire::{Asked, Span};

/// Largest file: a thousand reservations of many pieces and flows each.
const FILE_BYTES_MAX: u64 = 16 << 20;
const VERSION: u64 = 1;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Class that was given last.
    pub last_class: u16,
    pub reservations: Vec<KeptOne>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptOne {
    pub number: u64,
    pub class: u16,
    pub device: String,
    pub pieces: Vec<Span>,
    pub held_until: Option<Moment>,
    pub asked: Asked,
}

/// Returns the file of the reservations.
pub(super) fn file(dir: &Path) -> KeptFile {
    KeptFile {
        path: dir.join("reservations.json"),
        version: VERSION,
        bytes_max: FILE_BYTES_MAX,
        operation: "read the reservations in",
        hint: "move it away: then nothing is reserved",
    }
}
