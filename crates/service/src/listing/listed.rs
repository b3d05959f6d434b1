//! Compact listing of a directory: a million entries take little more memory than their names.

use posthaste_endpoint::{Entry, FileTime, Kind};

/// Largest directory that is listed through the service, in entries.
pub(super) const ENTRIES_MAX: usize = 5_000_000;
/// Bytes of an entry besides its name.
const ROW_BYTES: usize = size_of::<Row>();
/// Bytes of a listing besides its entries: itself, its place, and its cache record.
const LISTED_BYTES: usize = 512;
/// Marker for missing permission bits.
const NO_MODE: u16 = u16::MAX;

/// Entries of a directory, by name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    names: Vec<u8>,
    rows: Vec<Row>,
    /// Latest time of any entry, in seconds since the epoch.
    newest_s: Option<i64>,
    /// Index after which no directory follows, so that nobody searches a million files for one.
    directories_end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    size: u64,
    time_s: i64,
    name_start: u32,
    time_ns: u32,
    name_len: u16,
    mode: u16,
    kind: Kind,
    time: Time,
}

/// Encoding of an entry's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Unknown,
    Modified,
    Stored,
}

/// Entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen<'l> {
    pub(crate) name: &'l [u8],
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) mtime: Option<FileTime>,
    pub(crate) stored: Option<FileTime>,
    pub(crate) mode: Option<u32>,
}

/// Listing being built.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    names: Vec<u8>,
    rows: Vec<Row>,
    newest_s: Option<i64>,
}

impl Draft {
    /// Adds an entry; returns whether there was room for it.
    pub(crate) fn push(&mut self, entry: &Entry) -> bool {
        let (Ok(name_start), Ok(name_len)) = (
            u32::try_from(self.names.len()),
            u16::try_from(entry.name.len()),
        ) else {
            return false;
        };
        if self.rows.len() >= ENTRIES_MAX {
            return false;
        }
        let (time, of) = match (entry.mtime, entry.stored) {
            (Some(mtime), _) => (mtime, Time::Modified),
            (None, Some(stored)) => (stored, Time::Stored),
            (None, None) => (FileTime::default(), Time::Unknown),
        };
        if of != Time::Unknown {
            self.newest_s = self.newest_s.max(Some(time.secs));
        }
        self.names.extend_from_slice(&entry.name);
        self.rows.push(Row {
            size: entry.size,
            time_s: time.secs,
            name_start,
            time_ns: time.nanos,
            name_len,
            mode: entry.mode.map_or(NO_MODE, |mode| {
                u16::try_from(mode & 0o7777).unwrap_or(NO_MODE)
            }),
            kind: entry.kind,
            time: of,
        });
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the listing, ordered by name.
    pub(crate) fn finish(self) -> Listed {
        let Self {
            mut names,
            mut rows,
            newest_s,
        } = self;
        let order = |row: &Row| match row.kind {
            Kind::File => 0,
            Kind::Directory => 1,
            Kind::Link => 2,
            Kind::Special => 3,
        };
        rows.sort_unstable_by(|one, other| {
            let by_name = name_of(&names, one).cmp(name_of(&names, other));
            by_name.then_with(|| order(one).cmp(&order(other)))
        });
        names.shrink_to_fit();
        rows.shrink_to_fit();
        let last = rows.iter().rposition(|row| row.kind == Kind::Directory);
        Listed {
            names,
            rows,
            newest_s,
            directories_end: last.map_or(0, |last| last + 1),
        }
    }
}

fn name_of<'n>(names: &'n [u8], row: &Row) -> &'n [u8] {
    let start = usize::try_from(row.name_start).unwrap_or(usize::MAX);
    names
        .get(start..start + usize::from(row.name_len))
        .unwrap_or_default()
}

impl Listed {
    /// Returns its bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.names.capacity() + self.rows.capacity() * ROW_BYTES + LISTED_BYTES
    }

    pub(crate) fn newest_s(&self) -> Option<i64> {
        self.newest_s
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        self.rows.get(at).map(|row| name_of(&self.names, row))
    }

    /// Returns the index of the first entry after this name.
    pub(crate) fn after(&self, name: &[u8]) -> usize {
        self.rows
            .partition_point(|row| name_of(&self.names, row) <= name)
    }

    /// Returns the entries of the page that begins at `start`, and whether more follow. Entries of
    /// one name are on one page, since the next page begins after a name.
    pub(crate) fn page(
        &self,
        start: usize,
        limit: usize,
    ) -> (impl Iterator<Item = Seen<'_>>, bool) {
        let mut end = start.saturating_add(limit).min(self.rows.len());
        while end > start && end < self.rows.len() && self.name(end) == self.name(end - 1) {
            end += 1;
        }
        let rows = self.rows.get(start..end).unwrap_or_default();
        let seen = rows.iter().map(|row| self.seen(row));
        (seen, end < self.rows.len())
    }

    fn seen(&self, row: &Row) -> Seen<'_> {
        let time = FileTime {
            secs: row.time_s,
            nanos: row.time_ns,
        };
        Seen {
            name: name_of(&self.names, row),
            kind: row.kind,
            size: row.size,
            mtime: (row.time == Time::Modified).then_some(time),
            stored: (row.time == Time::Stored).then_some(time),
            mode: (row.mode != NO_MODE).then_some(u32::from(row.mode)),
        }
    }

    /// Returns index and name of the first directory from this index on.
    pub(crate) fn next_directory(&self, start: usize) -> Option<(usize, &[u8])> {
        let rows = self.rows.get(start..self.directories_end)?;
        let at = rows.iter().position(|row| row.kind == Kind::Directory)?;
        Some((start + at, name_of(&self.names, rows.get(at)?)))
    }

    /// Returns the names of the directories from this index on.
    pub(crate) fn directories(&self, start: usize) -> impl Iterator<Item = &[u8]> {
        let rows = self.rows.get(start..self.directories_end);
        let rows = rows.unwrap_or_default().iter();
        let directories = rows.filter(|row| row.kind == Kind::Directory);
        directories.map(|row| name_of(&self.names, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: Kind, size: u64) -> Entry {
        Entry {
            size,
            ..Entry::bare(name.into(), kind)
        }
    }

    fn listed(names: impl IntoIterator<Item = String>) -> Listed {
        let mut draft = Draft::default();
        for name in names {
            assert!(draft.push(&entry(&name, Kind::File, 1)));
        }
        draft.finish()
    }

    #[test]
    fn pages_together_are_the_whole_in_the_order_of_names() {
        let names: Vec<String> = (0..1000).map(|n| format!("{}", n * 7919 % 1000)).collect();
        let listed = listed(names.clone());
        let mut all: Vec<String> = Vec::new();
        let mut start = 0;
        loop {
            let (page, more) = listed.page(start, 37);
            let page = page.map(|seen| String::from_utf8(seen.name.to_vec()).unwrap());
            all.extend(page);
            if !more {
                break;
            }
            start = listed.after(all.last().unwrap().as_bytes());
        }
        let mut sorted = names;
        sorted.sort();
        assert_eq!(all, sorted);
        // A name that has gone is still a valid position.
        let (mut page, _) = listed.page(listed.after(b"1000"), 1);
        assert_eq!(page.next().unwrap().name, b"101");
        assert_eq!(listed.after(b"zzz"), 1000);
        let (page, more) = listed.page(1000, 10);
        assert_eq!((page.count(), more), (0, false));
    }

    #[test]
    fn two_entries_of_one_name_are_on_one_page() {
        let mut draft = Draft::default();
        for (name, kind) in [
            ("b", Kind::Directory),
            ("a", Kind::File),
            ("b", Kind::File),
            ("c", Kind::File),
        ] {
            draft.push(&entry(name, kind, 1));
        }
        let listed = draft.finish();
        let (page, more) = listed.page(0, 2);
        let page: Vec<_> = page.map(|seen| (seen.name, seen.kind)).collect();
        let whole: [(&[u8], Kind); 3] = [
            (b"a", Kind::File),
            (b"b", Kind::File),
            (b"b", Kind::Directory),
        ];
        assert_eq!((&page[..], more), (&whole[..], true));
        assert_eq!(listed.directories(0).collect::<Vec<_>>(), [b"b"]);
    }

    #[test]
    fn a_million_entries_take_little_more_than_their_names() {
        let listed = listed((0..100_000).map(|n| format!("rank-{n:07}.nc")));
        assert!(listed.bytes() < 100_000 * 56, "{}", listed.bytes());
        assert_eq!(ROW_BYTES, 32);
    }

    #[test]
    fn what_is_told_of_an_entry_is_kept() {
        let mut whole = entry("x", Kind::File, 1 << 40);
        let time = FileTime { secs: -5, nanos: 7 };
        whole.mtime = Some(time);
        whole.mode = Some(0o4755);
        let mut stored = entry("y", Kind::File, 0);
        stored.stored = Some(FileTime { secs: 9, nanos: 0 });
        let mut draft = Draft::default();
        assert!(draft.push(&whole) && draft.push(&stored));
        let listed = draft.finish();
        assert_eq!(listed.newest_s(), Some(9));
        let (mut page, _) = listed.page(0, 2);
        let (one, other) = (page.next().unwrap(), page.next().unwrap());
        assert_eq!(
            (one.mtime, one.mode, one.size),
            (Some(time), Some(0o4755), 1 << 40)
        );
        assert_eq!((other.mtime, other.stored), (None, stored.stored));
        let long = entry(&"x".repeat(70_000), Kind::File, 0);
        assert!(!Draft::default().push(&long));
    }
}
