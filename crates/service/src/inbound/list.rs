//! Contents of a stage-in: its files, and each file's metadata at each source when it was listed.

use std::ops::Range;

use posthaste_core::contract::{Cut, Holding};
use posthaste_endpoint::{Entry, FileTime, Kind};
use posthaste_engine::draft::Folder;
use posthaste_types::{Bytes, Malformed, Record, SourceId, record};

record! {
    /// File, relative to the directory that the stage-in becomes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct File {
        pub(crate) path: Vec<u8>,
        pub(crate) size: u64,
    }
}

record! {
    /// Metadata of a file as a source reported it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Stamp {
        secs: Option<i64>,
        nanos: u32,
        pub(super) mode: Option<u32>,
        version: Option<String>,
    }
}

impl Stamp {
    /// Stamp without any metadata.
    pub(super) const NONE: Self = Self {
        secs: None,
        nanos: 0,
        mode: None,
        version: None,
    };

    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            secs: entry.mtime.map(|mtime| mtime.secs),
            nanos: entry.mtime.map_or(0, |mtime| mtime.nanos),
            mode: entry.mode,
            version: entry.version.as_deref().map(str::to_owned),
        }
    }

    /// Returns whether another source keeps the same checksum: the MD5 of the file, or that of the
    /// MD5s of the same parts.
    pub(super) fn has_sum_of(&self, other: &Self) -> bool {
        let sum = |stamp: &Self| {
            let version = stamp.version.as_deref()?.trim_matches('"');
            let (digits, count) = version.split_once('-').unwrap_or((version, "1"));
            let is_digits =
                digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let is_sum = is_digits && count.bytes().all(|digit| digit.is_ascii_digit());
            is_sum.then(|| version.to_ascii_lowercase())
        };
        sum(self).is_some_and(|mine| sum(other) == Some(mine))
    }

    /// The version, where it may be the MD5 of the bytes.
    fn digits(&self) -> Option<&str> {
        let digits = self.version.as_deref()?.trim_matches('"');
        let is_one = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then_some(digits)
    }

    pub(super) fn mtime(&self) -> Option<FileTime> {
        let nanos = self.nanos;
        self.secs.map(|secs| FileTime { secs, nanos })
    }
}

record! {
    /// Consecutive files that lie at the same sources.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Run {
        pub(super) files: u64,
        /// Indices of those sources, ascending.
        pub(super) places: Vec<u32>,
    }
}

record! {
    /// Stage-in as it was listed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct List {
        /// Flags of the sources: set for a single file, which has no path there.
        pub(crate) singles: Vec<bool>,
        /// Directories, parents first.
        pub(crate) directories: Vec<Vec<u8>>,
        /// Files by run, ordered by path, which is the order of their bytes.
        pub(crate) files: Vec<File>,
        /// Runs of files at the same sources.
        pub(super) runs: Vec<Run>,
        /// Metadata of each file at each source.
        pub(super) stamps: Vec<Vec<Stamp>>,
        /// Metadata of each directory as its first source reported it, preceded by that of the
        /// root. Empty in a list of a former release.
        pub(super) directory_stamps: Vec<Stamp>,
        /// Large files of several sources of which nothing shows that these hold the same, ascending: each comes from one. None in a list of
        /// a former release.
        pub(super) apart: Vec<u64>,
        /// Directories that no source lets be listed, links and special files: one line each with the reason. None in a list of a former release.
        pub(super) left_out: Vec<String>,
    }
}

/// Piece of a chunk: a range of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the file.
    pub(super) file: usize,
    pub(super) range: Range<u64>,
}

impl List {
    /// Returns the root of the stage-in and all directories below with their attributes, parents
    /// first.
    pub(super) fn folders(&self) -> Vec<Folder<'_>> {
        let paths = [&b""[..]].into_iter();
        let paths = paths.chain(self.directories.iter().map(|path| &path[..]));
        let folders = paths.enumerate().map(|(place, path)| {
            let about = self.directory_stamps.get(place);
            Folder {
                path,
                mode: about.and_then(|about| about.mode),
                mtime: about.and_then(Stamp::mtime),
            }
        });
        folders.collect()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let sizes = self.files.iter().map(|file| Bytes::new(file.size));
        sizes.sum()
    }

    /// Returns the path of a file at one of its sources.
    pub(super) fn path_there(&self, source: usize, file: usize) -> &[u8] {
        if self.singles[source] {
            b""
        } else {
            &self.files[file].path
        }
    }

    /// Returns whether a file comes from one source because nothing shows that several hold the
    /// same.
    pub(super) fn is_apart(&self, file: usize) -> bool {
        self.apart.binary_search(&(file as u64)).is_ok()
    }

    /// Returns a source's stamp of a file; none if the file does not lie there.
    pub(super) fn stamp(&self, source: usize, file: usize) -> Option<&Stamp> {
        let (mut first, mut held) = (0, 0);
        for run in &self.runs {
            let files = usize::try_from(run.files).unwrap_or(usize::MAX);
            let lies_there = run.places.iter().any(|place| *place as usize == source);
            if file < first + files {
                let place = held + (file - first);
                return lies_there.then(|| self.stamps.get(source)?.get(place))?;
            }
            first += files;
            held += if lies_there { files } else { 0 };
        }
        None
    }

    /// Returns whether two of a file's sources list it with possibly different checksums.
    pub(super) fn may_differ(&self, file: usize) -> bool {
        let sources = 0..self.singles.len();
        let stamps = sources.filter_map(|source| self.stamp(source, file));
        let mut digits = stamps.filter_map(Stamp::digits);
        let first = digits.next();
        first.is_some_and(|first| digits.any(|other| !other.eq_ignore_ascii_case(first)))
    }

    /// Returns the metadata of a file at its first source.
    pub(super) fn first_stamp(&self, file: usize) -> Option<&Stamp> {
        (0..self.singles.len()).find_map(|source| self.stamp(source, file))
    }

    /// Returns the index of the largest file at a source; none if it has no file.
    pub(super) fn largest_at(&self, source: usize) -> Option<usize> {
        let runs = 0..self.runs.len();
        let mut lies_there = runs.filter(|run| {
            let mut places = self.runs[*run].places.iter();
            places.any(|place| *place as usize == source)
        });
        let size = |file: &usize| self.files[*file].size;
        let largest = |run| self.files_of(run).max_by_key(size);
        lies_there.by_ref().filter_map(largest).max_by_key(size)
    }

    /// Returns a file's entry at a source; none if it does not lie there.
    pub(super) fn entry(&self, source: usize, file: usize) -> Option<Entry> {
        let (stamp, about) = (self.stamp(source, file)?, &self.files[file]);
        let name = about.path.rsplit(|byte| *byte == b'/').next();
        Some(Entry {
            size: about.size,
            mtime: stamp.mtime(),
            mode: stamp.mode,
            version: stamp.version.as_deref().map(Into::into),
            ..Entry::bare(name.unwrap_or_default().to_vec(), Kind::File)
        })
    }

    /// Returns the indices of a run's files.
    pub(super) fn files_of(&self, run: usize) -> Range<usize> {
        let files = |runs: &[Run]| runs.iter().map(|run| run.files).sum::<u64>();
        let (from, to) = (files(&self.runs[..run]), files(&self.runs[..=run]));
        let place = |file: u64| usize::try_from(file).unwrap_or(usize::MAX);
        place(from)..place(to)
    }

    /// Returns the bytes of each run.
    pub(super) fn sizes(&self) -> Vec<Bytes> {
        let runs = 0..self.runs.len();
        let size = |run| {
            let files = self.files[self.files_of(run)].iter();
            files.map(|file| Bytes::new(file.size)).sum()
        };
        runs.map(size).collect()
    }

    /// Returns how the byte stream is cut into chunks.
    pub(super) fn cut(&self, chunk_size: Bytes) -> Option<Cut> {
        Cut::new(&self.sizes(), chunk_size)
    }

    /// Returns the holdings, by source numbers in source order. Returns nothing if each source
    /// holds all files.
    pub(super) fn holdings(&self, numbers: &[SourceId]) -> Vec<Holding> {
        if self
            .runs
            .iter()
            .all(|run| run.places.len() == numbers.len())
        {
            return Vec::new();
        }
        let runs = self.runs.iter().zip(self.sizes());
        let holding = |(run, bytes): (&Run, Bytes)| {
            let places = run.places.iter();
            let sources = places.filter_map(|place| numbers.get(*place as usize).copied());
            Holding {
                bytes,
                sources: sources.collect(),
            }
        };
        runs.map(holding).collect()
    }

    /// Returns the offset of each file in the byte stream.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let mut at = 0;
        let start = |file: &File| {
            let start = at;
            at += file.size;
            start
        };
        self.files.iter().map(start).collect()
    }

    /// Returns the pieces of a range of that stream; `starts` is the offset of each file.
    pub(super) fn pieces(&self, starts: &[u64], range: Range<u64>) -> Vec<Piece> {
        let first = starts.partition_point(|start| *start <= range.start);
        let mut pieces = Vec::new();
        let files = starts.iter().zip(&self.files).enumerate();
        for (file, (&start, about)) in files.skip(first.saturating_sub(1)) {
            let size = about.size;
            if start >= range.end {
                break;
            }
            let from = range.start.max(start) - start;
            let to = (range.end - start).min(size);
            if from < to {
                pieces.push(Piece {
                    file,
                    range: from..to,
                });
            }
        }
        pieces
    }

    /// Reads a list from the bytes of a file and checks that it is usable.
    pub(crate) fn restore(bytes: &[u8]) -> Result<Self, Malformed> {
        // Of a former release it lacks what came last.
        let mut padded = bytes.to_vec();
        let mut list = Self::from_bytes(bytes);
        for _ in 0..3 {
            if list.is_err() {
                Vec::<u64>::new().write(&mut padded);
                list = Self::from_bytes(&padded);
            }
        }
        let list = list?;
        let sources = list.singles.len();
        let held = |source: usize| -> u64 {
            let runs = list.runs.iter();
            let runs = runs.filter(|run| run.places.iter().any(|place| *place as usize == source));
            runs.map(|run| run.files).fold(0, u64::saturating_add)
        };
        let files = list.runs.iter().map(|run| run.files);
        let files = files.fold(0, u64::saturating_add);
        let is_run = |run: &Run| {
            let is_known = run
                .places
                .last()
                .is_some_and(|last| (*last as usize) < sources);
            is_known && run.places.is_sorted_by(|one, other| one < other)
        };
        let mut singles = list.singles.iter().enumerate();
        let is_sound = list.stamps.len() == sources
            && files == list.files.len() as u64
            && list.runs.len() <= Cut::HOLDINGS_MAX
            && list.runs.iter().all(is_run)
            && list
                .stamps
                .iter()
                .enumerate()
                .all(|(source, stamps)| stamps.len() as u64 == held(source))
            && singles.all(|(source, is_single)| !is_single || held(source) == 1)
            && list.files.iter().all(|file| is_within(&file.path))
            && list.directories.iter().all(|path| is_within(path))
            && list.apart.is_sorted_by(|one, other| one < other)
            && (list.directory_stamps.is_empty()
                || list.directory_stamps.len() == list.directories.len() + 1);
        let expected = "list of a stage-in";
        if is_sound {
            Ok(list)
        } else {
            Err(Malformed { expected })
        }
    }
}

/// Returns whether a path stays below its start.
pub(super) fn is_within(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    names.all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(secs: i64) -> Stamp {
        Stamp {
            secs: Some(secs),
            nanos: 0,
            mode: None,
            version: None,
        }
    }

    /// Returns a list of files of these sizes at one source.
    fn list(sizes: &[u64]) -> List {
        let files = sizes.iter().enumerate().map(|(place, size)| File {
            path: format!("f{place}").into_bytes(),
            size: *size,
        });
        List {
            singles: vec![false],
            directories: Vec::new(),
            files: files.collect(),
            runs: vec![Run {
                files: sizes.len() as u64,
                places: vec![0],
            }],
            stamps: vec![sizes.iter().map(|_| stamp(1)).collect()],
            directory_stamps: Vec::new(),
            apart: Vec::new(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn each_source_says_something_of_what_lies_there_only() {
        let mut list = list(&[10, 20, 30, 40]);
        let run = |files, places: &[u32]| Run {
            files,
            places: places.to_vec(),
        };
        list.singles = vec![false, true];
        list.runs = vec![run(2, &[0]), run(1, &[1]), run(1, &[0])];
        list.stamps = vec![vec![stamp(1), stamp(2), stamp(3)], vec![stamp(9)]];
        assert_eq!(List::restore(&list.to_bytes()), Ok(list.clone()));
        let said = |source, file| list.stamp(source, file).and_then(|stamp| stamp.secs);
        let all: Vec<_> = (0..5).map(|file| [said(0, file), said(1, file)]).collect();
        let expected = [
            [Some(1), None],
            [Some(2), None],
            [None, Some(9)],
            [Some(3), None],
            [None; 2],
        ];
        assert_eq!(all, expected);
        assert_eq!(list.first_stamp(2), Some(&stamp(9)));
        assert!(list.path_there(1, 2).is_empty());
        let holdings = list.holdings(&[SourceId::new(5), SourceId::new(7)]);
        let holdings: Vec<_> = holdings
            .iter()
            .map(|held| (held.bytes.get(), held.sources[0].get()))
            .collect();
        assert_eq!(holdings, [(30, 5), (30, 7), (40, 5)]);
        // No chunk belongs to two runs.
        let cut = list.cut(Bytes::new(25)).unwrap();
        let ranges: Vec<_> = (0..cut.chunks()).map(|chunk| cut.range(chunk)).collect();
        assert_eq!(ranges, [0..25, 25..30, 30..55, 55..60, 60..85, 85..100]);
        for wrong in [run(2, &[2]), run(2, &[]), run(2, &[1, 0]), run(3, &[0])] {
            let mut list = list.clone();
            list.runs[0] = wrong;
            assert!(List::restore(&list.to_bytes()).is_err(), "{:?}", list.runs);
        }
    }

    #[test]
    fn a_chunk_is_cut_into_pieces_of_the_files_it_spans() {
        let list = list(&[10, 0, 5, 20]);
        let starts = list.starts();
        let pieces = |range| -> Vec<(usize, Range<u64>)> {
            let pieces = list.pieces(&starts, range).into_iter();
            pieces.map(|piece| (piece.file, piece.range)).collect()
        };
        assert_eq!(pieces(0..8), [(0, 0..8)]);
        assert_eq!(pieces(8..16), [(0, 8..10), (2, 0..5), (3, 0..1)]);
        assert_eq!(pieces(16..35), [(3, 1..20)]);
        assert_eq!(list.bytes(), Bytes::new(35));
    }

    #[test]
    fn a_list_whose_paths_lead_elsewhere_is_refused() {
        for path in ["../x", "/etc/x", "a//b", "a/./b", ""] {
            let mut list = list(&[1]);
            list.files[0].path = path.into();
            assert!(List::restore(&list.to_bytes()).is_err(), "{path}");
        }
        let list = list(&[1, 2]);
        assert_eq!(List::restore(&list.to_bytes()), Ok(list));
    }
}
