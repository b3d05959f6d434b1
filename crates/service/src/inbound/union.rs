//! Combines the contents of several sources.
//!
//! Files of equal path and size are the same file at every source. The byte stream begins with the
//! files at one source, then those at two, and so on. Each set of sources has a run, cut into
//! chunks of its own. So a chunk never mixes files of different sets, and every source of a chunk
//! has all of it.

use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::Cut;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};

use super::{
    list::{File, List, Run, Stamp},
    look::Held,
    submit::SOURCES_MAX,
};

/// Runs that keep all their sources. Files of smaller runs count for their first source only: with
/// the files that lie there alone they make one more run for each source.
const RUNS_KEPT: usize = Cut::HOLDINGS_MAX - SOURCES_MAX;

/// Set of sources: a bit for each index.
type Places = u32;

/// File with all its sources.
struct Found {
    file: File,
    places: Places,
    /// Metadata that each source reported, by source place.
    stamps: Vec<(usize, Stamp)>,
}

/// Combines the contents of these sources, each named by an address.
///
/// # Errors
/// [`ErrorKind::Conflict`] if two of them differ.
pub(super) fn union(addresses: &[String], held: Vec<Held>) -> Result<List> {
    let singles: Vec<bool> = held.iter().map(|held| held.is_single).collect();
    let mut directories = BTreeMap::new();
    let mut all: Vec<(usize, File, Stamp)> = Vec::new();
    let root = held.first().map_or(Stamp::NONE, |held| held.root.clone());
    for (place, held) in held.into_iter().enumerate() {
        for (path, stamp) in held.directories {
            directories.entry(path).or_insert((place, stamp));
        }
        let files = held.files.into_iter();
        all.extend(files.map(|(file, stamp)| (place, file, stamp)));
    }
    all.sort_by(|(one, left, _), (other, right, _)| (&left.path, one).cmp(&(&right.path, other)));
    let mut found: Vec<Found> = Vec::new();
    for (place, file, stamp) in all {
        let shown = show(&file.path);
        if let Some((other, _)) = directories.get(&file.path) {
            let what = format!("{shown} is a directory at one and a file at the other");
            return Err(differs(&addresses[*other], &addresses[place], &what));
        }
        match found.last_mut() {
            Some(known) if known.file.path == file.path => {
                let first = known.stamps[0].0;
                if known.file.size != file.size {
                    let sizes = (known.file.size, file.size);
                    let what = format!(
                        "{shown} has {} bytes at one and {} at the other",
                        sizes.0, sizes.1
                    );
                    return Err(differs(&addresses[first], &addresses[place], &what));
                }
                known.places |= 1 << place;
                known.stamps.push((place, stamp));
            }
            _ => found.push(Found {
                file,
                places: 1 << place,
                stamps: vec![(place, stamp)],
            }),
        }
    }
    let (paths, stamps): (Vec<_>, Vec<_>) = directories.into_iter().unzip();
    let stamps = stamps.into_iter().map(|(_, stamp)| stamp);
    Ok(List {
        directory_stamps: [root].into_iter().chain(stamps).collect(),
        ..in_runs(singles, paths, found)
    })
}

/// Groups files that lie at the same sources.
fn in_runs(singles: Vec<bool>, directories: Vec<Vec<u8>>, mut found: Vec<Found>) -> List {
    keep_largest(&mut found);
    // The sort is stable: within a run files stay ordered by path.
    found.sort_by_key(|found| {
        let first = std::cmp::Reverse(found.places.reverse_bits());
        (found.places.count_ones(), first)
    });
    let mut list = List {
        stamps: singles.iter().map(|_| Vec::new()).collect(),
        singles,
        directories,
        directory_stamps: Vec::new(),
        apart: Vec::new(),
        left_out: Vec::new(),
        files: Vec::with_capacity(found.len()),
        runs: Vec::new(),
    };
    let mut last: Option<Places> = None;
    for found in found {
        if last != Some(found.places) {
            last = Some(found.places);
            let places = (0..Places::BITS).filter(|place| found.places >> place & 1 == 1);
            list.runs.push(Run {
                files: 0,
                places: places.collect(),
            });
        }
        if let Some(run) = list.runs.last_mut() {
            run.files += 1;
        }
        list.files.push(found.file);
        for (place, stamp) in found.stamps {
            list.stamps[place].push(stamp);
        }
    }
    list
}

/// Drops replicas if there are too many sets of sources to keep apart.
fn keep_largest(found: &mut [Found]) {
    let mut bytes: BTreeMap<Places, u64> = BTreeMap::new();
    for found in found.iter() {
        let known = bytes.entry(found.places).or_default();
        *known = known.saturating_add(found.file.size);
    }
    let mut sets: Vec<(u64, Places)> = bytes
        .into_iter()
        .map(|(places, bytes)| (bytes, places))
        .collect();
    sets.sort_unstable();
    let over = sets.len().saturating_sub(RUNS_KEPT);
    let thin: BTreeSet<Places> = sets[..over].iter().map(|(_, places)| *places).collect();
    for found in found
        .iter_mut()
        .filter(|found| thin.contains(&found.places))
    {
        found.places = 1 << found.places.trailing_zeros();
        found.stamps.truncate(1);
    }
}

/// Returns the error for two sources that differ where they should be equal.
pub(super) fn differs(one: &str, other: &str, what: &str) -> Error {
    Error::new(ErrorKind::Conflict, "stage in from", other)
        .cause(format!("it does not hold what {one} holds: {what}"))
        .hint("name sources whose files of one path are the same, or one of them alone")
        .at(Locus::Source)
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use posthaste_endpoint::{Entry, Kind};
    use posthaste_types::{Bytes, Record};

    use super::*;

    fn held(files: &[(&str, u64)]) -> Held {
        let mut files: Vec<(&str, u64)> = files.to_vec();
        files.sort_unstable();
        let file = |(path, size): (&str, u64)| {
            let path = path.as_bytes().to_vec();
            let stamp = Stamp::of(&Entry::bare(path.clone(), Kind::File));
            (File { path, size }, stamp)
        };
        Held {
            is_single: false,
            root: Stamp::NONE,
            directories: Vec::new(),
            files: files.into_iter().map(file).collect(),
            left_out: Vec::new(),
        }
    }

    fn names(sources: usize) -> Vec<String> {
        (0..sources).map(|place| format!("source{place}")).collect()
    }

    #[test]
    fn what_lies_at_fewer_comes_first_and_runs_hold_what_lies_at_the_same() {
        let all = vec![
            held(&[("a", 1), ("b", 2), ("d", 4)]),
            held(&[("b", 2), ("c", 3), ("d", 4)]),
            held(&[("d", 4)]),
        ];
        let list = union(&names(3), all).unwrap();
        let order: Vec<&[u8]> = list.files.iter().map(|file| file.path.as_slice()).collect();
        assert_eq!(order, [b"a", b"c", b"b", b"d"]);
        let runs: Vec<&[u32]> = list.runs.iter().map(|run| run.places.as_slice()).collect();
        assert_eq!(runs, [&[0][..], &[1], &[0, 1], &[0, 1, 2]]);
        assert_eq!(list.sizes(), [1, 3, 2, 4].map(Bytes::new));
        assert_eq!(List::restore(&list.to_bytes()), Ok(list));
    }

    #[test]
    fn sources_that_hold_the_same_make_one_run_in_the_order_of_paths() {
        let tree = [("a/b", 1), ("a", 5), ("c", 0)];
        let list = union(&names(2), vec![held(&tree), held(&tree)]).unwrap();
        assert_eq!(list.runs.len(), 1);
        assert!(list.files.is_sorted_by(|one, other| one.path < other.path));
        assert!(
            list.holdings(&[posthaste_types::SourceId::new(1); 2])
                .is_empty()
        );
    }

    #[test]
    fn a_path_that_is_not_the_same_at_two_is_refused_with_both_named() {
        let other = vec![held(&[("a", 1)]), held(&[("b", 1)]), held(&[("a", 2)])];
        let error = union(&names(3), other).unwrap_err().to_string();
        for said in [
            "source0",
            "source2",
            "a has 1 bytes at one and 2 at the other",
        ] {
            assert!(error.contains(said), "{error}");
        }
        let mut tree = held(&[("a/b", 1)]);
        tree.directories.push((b"a".to_vec(), Stamp::NONE));
        let error = union(&names(2), vec![tree, held(&[("a", 1)])]).unwrap_err();
        assert!(
            error.to_string().contains("a is a directory at one"),
            "{error}"
        );
    }

    #[test]
    fn more_sets_of_sources_than_are_told_apart_lose_replicas_and_no_file() {
        // Each of the 2^9 - 1 sets of nine sources has a file; sets of more sources have larger
        // ones.
        let size = |set: u32| u64::from(set.count_ones()) * 1000 + u64::from(set);
        let path = |set: u32| format!("f{set:04}");
        let all = (0..9).map(|place| {
            let sets = (1u32..512).filter(|set| set >> place & 1 == 1);
            let files: Vec<(String, u64)> = sets.map(|set| (path(set), size(set))).collect();
            let files: Vec<(&str, u64)> = files
                .iter()
                .map(|(path, size)| (path.as_str(), *size))
                .collect();
            held(&files)
        });
        let list = union(&names(9), all.collect()).unwrap();
        assert!(list.runs.len() <= Cut::HOLDINGS_MAX, "{}", list.runs.len());
        assert_eq!(list.files.len(), 511);
        assert_eq!(
            list.bytes(),
            (1..512).map(|set| Bytes::new(size(set))).sum()
        );
        assert!(
            list.runs.last().unwrap().places.len() == 9,
            "the largest keeps all"
        );
        assert_eq!(List::restore(&list.to_bytes()), Ok(list));
    }
}
