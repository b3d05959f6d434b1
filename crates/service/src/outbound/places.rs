//! Places that exports write to: one export would take the other's files for its own, so each place
//! has one at a time. Nor does one write to what another removes once it is safe: of two that go
//! opposite ways each would take the other's source for its copy, and both would go.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread::Builder,
};

use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::RequestId;

use super::{ahead::LOOK_WITHIN, mounts, submit};
use crate::{
    credentials::{Behalf, apart},
    inbound::look,
};

/// Start of a place that a request empties once its data is safe.
const LEAVING: char = '<';

/// Reserved places, by address. A place includes everything below it.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<BTreeMap<String, RequestId>>,
    /// Requests that reserved places before they had a number.
    claims: AtomicU64,
}

/// Paths on hung file systems, each of which occupies a thread, and their limit.
static STUCK: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
const STUCK_MAX: usize = 64;

/// Upper bound of stand-in numbers, for requests that are about to get theirs.
const NOBODY_MAX: u64 = u64::MAX - 2;

impl Places {
    /// Checks that all of these places are free. Places of requests that have ended by `is_over`
    /// count as free.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another request goes there too.
    pub(super) fn check(
        &self,
        (shown, places): (&str, &[String]),
        is_over: impl Fn(RequestId) -> bool,
    ) -> Result<()> {
        free(&mut self.locked(), (shown, places), is_over)
    }

    /// Reserves the places of a request that `write` records, in the same step as the check that
    /// they are free: of two concurrent requests the second fails. Blocking.
    ///
    /// # Errors
    /// Errors of [`Places::check`] and of `write`.
    pub(super) fn take_for<T>(
        &self,
        (shown, places): (&str, Vec<String>),
        is_over: impl Fn(RequestId) -> bool,
        write: impl FnOnce() -> Result<(T, RequestId)>,
    ) -> Result<T> {
        let nobody = RequestId::new(NOBODY_MAX - self.claims.fetch_add(1, Relaxed));
        {
            let mut taken = self.locked();
            free(&mut taken, (shown, &places), is_over)?;
            taken.extend(places.iter().map(|place| (place.clone(), nobody)));
        }
        // Other requests are recorded meanwhile: one commit for several costs less.
        let written = write();
        match &written {
            Ok((_, id)) => self.take(*id, places),
            Err(_) => self.give_back(nobody),
        }
        written.map(|(written, _)| written)
    }

    /// Reserves the places of a request from before a restart.
    pub(crate) fn take(&self, request: RequestId, places: Vec<String>) {
        let mut taken = self.locked();
        taken.extend(places.into_iter().map(|place| (place, request)));
    }

    /// Frees the places of a request.
    pub(crate) fn give_back(&self, request: RequestId) {
        self.locked().retain(|_, taken| *taken != request);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, RequestId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn free(
    taken: &mut BTreeMap<String, RequestId>,
    (shown, places): (&str, &[String]),
    is_over: impl Fn(RequestId) -> bool,
) -> Result<()> {
    for place in places {
        let looks = match place.strip_prefix(LEAVING) {
            Some(emptied) => vec![(emptied.to_owned(), "goes into what this would remove")],
            None => vec![
                (place.clone(), "goes there too"),
                (
                    format!("{LEAVING}{place}"),
                    "removes what lies there once it is safe",
                ),
            ],
        };
        for (place, does) in looks {
            while let Some((other, request)) = overlapping(taken, &place) {
                if !is_over(request) {
                    return Err(conflict(shown, request, does));
                }
                taken.remove(&other);
            }
        }
    }
    Ok(())
}

fn conflict(shown: &str, other: RequestId, does: &str) -> Error {
    let other = match other.get() > NOBODY_MAX / 2 {
        true => "another request, submitted just now,".to_owned(),
        false => other.to_string(),
    };
    let why = format!("{other} {does}, and is not through");
    Error::new(ErrorKind::Conflict, "stage out to", shown)
        .cause(why)
        .hint("wait for that one, or name another place")
        .at(Locus::Destination)
}

/// Returns the places under which a request writes, and which it empties. A path through symbolic
/// links or a second mount also reserves its target.
pub(crate) fn places(record: &RequestRecord, behalf: &Behalf) -> Vec<String> {
    let real = |path: &Path| {
        let real = seen_soon(behalf, path);
        real.map(|real| format!(" {}", Location::Local(real).spelling()))
    };
    let mut roots = Vec::new();
    if let Ok(Location::Local(path)) = Location::parse(record.destination.as_ref()) {
        roots.extend(real(&path));
    }
    roots.push(spelled(record, Some(behalf)));
    let mut emptied = emptied(record);
    if let Some(path) = released(record) {
        emptied.extend(real(&path).map(|real| format!("{LEAVING}{real}")));
    }
    roots.append(&mut emptied);
    below(record, roots)
}

/// Returns the local source that is removed once it is safe.
fn released(record: &RequestRecord) -> Option<PathBuf> {
    let source = Location::parse(OsStr::from_bytes(&record.source));
    match source {
        Ok(Location::Local(path)) if record.release => Some(path),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the places that a request empties, as they are written.
fn emptied(record: &RequestRecord) -> Vec<String> {
    let released = released(record).into_iter();
    let spelled = |path| format!("{LEAVING} {}", Location::Local(path).spelling());
    released.map(spelled).collect()
}

/// Returns the same places without examining any directory, so that a hung file system delays
/// nobody. The owner may be unknown by now.
pub(crate) fn places_as_written(record: &RequestRecord, behalf: Option<&Behalf>) -> Vec<String> {
    let mut roots = emptied(record);
    roots.push(spelled(record, behalf));
    below(record, roots)
}

/// Returns the destination of a request in one canonical spelling, as far as possible.
fn spelled(record: &RequestRecord, behalf: Option<&Behalf>) -> String {
    let destination = &record.destination;
    let spelled = Location::parse(destination.as_ref()).and_then(|location| match behalf {
        Some(behalf) => look::spelling(location, submit::profile_there(record), behalf),
        None => Ok(format!(" {}", location.spelling())),
    });
    spelled.unwrap_or_else(|_| apart(behalf.map_or("", Behalf::owner), destination))
}

fn below(record: &RequestRecord, mut roots: Vec<String>) -> Vec<String> {
    roots.dedup();
    let names = record.only.iter();
    let names: Vec<String> = match record.only.is_empty() {
        true => vec![String::new()],
        false => names.map(|name| format!("/{name}")).collect(),
    };
    let of_root = |root: String| {
        let below = move |name: &String| format!("{}{name}", root.trim_end_matches('/'));
        names.iter().map(below).collect::<Vec<_>>()
    };
    roots.into_iter().flat_map(of_root).collect()
}

/// Returns [`real_path`], or none if a hung file system is on the way, which counts as no link.
/// Blocking, for a while.
fn seen_soon(behalf: &Behalf, path: &Path) -> Option<PathBuf> {
    let stuck = || STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    {
        let stuck = stuck();
        if stuck.len() >= STUCK_MAX || stuck.contains(path) {
            return None;
        }
    }
    let (told, seen) = sync_channel(0);
    let (actor, looked_at) = (behalf.actor().clone(), path.to_owned());
    let look = move || {
        let real = actor.run(|| Ok(real_path(&looked_at)));
        if told.send(real.ok()).is_err() {
            stuck().remove(&looked_at);
        }
    };
    let looking = Builder::new().name("look".to_owned()).spawn(look);
    let found = looking.map(|_| seen.recv_timeout(LOOK_WITHIN));
    if let Ok(Err(RecvTimeoutError::Timeout)) = found {
        stuck().insert(path.to_owned());
        // The look may have finished just now.
        if let Ok(real) = seen.try_recv() {
            stuck().remove(path);
            return real;
        }
    }
    found.ok()?.ok()?
}

/// Resolves a path whose end does not exist yet. What is mounted in several places has one name.
fn real_path(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(above), path.strip_prefix(above)) {
            return mounts::by_first_mount(&real).join(rest);
        }
    }
    path.to_owned()
}

/// Returns a reserved place at, above or below this one.
fn overlapping(taken: &BTreeMap<String, RequestId>, place: &str) -> Option<(String, RequestId)> {
    let above = place.match_indices('/').map(|(end, _)| &place[..end]);
    for at in above.chain([place]) {
        if let Some(request) = taken.get(at) {
            return Some((at.to_owned(), *request));
        }
    }
    let below = format!("{place}/");
    let (other, request) = taken.range(below.clone()..).next()?;
    other.starts_with(&below).then(|| (other.clone(), *request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_at_once_the_second_finds_it_taken_before_the_first_is_written_down() {
        let taken = Places::default();
        let places = || vec![" s3://b/run".to_owned()];
        let nobody = |_| false;
        let second = || {
            let written = Ok(((), RequestId::new(2)));
            taken.take_for(("there", places()), nobody, || written)
        };
        let first = taken.take_for(("there", places()), nobody, || {
            let error = second().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            let said = "another request, submitted just now, goes there too";
            assert!(error.to_string().contains(said), "{error}");
            Ok(((), RequestId::new(1)))
        });
        first.unwrap();
        let error = second().unwrap_err();
        assert!(error.to_string().contains("r1 goes there too"), "{error}");
        taken.give_back(RequestId::new(1));
        let failed = Err::<((), _), _>(Error::new(ErrorKind::Busy, "write", "it"));
        let first = taken.take_for(("there", places()), nobody, || failed);
        assert!(first.is_err());
        second().unwrap();
    }

    #[test]
    fn nothing_goes_into_what_another_removes_nor_the_other_way_round() {
        let nobody = |_| false;
        let ways = |from: &str, to: &str| vec![format!(" {to}"), format!("{LEAVING} {from}")];
        let reserved = Places::default();
        reserved.take(RequestId::new(1), ways("/a", "/b"));
        for (from, to, why) in [
            ("/b", "/a", "r1 removes what lies there once it is safe"),
            ("/b/x", "/c", "r1 goes into what this would remove"),
            ("/c", "/a/x", "r1 removes what lies there once it is safe"),
            ("/a", "/c", ""),
            ("/c", "/d", ""),
        ] {
            let places = ways(from, to);
            let said = match reserved.check((to, &places), nobody) {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            };
            let is_free = from == "/a" || to == "/d";
            assert_eq!(said.is_empty(), is_free, "{from} to {to}: {said}");
            assert!(said.contains(why), "{from} to {to}: {said}");
        }
    }

    #[test]
    fn a_path_through_a_link_is_where_that_leads() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        std::os::unix::fs::symlink("data", real.join("link")).unwrap();
        let wanted = mounts::by_first_mount(&real).join("data/run/1");
        for path in ["link/run/1", "data/run/1"] {
            assert_eq!(real_path(&real.join(path)), wanted);
        }
    }

    #[test]
    fn a_place_is_taken_with_all_that_lies_below_it() {
        let taken = [("s3://b/run", 1), ("s3://b/run-2/a", 2)];
        let taken: BTreeMap<String, RequestId> = taken
            .map(|(place, id)| (place.to_owned(), RequestId::new(id)))
            .into();
        let found = |place: &str| overlapping(&taken, place).map(|(_, request)| request.get());
        assert_eq!(found("s3://b/run"), Some(1));
        assert_eq!(found("s3://b/run/x/y"), Some(1));
        assert_eq!(found("s3://b"), Some(1));
        assert_eq!(found("s3://b/run-2"), Some(2));
        assert_eq!(found("s3://b/run-2/a"), Some(2));
        for free in ["s3://b/run-2/b", "s3://b/ru", "s3://b/run-20", "s3://c"] {
            assert_eq!(found(free), None, "{free}");
        }
    }
}
