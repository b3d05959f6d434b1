//! Large files of several sources of which nothing shows that these hold the same.
//!
//! Blocks that are read here and there don't find a few bytes that differ. So a large file comes from several sources at once only where
//! all of them keep one checksum or one modification time of it, as rsync takes it for the same; any other comes from one.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use posthaste_endpoint::{Endpoint, FileTime, Result, StoredSum};

use super::{list::List, mixed::CHUNKS_MAX, submit::chunk_size_for, union::differs};

/// Files that are asked for what their listings don't tell, the largest: some seconds where an answer takes a tenth of one.
const ASKED_MAX: usize = 1024;
/// Questions at once, to all sources together.
const ASKED_AT_ONCE: usize = 32;
/// Precision of times in whole seconds.
const SECOND_NS: u32 = 1_000_000_000;

/// Time and checksum that a source reports for a file.
type Told = (Option<FileTime>, Option<StoredSum>);

/// The large files of which nothing shows that their sources hold the same, ascending.
///
/// # Errors
/// [`posthaste_endpoint::ErrorKind::Conflict`] where two stores keep checksums that differ.
pub(super) async fn apart(
    addresses: &[String],
    endpoints: &[Arc<dyn Endpoint>],
    list: &Arc<List>,
) -> Result<Vec<u64>> {
    let steps: Vec<Option<u32>> = endpoints
        .iter()
        .map(|endpoint| endpoint.capabilities().mtime_step_ns)
        .collect();
    let mut found = unsure(list, &steps);
    found.sort_by_key(|file| (Reverse(list.files[*file].size), *file));
    let mut told = ask_all(endpoints, list, &found).await;
    let mut apart = Vec::new();
    for file in &found {
        let file = *file;
        let mut told = told.remove(&file).unwrap_or_default();
        told.sort_unstable_by_key(|(place, _)| *place);
        if let Some((one, other)) = contradiction(&told) {
            let shown = String::from_utf8_lossy(&list.files[file].path);
            let shown = shown.escape_debug();
            let what = format!("{shown}: the checksums that they keep differ");
            return Err(differs(&addresses[one], &addresses[other], &what));
        }
        if !is_one_sum(&told)
            && !is_one_time(told.iter().map(|(place, told)| (*place, told.0)), &steps)
        {
            apart.push(file as u64);
        }
    }
    apart.sort_unstable();
    Ok(apart)
}

/// Asks the sources of the first files for times and checksums; returns them with the sources'
/// places.
async fn ask_all(
    endpoints: &[Arc<dyn Endpoint>],
    list: &Arc<List>,
    files: &[usize],
) -> BTreeMap<usize, Vec<(usize, Told)>> {
    let mut waiting: Vec<(usize, usize)> = Vec::new();
    for file in files.iter().take(ASKED_MAX) {
        waiting.extend(places(list, *file).map(|place| (*file, place)));
    }
    let mut asking = FuturesUnordered::new();
    let mut told: BTreeMap<usize, Vec<(usize, Told)>> = BTreeMap::new();
    loop {
        while asking.len() < ASKED_AT_ONCE
            && let Some((file, place)) = waiting.pop()
        {
            let (endpoint, list) = (Arc::clone(&endpoints[place]), Arc::clone(list));
            asking.push(ask(endpoint, list, place, file));
        }
        let Some((file, place, about)) = asking.next().await else {
            return told;
        };
        told.entry(file).or_default().push((place, about));
    }
}

/// Returns the message about these files for people; none if there are none.
pub(super) fn said(list: &List) -> Option<String> {
    let first = usize::try_from(*list.apart.first()?).ok()?;
    let path = String::from_utf8_lossy(&list.files.get(first)?.path);
    let more = match list.apart.len() - 1 {
        0 => String::new(),
        more => format!(", and so does each of {more} more"),
    };
    Some(format!(
        "{} comes from one source{more}: neither checksums nor modification times show that its sources hold the same (keep times where \
         it is copied, as `posthaste cp` and `rsync -t` do)",
        path.escape_debug()
    ))
}

/// The sources that hold a file.
fn places(list: &List, file: usize) -> impl Iterator<Item = usize> {
    (0..list.singles.len()).filter(move |place| list.stamp(*place, file).is_some())
}

/// Returns the large shared files whose listings don't show that their sources hold the same.
fn unsure(list: &List, steps: &[Option<u32>]) -> Vec<usize> {
    let least = chunk_size_for(list.bytes()).get() * CHUNKS_MAX;
    let shared = (0..list.runs.len()).filter(|run| list.runs[*run].places.len() > 1);
    let large = shared.flat_map(|run| list.files_of(run));
    let large = large.filter(|file| list.files[*file].size > least);
    let is_shown = |file: &usize| {
        let stamps =
            || places(list, *file).filter_map(|place| Some((place, list.stamp(place, *file)?)));
        let mut sums = stamps().map(|(_, stamp)| stamp);
        let first = sums.next();
        first.is_some_and(|first| sums.all(|other| other.has_sum_of(first)))
            || is_one_time(stamps().map(|(place, stamp)| (place, stamp.mtime())), steps)
    };
    large.filter(|file| !is_shown(file)).collect()
}

/// Returns whether all sources report the same time, at the lowest precision among them.
fn is_one_time(
    mut times: impl Iterator<Item = (usize, Option<FileTime>)>,
    steps: &[Option<u32>],
) -> bool {
    let Some((at, Some(first))) = times.next() else {
        return false;
    };
    let step_of = |place: usize, time: FileTime| match time.nanos {
        0 => SECOND_NS.max(steps[place].unwrap_or(0)),
        _ => steps[place].unwrap_or(1),
    };
    times.all(|(place, time)| {
        time.is_some_and(|time| first.agrees(time, step_of(at, first).max(step_of(place, time))))
    })
}

/// Returns whether all sources keep the same checksum.
fn is_one_sum(told: &[(usize, Told)]) -> bool {
    let mut sums = told.iter().map(|(_, (_, sum))| *sum);
    let first = sums.next().flatten();
    first.is_some() && sums.all(|sum| sum == first)
}

/// Returns two sources whose checksums contradict each other.
fn contradiction(told: &[(usize, Told)]) -> Option<(usize, usize)> {
    let sums = || {
        told.iter()
            .filter_map(|(place, (_, sum))| Some((*place, (*sum)?)))
    };
    sums().find_map(|(one, sum)| {
        let (other, _) = sums().find(|(_, other)| sum.contradicts(*other))?;
        Some((one, other))
    })
}

/// Opens a file at a source for its time and checksum; none if it can't be opened.
async fn ask(
    endpoint: Arc<dyn Endpoint>,
    list: Arc<List>,
    place: usize,
    file: usize,
) -> (usize, usize, Told) {
    let Some(entry) = list.entry(place, file) else {
        return (file, place, (None, None));
    };
    let path = list.path_there(place, file);
    let told = match endpoint.open(path, &entry).await {
        Ok(reader) => (reader.entry().mtime.or(entry.mtime), reader.stored_sum()),
        Err(error) => {
            tracing::warn!("time and checksum are not known: {error}");
            (None, None)
        }
    };
    (file, place, told)
}

#[cfg(test)]
mod tests {
    use posthaste_endpoint::Checksum;

    use super::*;

    #[test]
    fn times_are_one_as_exactly_as_the_least_exact_tells_them() {
        let time = |secs, nanos| Some(FileTime { secs, nanos });
        let is_one = |times: &[Option<FileTime>]| {
            let steps = [Some(1), Some(1), Some(2_000_000_000)];
            is_one_time(times.iter().copied().enumerate(), &steps)
        };
        assert!(is_one(&[time(7, 5), time(7, 5)]));
        assert!(!is_one(&[time(7, 5), time(7, 6)]));
        assert!(is_one(&[time(7, 5), time(7, 0)]), "whole seconds at one");
        assert!(!is_one(&[time(7, 0), time(9, 0)]));
        assert!(
            is_one(&[time(7, 0), time(7, 0), time(8, 0)]),
            "two seconds at one"
        );
        assert!(!is_one(&[time(7, 0), None]) && !is_one(&[None, None]));
    }

    #[test]
    fn checksums_are_one_where_all_keep_it_and_none_another() {
        let told = |sums: &[Option<StoredSum>]| -> Vec<(usize, Told)> {
            sums.iter().map(|sum| (None, *sum)).enumerate().collect()
        };
        let sum = |bytes: &[u8]| Some(StoredSum::Crc64(Checksum::of(bytes)));
        let (seven, eight) = (sum(b"7"), sum(b"8"));
        assert!(is_one_sum(&told(&[seven, seven])));
        for other in [&[seven, None][..], &[None, None], &[seven, eight]] {
            assert!(!is_one_sum(&told(other)));
        }
        assert_eq!(contradiction(&told(&[seven, None, eight])), Some((0, 2)));
        assert_eq!(
            contradiction(&told(&[seven, Some(StoredSum::Md5([8; 16]))])),
            None
        );
    }
}
