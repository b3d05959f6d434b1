//! Where stage-outs to addresses write: what one wrote another would take for its own, so each place has one at a time.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::RequestId;

use crate::credentials::apart;

/// Places that are taken, by address. Everything below one is taken with it.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<BTreeMap<String, RequestId>>,
}

impl Places {
    /// Sees that all places of a request are free, of those in whose way `is_over` says that nobody stands any more too.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] where another one goes there too.
    pub(super) fn check(
        &self,
        record: &RequestRecord,
        is_over: impl Fn(RequestId) -> bool,
    ) -> Result<()> {
        let mut taken = self.locked();
        for place in places(record) {
            while let Some((other, request)) = overlapping(&taken, &place) {
                if !is_over(request) {
                    return Err(conflict(record, request));
                }
                taken.remove(&other);
            }
        }
        Ok(())
    }

    /// Takes the places of a request.
    pub(crate) fn take(&self, record: &RequestRecord) {
        let mut taken = self.locked();
        taken.extend(places(record).into_iter().map(|place| (place, record.id)));
    }

    /// Gives back the places of a request.
    pub(crate) fn give_back(&self, record: &RequestRecord) {
        let mut taken = self.locked();
        for place in places(record) {
            if taken.get(&place) == Some(&record.id) {
                taken.remove(&place);
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, RequestId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn conflict(record: &RequestRecord, other: RequestId) -> Error {
    let why = format!("{other} goes there too, and is not through");
    Error::new(ErrorKind::Conflict, "stage out to", &record.destination)
        .cause(why)
        .hint("wait for that one, or name another place")
        .at(Locus::Destination)
}

/// What a request writes: everything below these.
fn places(record: &RequestRecord) -> Vec<String> {
    let root = apart(&record.wishes.owner, &record.destination);
    let root = root.trim_end_matches('/');
    if record.only.is_empty() {
        return vec![root.to_owned()];
    }
    let names = record.only.iter();
    names.map(|name| format!("{root}/{name}")).collect()
}

/// A place that is taken and lies at, above or below this one.
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
