//! Finds depots by the names that people use.

use std::sync::Arc;

use posthaste_endpoint::{Error, ErrorKind, Result, meant};

use super::{Depot, Depots};

impl Depots {
    /// Returns the depot of that name or listening address, as documents name it: `host:port`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the name that was probably meant.
    pub(crate) fn known(&self, operation: &'static str, name: &str) -> Result<Arc<Depot>> {
        let found = self.named(name).or_else(|| self.listening_at(name));
        found.ok_or_else(|| self.unknown(operation, name))
    }

    /// Returns the error for an unknown depot name, with the name that was probably meant.
    pub(crate) fn unknown(&self, operation: &'static str, name: &str) -> Error {
        let all = self.all();
        let names = all.iter().map(|depot| &*depot.record.name);
        let hint = "`posthaste depot list` shows them, `posthaste depot add` adds one";
        Error::new(ErrorKind::NotFound, operation, name)
            .cause("no depot of that name is in the books")
            .hint(meant(name, names, hint))
    }

    fn listening_at(&self, place: &str) -> Option<Arc<Depot>> {
        let is_there = |url: &str| {
            let at = url.strip_prefix("https://").unwrap_or(url);
            at.trim_end_matches('/').eq_ignore_ascii_case(place)
        };
        let mut all = self.all().into_iter();
        all.find(|depot| is_there(&depot.record.url))
    }
}
