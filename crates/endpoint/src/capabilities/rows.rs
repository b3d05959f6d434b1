//! Capabilities for people and programs: a row for each one.

use posthaste_types::Bytes;
use serde_json::{Map, Value, json};

use super::Capabilities;

/// Value of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Yes or no.
    Can(bool),
    /// Number.
    Count(u64),
    /// Number of bytes; none without a limit, or without the feature.
    Size(Option<u64>),
    /// Step in nanoseconds; none if nothing is kept.
    Step(Option<u32>),
    /// List of names.
    Words(&'static [&'static str]),
    /// Name.
    Word(&'static str),
}

impl Cell {
    /// Formats it for people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Can(true) => "yes".to_owned(),
            Self::Can(false) | Self::Size(None) | Self::Step(None) | Self::Words([]) => {
                "-".to_owned()
            }
            Self::Count(count) => count.to_string(),
            Self::Size(Some(bytes)) => Bytes::new(*bytes).to_string(),
            Self::Step(Some(step_ns)) => match step_ns {
                1_000_000_000.. => format!("{} s", step_ns / 1_000_000_000),
                1_000_000.. => format!("{} ms", step_ns / 1_000_000),
                1_000.. => format!("{} us", step_ns / 1_000),
                _ => format!("{step_ns} ns"),
            },
            Self::Words(words) => words.join(" "),
            Self::Word(word) => (*word).to_owned(),
        }
    }

    /// Formats it for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Can(can) => json!(can),
            Self::Count(count) => json!(count),
            Self::Size(bytes) => json!(bytes),
            Self::Step(step_ns) => json!(step_ns),
            Self::Words(words) => json!(words),
            Self::Word(word) => json!(word),
        }
    }
}

/// Capability, as a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Name for people.
    pub name: &'static str,
    /// Key for programs; ends in its unit.
    pub key: &'static str,
    /// Meaning.
    pub legend: &'static str,
    /// Function that returns its value for an endpoint.
    pub of: fn(&Capabilities) -> Cell,
}

const fn row(
    name: &'static str,
    key: &'static str,
    legend: &'static str,
    of: fn(&Capabilities) -> Cell,
) -> Row {
    Row {
        name,
        key,
        legend,
        of,
    }
}

/// All capabilities.
pub const ROWS: &[Row] = &[
    row("names", "names", "what names may be made of", |can| {
        Cell::Word(match (can.byte_names, can.ascii_names) {
            (true, _) => "bytes",
            (false, true) => "ASCII",
            (false, false) => "UTF-8",
        })
    }),
    row("lists", "lists", "directories can be listed", |can| {
        Cell::Can(can.lists)
    }),
    row(
        "listing marks",
        "listing_marks",
        "a listing that was interrupted goes on where it was",
        |can| Cell::Can(can.listing_marks),
    ),
    row(
        "ranges",
        "ranges",
        "reading can start anywhere in a file, where the server can; else a file is one stream",
        |can| Cell::Can(can.ranges),
    ),
    row("writes", "writes", "files can be written", |can| {
        Cell::Can(can.writes)
    }),
    row("removes", "removes", "files can be removed", |can| {
        Cell::Can(can.removes)
    }),
    row(
        "any order",
        "segments_in_any_order",
        "segments of one file are written at once and in any order (multipart); else one after the other",
        |can| Cell::Can(can.segments_in_any_order),
    ),
    row(
        "resumes",
        "resumes",
        "a killed copy goes on in the middle of a large file",
        |can| Cell::Can(can.resumes),
    ),
    row(
        "open-ended",
        "open_ended",
        "a large file can be begun before its length is known",
        |can| Cell::Can(can.open_ended),
    ),
    row(
        "times",
        "mtime_step_ns",
        "modification times are kept, in steps of this; -: a file's time is when it was stored",
        |can| Cell::Step(can.mtime_step_ns),
    ),
    row(
        "times listed",
        "mtimes_listed",
        "a listing tells modification times; else each file has to be asked",
        |can| Cell::Can(can.mtimes_listed),
    ),
    row("modes", "modes", "permission bits are kept", |can| {
        Cell::Can(can.modes)
    }),
    row("links", "links", "symbolic links are kept", |can| {
        Cell::Can(can.links)
    }),
    row(
        "directories",
        "directories",
        "directories are there by themselves; else they are what names begin with",
        |can| Cell::Can(can.directories),
    ),
    row(
        "their modes",
        "directory_attributes",
        "directories have modes and times of their own",
        |can| Cell::Can(can.directory_attributes),
    ),
    row(
        "server copy",
        "server_copy",
        "the server copies among its own files, and no byte comes here",
        |can| Cell::Can(can.server_copy),
    ),
    row(
        "conditional",
        "conditional_writes",
        "a write can be made to fail when the file is there already or has changed",
        |can| Cell::Can(can.conditional_writes),
    ),
    row(
        "checksums",
        "checksums",
        "checksums the store computes itself, keeps and tells",
        |can| Cell::Words(can.checksums),
    ),
    row(
        "one piece",
        "segment_bytes_min",
        "files up to this size travel in one piece, larger ones in segments of it or more",
        |can| Cell::Size(Some(can.segment_size_min)),
    ),
    row(
        "largest file",
        "file_bytes_max",
        "largest file, where the protocol has a limit",
        |can| Cell::Size(can.file_bytes_max),
    ),
    row(
        "bundles",
        "bundle_bytes_max",
        "small files travel together in requests of up to this size; -: each takes its own",
        |can| Cell::Size(Some(can.bundle_bytes_max).filter(|&bytes| bytes > 0)),
    ),
    row(
        "ahead",
        "requests_ahead_max",
        "small files under way at once in each lane",
        |can| Cell::Count(can.requests_ahead_max.into()),
    ),
    row(
        "held",
        "segments_held",
        "a segment being written is kept in memory until the store has it",
        |can| Cell::Can(can.segments_held),
    ),
];

/// Returns all capabilities of an endpoint, by key.
#[must_use]
pub fn told(can: &Capabilities) -> Map<String, Value> {
    let scheme = ("scheme".to_owned(), json!(can.scheme));
    let cells = ROWS.iter();
    let cells = cells.map(|row| (row.key.to_owned(), (row.of)(can).json()));
    [scheme].into_iter().chain(cells).collect()
}
