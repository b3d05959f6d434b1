//! What was granted, in a file that is whole whenever the process ends.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use jiff::Timestamp as Moment;
use posthaste_endpoint::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::wire::{Asked, Span};

/// A thousand reservations of many pieces and flows each.
const FILE_BYTES_MAX: u64 = 16 << 20;
const VERSION: u32 = 1;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Given when it is written.
    pub version: u32,
    /// The class that was given last.
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

/// Reads what was written last; nothing where nothing ever was.
pub(super) fn read(file: &Path) -> Result<Kept> {
    let shown = || file.display().to_string();
    let failed = |cause| Error::io("read the reservations in", shown(), cause);
    let mut text = Vec::new();
    match File::open(file) {
        Ok(opened) => opened
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(failed)?,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(cause) => return Err(failed(cause)),
    };
    let invalid = |why: String| {
        Error::new(ErrorKind::Invalid, "read the reservations in", shown())
            .cause(why)
            .hint("move it away: then nothing is reserved")
    };
    let kept: Kept = serde_json::from_slice(&text).map_err(|cause| invalid(cause.to_string()))?;
    if kept.version != VERSION {
        return Err(invalid(format!(
            "it is of version {}, not {VERSION}",
            kept.version
        )));
    }
    Ok(kept)
}

/// Writes all of it, and returns when it would survive the machine.
pub(super) fn write(file: &Path, kept: Kept) -> io::Result<()> {
    let text = serde_json::to_vec(&Kept {
        version: VERSION,
        ..kept
    })?;
    let unfinished = file.with_extension("new");
    let mut options = OpenOptions::new();
    let mut out = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    out.write_all(&text)?;
    out.sync_all()?;
    fs::rename(&unfinished, file)?;
    File::open(file.parent().unwrap_or(file))?.sync_all()
}
