//! Finds depots by the names that people use. Depots of an owner are there for that owner alone.

use std::sync::Arc;

use posthaste_endpoint::{Error, ErrorKind, Result, meant, relay::Fingerprint};
use posthaste_journal::{DepotRecord, RequestRecord};

use super::{Depot, Depots};
use crate::{
    enlist,
    tokens::{self, Caller},
};

/// Separator in a depot's name between what its owner called it and the owner.
const OF_OWNER: char = '@';

/// Caller or request that looks for depots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Viewer<'a> {
    /// Operator, who finds all.
    Operator,
    /// Owner, who finds their own and everybody's; empty for nobody in particular.
    Owner(&'a str),
}

impl<'a> Viewer<'a> {
    /// Returns the viewer for the depots of a request.
    pub(crate) fn of(record: &'a RequestRecord) -> Self {
        Self::Owner(&record.wishes.owner)
    }

    /// Returns the viewer for the depots of a new request.
    pub(crate) fn new(owner: Option<&'a str>) -> Self {
        Self::Owner(owner.unwrap_or_default())
    }

    /// Returns whether a depot is there for it.
    pub(crate) fn sees(self, record: &DepotRecord) -> bool {
        match self {
            Self::Operator => true,
            Self::Owner(owner) => record.is_for(owner),
        }
    }

    /// Returns whether what a path or a depot of this name did may be shown to it, also after the
    /// depot was removed.
    pub(crate) fn sees_name(self, name: &str) -> bool {
        match (self, owner_in(name)) {
            (Self::Operator, _) | (_, None) => true,
            (Self::Owner(owner), Some(whose)) => owner == whose,
        }
    }
}

impl Caller {
    /// Returns it as somebody who looks for depots.
    pub(crate) fn viewer(&self) -> Viewer<'_> {
        match self.operates() {
            true => Viewer::Operator,
            false => Viewer::new(self.owner()),
        }
    }
}

/// Returns the name of an owner's depot. No name of everybody's depot is one, nor of other owners'.
pub(crate) fn name_of_owners(name: &str, owner: &str) -> String {
    format!("{name}{OF_OWNER}{owner}")
}

/// Splits the name of an owner's depot into its parts; none for everybody's.
pub(crate) fn split_owner(name: &str) -> Option<(&str, &str)> {
    name.split_once(OF_OWNER)
}

/// Returns the owner that a name has, if it is one of an owner's depot.
fn owner_in(name: &str) -> Option<&str> {
    let (own, owner) = split_owner(name)?;
    (enlist::check_name(own).is_ok() && tokens::is_name(owner)).then_some(owner)
}

impl Depots {
    /// Returns another registered depot that is the same relay, and that requests could use
    /// together with this one: it shows the same key. The key lies beside the relay's data, in its
    /// directory and bucket, so an equal key means the same disk.
    pub(crate) fn twin(&self, record: &DepotRecord) -> Option<Arc<Depot>> {
        let key = |record: &DepotRecord| record.fingerprint.parse::<Fingerprint>().ok();
        let ours = key(record)?;
        let is_twin = |depot: &Arc<Depot>| {
            let is_other = depot.record.name != record.name && key(&depot.record) == Some(ours);
            let owners = (&depot.record.owner, &record.owner);
            is_other && !matches!(owners, (Some(one), Some(other)) if one != other)
        };
        self.all().into_iter().find(is_twin)
    }

    /// Returns the depot of that name, if the request may use it.
    pub(crate) fn of_request(&self, record: &RequestRecord, name: &str) -> Option<Arc<Depot>> {
        self.named_for(Viewer::of(record), name)
    }

    /// Returns the depots that are there for a viewer.
    pub(crate) fn seen_by(&self, viewer: Viewer<'_>) -> Vec<Arc<Depot>> {
        let mut all = self.all();
        all.retain(|depot| viewer.sees(&depot.record));
        all
    }

    /// Returns the depot of that name, if it is there for the viewer.
    pub(crate) fn named_for(&self, viewer: Viewer<'_>, name: &str) -> Option<Arc<Depot>> {
        let named = self.named(name);
        named.filter(|depot| viewer.sees(&depot.record))
    }

    /// Returns the depot of that name or listening address, as documents name it: `host:port`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the name that was probably meant.
    pub(crate) fn known(
        &self,
        viewer: Viewer<'_>,
        operation: &'static str,
        name: &str,
    ) -> Result<Arc<Depot>> {
        let found = self.named_for(viewer, name);
        let found = found.or_else(|| self.listening_at(viewer, name));
        found.ok_or_else(|| self.unknown(viewer, operation, name))
    }

    /// Returns the error for an unknown depot name, with the name that was probably meant.
    pub(crate) fn unknown(&self, viewer: Viewer<'_>, operation: &'static str, name: &str) -> Error {
        let all = self.seen_by(viewer);
        let names = all.iter().map(|depot| &*depot.record.name);
        let hint = "`posthaste depot list` shows them, `posthaste depot add` adds one";
        Error::new(ErrorKind::NotFound, operation, name)
            .cause("no depot of that name is in the books")
            .hint(meant(name, names, hint))
    }

    fn listening_at(&self, viewer: Viewer<'_>, place: &str) -> Option<Arc<Depot>> {
        let is_there = |url: &str| {
            let at = url.strip_prefix("https://").unwrap_or(url);
            at.trim_end_matches('/').eq_ignore_ascii_case(place)
        };
        let mut all = self.seen_by(viewer).into_iter();
        all.find(|depot| is_there(&depot.record.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_to_whom_it_is_shown() {
        let alice = Viewer::Owner("alice");
        for (name, is_shown) in [
            ("campus", true),
            ("campus@alice", true),
            ("campus@bob", false),
            ("campus@alice@example.org", false),
            // Sources are addresses.
            ("sftp://bob@archive/run", true),
            ("bob@archive:run", true),
        ] {
            assert_eq!(alice.sees_name(name), is_shown, "{name}");
            assert!(Viewer::Operator.sees_name(name));
        }
        let whole = name_of_owners("campus", "alice@example.org");
        assert_eq!(split_owner(&whole), Some(("campus", "alice@example.org")));
        assert!(!Viewer::new(None).sees_name(&whole));
    }
}
