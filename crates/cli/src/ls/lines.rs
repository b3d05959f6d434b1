//! Format of a listing: names, columns or JSON, on standard output.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal, Write},
};

use jiff::Timestamp;
use posthaste_endpoint::{Entry, FileTime, Kind, base_name, join};
use posthaste_engine::{copy::Filter, scan::Found};
use serde::Serialize;

use crate::output;

/// Bytes written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Choice of the entries and their format.
#[derive(Debug)]
pub(super) struct Shape {
    pub long: bool,
    pub json: bool,
    pub null: bool,
    pub files_only: bool,
    pub dirs_only: bool,
    pub filter: Filter,
}

/// Standard output, until its reader is gone.
pub(super) struct Lines {
    shape: Shape,
    buffer: Vec<u8>,
    out: io::Stdout,
    /// True on a terminal, which names must not control.
    is_terminal: bool,
    closed: bool,
}

/// Entry in the format of rclone's lsjson.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Shown<'a> {
    path: Cow<'a, str>,
    /// Percent-encoded path, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_encoded: Option<String>,
    name: Cow<'a, str>,
    size: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mod_time: Option<String>,
    is_dir: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_link: bool,
}

impl Lines {
    pub(super) fn new(shape: Shape) -> Self {
        let out = io::stdout();
        Self {
            shape,
            buffer: Vec::with_capacity(BUFFER_BYTES + 4096),
            is_terminal: out.is_terminal(),
            out,
            closed: false,
        }
    }

    /// Returns whether the reader is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn page(&mut self, found: &Found) {
        for entry in &found.entries {
            self.entry(&found.directory, entry);
        }
    }

    pub(super) fn entry(&mut self, directory: &[u8], entry: &Entry) {
        let is_directory = entry.kind == Kind::Directory;
        let left_out = if is_directory {
            self.shape.files_only
        } else {
            self.shape.dirs_only
        };
        if left_out || self.closed {
            return;
        }
        let path = join(directory, &entry.name);
        let filter = &self.shape.filter;
        let passes = if is_directory {
            filter.passes_directory(&path)
        } else {
            filter.passes_file(&path)
        };
        if !passes {
            return;
        }
        if self.shape.json {
            self.json(&path, entry);
        } else {
            self.text(&path, entry);
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn text(&mut self, path: &[u8], entry: &Entry) {
        let is_directory = entry.kind == Kind::Directory;
        if self.shape.long {
            let size = match is_directory {
                true => "-".to_owned(),
                false => entry.size.to_string(),
            };
            let time = time_of(entry).map_or_else(|| "-".to_owned(), |time| show_time(time, false));
            let columns = format!("{size:>15} {time:<20} ");
            self.buffer.extend_from_slice(columns.as_bytes());
        }
        if self.is_terminal && !self.shape.null {
            let shown = String::from_utf8_lossy(path);
            let safe = shown.chars().map(|c| {
                if posthaste_types::is_obeyed(c) {
                    '\u{fffd}'
                } else {
                    c
                }
            });
            let safe: String = safe.collect();
            self.buffer.extend_from_slice(safe.as_bytes());
        } else {
            self.buffer.extend_from_slice(path);
        }
        if is_directory {
            self.buffer.push(b'/');
        }
        self.buffer.push(if self.shape.null { 0 } else { b'\n' });
    }

    fn json(&mut self, path: &[u8], entry: &Entry) {
        let is_dir = entry.kind == Kind::Directory;
        let is_utf8 = std::str::from_utf8(path).is_ok();
        let shown = Shown {
            path: String::from_utf8_lossy(path),
            path_encoded: (!is_utf8).then(|| encoded(path)),
            name: String::from_utf8_lossy(base_name(path)),
            size: match is_dir {
                true => -1,
                false => i64::try_from(entry.size).unwrap_or(i64::MAX),
            },
            mod_time: time_of(entry).map(|time| show_time(time, true)),
            is_dir,
            is_link: entry.kind == Kind::Link,
        };
        // Text and numbers can always be written into memory.
        let _ = serde_json::to_writer(&mut self.buffer, &shown);
        self.buffer.push(b'\n');
    }

    /// Writes the buffer. Once the reader is gone (`| head`), the rest is not shown.
    pub(super) fn flush(&mut self) {
        if self.buffer.is_empty() || self.closed {
            return;
        }
        let mut out = self.out.lock();
        let written = out.write_all(&self.buffer).and_then(|()| out.flush());
        match written {
            Ok(()) => {}
            Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => self.closed = true,
            Err(cause) => output::give_up(&cause),
        }
        self.buffer.clear();
    }
}

/// Returns the modification time, or else the time of storing.
fn time_of(entry: &Entry) -> Option<FileTime> {
    entry.mtime.or(entry.stored)
}

/// Formats a time by RFC 3339 in UTC, with the fraction if it is wanted and there is one.
fn show_time(time: FileTime, fraction: bool) -> String {
    let nanos = if fraction {
        i32::try_from(time.nanos).unwrap_or(0)
    } else {
        0
    };
    match Timestamp::new(time.secs, nanos) {
        Ok(time) => time.to_string(),
        // Far outside of what calendars know.
        Err(_) => "-".to_owned(),
    }
}

/// Percent-encodes all but the usual characters of a path.
fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len() + 8);
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc() {
        let time = FileTime {
            secs: 1_255_369_830,
            nanos: 250_000_000,
        };
        assert_eq!(show_time(time, false), "2009-10-12T17:50:30Z");
        assert_eq!(show_time(time, true), "2009-10-12T17:50:30.25Z");
        let never = FileTime {
            secs: i64::MAX,
            nanos: 0,
        };
        assert_eq!(show_time(never, false), "-");
    }

    #[test]
    fn bytes_that_are_no_text_are_encoded() {
        assert_eq!(encoded(b"a/caf\xe9 %"), "a/caf%E9%20%25");
    }
}
