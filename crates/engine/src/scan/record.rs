//! Records of a scan: pages of entries, directories still to list, and the checkpoint.

use posthaste_endpoint::{Entry, FileTime, Kind};
use posthaste_types::{Malformed, Record, record};

/// Bytes, as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Raw(pub Vec<u8>);

impl Record for Raw {
    fn write(&self, out: &mut Vec<u8>) {
        (self.0.len() as u64).write(out);
        out.extend_from_slice(&self.0);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed { expected: "bytes" };
        let length = usize::try_from(u64::read(input)?).map_err(|_| malformed)?;
        let (bytes, rest) = input.split_at_checked(length).ok_or(malformed)?;
        *input = rest;
        Ok(Self(bytes.to_vec()))
    }
}

/// Entries of one directory, or of a tree with paths for names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path of the directory, relative to the scanned root.
    pub directory: Vec<u8>,
    /// Entries in no particular order.
    pub entries: Vec<Entry>,
}

const HAS_MTIME: u8 = 4;
const HAS_STORED: u8 = 8;
const HAS_MODE: u8 = 16;
const HAS_VERSION: u8 = 32;

fn write_time(time: FileTime, out: &mut Vec<u8>) {
    time.secs.write(out);
    time.nanos.write(out);
}

fn read_time(input: &mut &[u8]) -> Result<FileTime, Malformed> {
    Ok(FileTime {
        secs: i64::read(input)?,
        nanos: u32::read(input)?,
    })
}

fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    let kind = match entry.kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Link => 2,
        Kind::Special => 3,
    };
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    out.push(
        kind | flag(entry.mtime.is_some(), HAS_MTIME)
            | flag(entry.stored.is_some(), HAS_STORED)
            | flag(entry.mode.is_some(), HAS_MODE)
            | flag(entry.version.is_some(), HAS_VERSION),
    );
    (entry.name.len() as u64).write(out);
    out.extend_from_slice(&entry.name);
    entry.size.write(out);
    for time in [entry.mtime, entry.stored].into_iter().flatten() {
        write_time(time, out);
    }
    if let Some(mode) = entry.mode {
        mode.write(out);
    }
    if let Some(version) = &entry.version {
        (version.len() as u64).write(out);
        out.extend_from_slice(version.as_bytes());
    }
}

fn read_entry(input: &mut &[u8]) -> Result<Entry, Malformed> {
    let malformed = Malformed { expected: "entry" };
    let (&flags, rest) = input.split_first().ok_or(malformed)?;
    *input = rest;
    let kind = match flags & 3 {
        0 => Kind::File,
        1 => Kind::Directory,
        2 => Kind::Link,
        _ => Kind::Special,
    };
    let has = |flag: u8| flags & flag != 0;
    Ok(Entry {
        name: Raw::read(input)?.0,
        kind,
        size: u64::read(input)?,
        mtime: has(HAS_MTIME).then(|| read_time(input)).transpose()?,
        stored: has(HAS_STORED).then(|| read_time(input)).transpose()?,
        mode: has(HAS_MODE).then(|| u32::read(input)).transpose()?,
        version: match has(HAS_VERSION) {
            true => Some(String::read(input)?.into()),
            false => None,
        },
    })
}

/// Appends a page with its length before it.
pub(super) fn write_page(directory: &[u8], entries: &[Entry], out: &mut Vec<u8>) {
    let mut page = Vec::with_capacity(entries.len() * 48 + directory.len());
    (directory.len() as u64).write(&mut page);
    page.extend_from_slice(directory);
    (entries.len() as u64).write(&mut page);
    for entry in entries {
        write_entry(entry, &mut page);
    }
    (page.len() as u64).write(out);
    out.extend_from_slice(&page);
}

/// Reads a page without its length.
pub(super) fn read_page(mut page: &[u8]) -> Result<Found, Malformed> {
    let input = &mut page;
    let directory = Raw::read(input)?.0;
    let count = u64::read(input)?;
    let entries: Result<Vec<Entry>, Malformed> = (0..count).map(|_| read_entry(input)).collect();
    Ok(Found {
        directory,
        entries: entries?,
    })
}

record! {
    /// Directory that is being listed.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(super) struct Current {
        pub path: Raw,
        /// Position of its listing; `None` if it has to be listed from its start.
        pub mark: Option<Raw>,
    }
}

record! {
    /// Lengths of one pair of files that count, and what is being added to them.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(super) struct Slot {
        /// Bytes of entries.
        pub entries: u64,
        /// Bytes of directories found.
        pub directories: u64,
        /// Bytes of directories that were claimed for listing.
        pub taken: u64,
        pub current: Option<Current>,
    }
}

record! {
    /// Checkpoint with everything a scan needs to continue.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(super) struct Checkpoint {
        pub form: u32,
        /// Address of the scanned tree.
        pub address: Raw,
        pub follow: bool,
        /// The whole tree is listed at once.
        pub whole: bool,
        pub slots: Vec<Slot>,
        /// Directories that were given back.
        pub again: Vec<Current>,
        pub entries: u64,
        pub directories: u64,
        /// Directories that could not be listed, permanently.
        pub failures: u64,
        pub finished: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], kind: Kind) -> Entry {
        Entry {
            name: name.to_vec(),
            kind,
            size: 1 << 40,
            mtime: None,
            stored: None,
            mode: None,
            version: None,
        }
    }

    #[test]
    fn pages_come_back_as_they_were() {
        let time = FileTime {
            secs: -5,
            nanos: 999_999_999,
        };
        let entries = vec![
            entry(b"caf\xe9\n", Kind::Link),
            Entry {
                mtime: Some(time),
                mode: Some(0o7777),
                ..entry(b"", Kind::Directory)
            },
            Entry {
                stored: Some(time),
                version: Some("\"e\"".into()),
                ..entry(b"x", Kind::File)
            },
            entry(b"pipe", Kind::Special),
        ];
        let mut written = Vec::new();
        write_page(b"a/b", &entries, &mut written);
        let mut rest = &written[..];
        let length = u64::read(&mut rest).unwrap();
        assert_eq!(length, rest.len() as u64);
        let found = read_page(rest).unwrap();
        assert_eq!((&*found.directory, found.entries), (&b"a/b"[..], entries));
        for cut in 0..rest.len() {
            assert!(read_page(&rest[..cut]).is_err(), "cut at {cut}");
        }
    }
}
