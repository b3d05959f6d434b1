//! What a stage-in consists of: its files, and what each of them was at each source when it was looked at.

use std::ops::Range;

use posthaste_endpoint::{Entry, FileTime, Kind};
use posthaste_types::{Bytes, Malformed, Record, record};

record! {
    /// A file, relative to the directory that the stage-in becomes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct File {
        pub(super) path: Vec<u8>,
        pub(super) size: u64,
    }
}

record! {
    /// What a source said of a file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct Stamp {
        secs: Option<i64>,
        nanos: u32,
        pub(super) mode: Option<u32>,
        version: Option<String>,
    }
}

impl Stamp {
    pub(super) fn of(entry: &Entry) -> Self {
        Self {
            secs: entry.mtime.map(|mtime| mtime.secs),
            nanos: entry.mtime.map_or(0, |mtime| mtime.nanos),
            mode: entry.mode,
            version: entry.version.as_deref().map(str::to_owned),
        }
    }

    pub(super) fn mtime(&self) -> Option<FileTime> {
        let nanos = self.nanos;
        self.secs.map(|secs| FileTime { secs, nanos })
    }
}

record! {
    /// A stage-in as it was found.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct List {
        /// Whether the sources are single files: the only file has no path there.
        pub(super) is_file: bool,
        /// Parents before what is in them.
        pub(super) directories: Vec<Vec<u8>>,
        /// In the order of their paths, which is that of their bytes.
        pub(super) files: Vec<File>,
        /// For each source, for each file.
        pub(super) stamps: Vec<Vec<Stamp>>,
    }
}

/// A piece of a chunk: some of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// Place of the file.
    pub(super) file: usize,
    pub(super) range: Range<u64>,
}

impl List {
    pub(super) fn bytes(&self) -> Bytes {
        let sizes = self.files.iter().map(|file| Bytes::new(file.size));
        sizes.sum()
    }

    /// The path of a file at its sources.
    pub(super) fn path_there(&self, file: usize) -> &[u8] {
        if self.is_file {
            b""
        } else {
            &self.files[file].path
        }
    }

    /// The file as it was at a source.
    pub(super) fn entry(&self, source: usize, file: usize) -> Entry {
        let (stamp, about) = (&self.stamps[source][file], &self.files[file]);
        let name = about.path.rsplit(|byte| *byte == b'/').next();
        Entry {
            size: about.size,
            mtime: stamp.mtime(),
            mode: stamp.mode,
            version: stamp.version.as_deref().map(Into::into),
            ..Entry::bare(name.unwrap_or_default().to_vec(), Kind::File)
        }
    }

    /// Where each file begins in the byte stream of all.
    pub(super) fn starts(&self) -> Vec<u64> {
        let mut at = 0;
        let start = |file: &File| {
            let start = at;
            at += file.size;
            start
        };
        self.files.iter().map(start).collect()
    }

    /// The pieces of a range of that stream; `starts` is where each file begins.
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

    /// Whether bytes from a file make a list that can be used.
    pub(super) fn restore(bytes: &[u8]) -> Result<Self, Malformed> {
        let list = Self::from_bytes(bytes)?;
        let files = list.files.len();
        let is_sound = list.stamps.iter().all(|stamps| stamps.len() == files)
            && (!list.is_file || files == 1)
            && list.files.iter().all(|file| is_within(&file.path))
            && list.directories.iter().all(|path| is_within(path));
        let expected = "list of a stage-in";
        if is_sound {
            Ok(list)
        } else {
            Err(Malformed { expected })
        }
    }
}

/// Whether a path leads nowhere but below where it begins.
pub(super) fn is_within(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    names.all(|name| !matches!(name, b"" | b"." | b"..") && !name.contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sizes: &[u64]) -> List {
        let files = sizes.iter().enumerate().map(|(place, size)| File {
            path: format!("f{place}").into_bytes(),
            size: *size,
        });
        List {
            is_file: false,
            directories: Vec::new(),
            files: files.collect(),
            stamps: Vec::new(),
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
