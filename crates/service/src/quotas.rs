//! Quotas: how much each user may have open at once, in requests and in bytes to move, and how many
//! depots of their own.
//!
//! Open requests are counted only for users with a quota, and checked again only when one is
//! reached: until then ended ones do no harm.

mod book;
mod depots;

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{Bytes, RequestId};
use serde::Deserialize;
use toml::Spanned;

use crate::{driver::Centre, jobs::is_of_job, outbound::onward, site::Complaint, tokens};
use book::{Book, Open};

/// Most quotas of a file: people write them by hand.
pub(crate) const QUOTAS_MAX: usize = 4096;
/// Name for each user without an own quota.
const EVERYBODY: &str = "*";

/// Quota of one user, or of each user without an own one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    user: String,
    requests: Option<u64>,
    bytes: Option<Bytes>,
    depots: Option<u64>,
}

/// Quota as written in the settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    user: Spanned<String>,
    requests: Option<u64>,
    bytes: Option<Spanned<String>>,
    depots: Option<u64>,
}

impl Written {
    /// Returns its position.
    pub(crate) fn at(&self) -> usize {
        self.user.span().start
    }

    /// Validates the quota.
    ///
    /// # Errors
    /// Invalid settings, with their position.
    pub(crate) fn understand(self) -> std::result::Result<Quota, Complaint> {
        let at = self.at();
        let user = self.user.into_inner();
        if !["", EVERYBODY].contains(&&*user) && !tokens::is_name(&user) {
            let why = format!("`{user:.64}` is neither `*` nor a name: {}", tokens::NAMES);
            return Err((at, why));
        }
        let bytes = self.bytes.map(|bytes| {
            let at = bytes.span().start;
            let read = bytes.as_ref().parse::<Bytes>();
            read.map_err(|error| (at, error.to_string()))
        });
        Ok(Quota {
            user,
            requests: self.requests,
            bytes: bytes.transpose()?,
            depots: self.depots,
        })
    }
}

/// Quotas of users, their open requests, and who is adding a depot.
#[derive(Default)]
pub(crate) struct Quotas {
    books: Mutex<Books>,
    adding: Mutex<BTreeSet<String>>,
}

#[derive(Default)]
struct Books {
    limits: Vec<Quota>,
    /// Open requests; none until the first use.
    book: Option<Book>,
}

/// Room for a request being recorded, which is given back unless it is.
pub(crate) struct Place<'a> {
    quotas: &'a Quotas,
    owner: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(book) = &mut self.quotas.books().book {
            book.of(&self.owner).leave();
        }
    }
}

impl Place<'_> {
    /// Counts the recorded request.
    pub(crate) fn keep(self, record: &RequestRecord) {
        if let Some(book) = &mut self.quotas.books().book {
            book.of(&self.owner).add(record.id, open(record));
        }
    }
}

impl Quotas {
    pub(crate) fn new(limits: &[Quota]) -> Self {
        let quotas = Self::default();
        quotas.limit(limits.to_vec());
        quotas
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the quotas. Open requests stay open.
    pub(crate) fn limit(&self, limits: Vec<Quota>) {
        *self.books() = Books { limits, book: None };
    }

    /// Reserves room for one more request; none if there is no quota. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if its owner's quota is full; the journal's.
    pub(crate) fn reserve<'a>(
        &'a self,
        centre: &Centre,
        record: &RequestRecord,
    ) -> Result<Option<Place<'a>>> {
        // Results of a job are lost unless they leave in time.
        if is_of_job(record) {
            return Ok(None);
        }
        let owner = &record.wishes.owner;
        let mut books = self.books();
        let Some(quota) = limit_of(&books.limits, owner) else {
            return Ok(None);
        };
        let book = fill(&mut books, centre)?;
        let of = book.of(owner);
        if !quota.has_room(of.requests(), of.bytes()) {
            of.sweep(centre)?;
        }
        let (requests, bytes) = (of.requests(), of.bytes());
        if quota.has_room(requests, bytes) {
            of.enter();
            let owner = owner.clone();
            return Ok(Some(Place {
                quotas: self,
                owner,
            }));
        }
        let who = called(owner);
        let cause = match (quota.requests, quota.bytes) {
            (Some(most), _) if requests >= most => {
                format!("{who} has {requests} open requests, and {most} are the most")
            }
            (_, most) => {
                let most = most.unwrap_or_default();
                format!("open requests of {who} have {bytes}, and {most} are the most")
            }
        };
        Err(refused(record, cause))
    }

    /// Checks a request whose scan found its bytes. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if they exceed its owner's quota; the journal's.
    pub(crate) fn weigh(&self, centre: &Centre, record: &RequestRecord, scan: &Scan) -> Result<()> {
        let Scan::Sealed { bytes, .. } = *scan else {
            return Ok(());
        };
        if is_of_job(record) {
            return Ok(());
        }
        let owner = &record.wishes.owner;
        let mut books = self.books();
        let Some(quota) = limit_of(&books.limits, owner) else {
            return Ok(());
        };
        let most = quota.bytes;
        let of = fill(&mut books, centre)?.of(owner);
        // Its own bytes may be known from before a crash.
        of.add(record.id, open(record));
        of.weigh(record.id, Bytes::ZERO);
        let is_too_much = |others: Bytes| {
            most.is_some_and(|most| others.get().saturating_add(bytes.get()) > most.get())
        };
        if is_too_much(of.bytes()) {
            of.sweep(centre)?;
        }
        let others = of.bytes();
        if is_too_much(others) {
            let most = most.unwrap_or_default();
            let who = called(owner);
            let cause = format!(
                "it has {bytes}, and other open requests of {who} {others}; {most} are the most"
            );
            return Err(refused(record, cause));
        }
        of.weigh(record.id, bytes);
        Ok(())
    }

    /// Returns a user's quota and use; none if there is no quota. Blocking.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn shown(&self, centre: &Centre, owner: &str) -> Result<Option<api::Quota>> {
        let mut books = self.books();
        let Some(quota) = limit_of(&books.limits, owner) else {
            return Ok(None);
        };
        let of = fill(&mut books, centre)?.of(owner);
        of.sweep(centre)?;
        Ok(Some(api::Quota {
            requests: of.requests(),
            requests_max: quota.requests,
            bytes: of.bytes().get(),
            bytes_max: quota.bytes.map(Bytes::get),
        }))
    }
}

impl Quota {
    /// Returns whether both are for the same user.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        self.user == other.user
    }

    fn has_room(&self, requests: u64, bytes: Bytes) -> bool {
        let may_more = self.requests.is_none_or(|most| requests < most);
        may_more && self.bytes.is_none_or(|most| bytes < most)
    }
}

/// Returns the quota of a user; none if unlimited. A quota for nobody in particular is not one for
/// everybody.
fn limit_of(limits: &[Quota], owner: &str) -> Option<Quota> {
    let of = |name: &str| limits.iter().find(|quota| quota.user == name);
    let usual = || of(EVERYBODY).filter(|_| !owner.is_empty());
    let found = of(owner).or_else(usual)?;
    (found.requests.is_some() || found.bytes.is_some()).then(|| found.clone())
}

/// Returns the book, filled with all open requests if it was empty.
fn fill<'a>(books: &'a mut Books, centre: &Centre) -> Result<&'a mut Book> {
    if books.book.is_none() {
        let mut book = Book::default();
        for record in centre.store.journal(|journal| journal.requests())? {
            let owner = &record.wishes.owner;
            let counts = !is_of_job(&record) && onward::of(&record).is_none();
            if counts && limit_of(&books.limits, owner).is_some() {
                book.of(owner).add(record.id, open(&record));
            }
        }
        book.sweep(centre)?;
        books.book = Some(book);
    }
    Ok(books.book.get_or_insert_default())
}

fn open(record: &RequestRecord) -> Open {
    Open {
        bytes: match record.scan {
            Some(Scan::Sealed { bytes, .. }) => bytes,
            Some(Scan::Failed { .. }) | None => Bytes::ZERO,
        },
        releases: record.release,
    }
}

fn called(owner: &str) -> &str {
    match owner {
        "" => "nobody in particular",
        owner => owner,
    }
}

fn refused(record: &RequestRecord, cause: String) -> Error {
    let subject = match record.id {
        // The new request has no number yet.
        id if id == RequestId::new(0) => "another request".to_owned(),
        id => id.to_string(),
    };
    Error::new(ErrorKind::Busy, "submit", subject)
        .cause(cause)
        .hint("wait until others have ended, or cancel some; `posthaste whoami` shows the quota")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Quota> {
        crate::site::read_site(text).unwrap().quotas
    }

    #[test]
    fn a_user_has_a_quota_of_their_own_or_that_of_everybody() {
        let limits = read(
            "[[quota]]\nuser = \"*\"\nrequests = 2\nbytes = \"10TB\"\n[[quota]]\nuser = \"olga\"\n\
             [[quota]]\nuser = \"alice\"\nbytes = \"1G\"\n",
        );
        let of = |user: &str| limit_of(&limits, user);
        assert_eq!(of("bob").unwrap().requests, Some(2));
        assert_eq!(of("bob").unwrap().bytes, Some(Bytes::new(10 << 40)));
        assert_eq!(of("alice").unwrap().requests, None);
        // Users without a quota, and requests of nobody in particular.
        assert_eq!((of("olga"), of("")), (None, None));
        let none = read("[[quota]]\nuser = \"\"\nrequests = 0\n");
        assert_eq!(limit_of(&none, "").unwrap().requests, Some(0));
        for wrong in [
            "user = \"a b\"",
            "requests = 1",
            "user = \"a\"\nbytes = \"much\"",
            "user = \"a\"\nrequests = -1",
        ] {
            crate::site::read_site(&format!("[[quota]]\n{wrong}\n")).expect_err(wrong);
        }
        let twice = "[[quota]]\nuser = \"a\"\n[[quota]]\nuser = \"a\"\n";
        crate::site::read_site(twice).unwrap_err();
    }

    #[test]
    fn there_is_room_below_both_limits() {
        let quota = &read("[[quota]]\nuser = \"*\"\nrequests = 2\nbytes = \"1K\"\n")[0];
        assert!(quota.has_room(1, Bytes::new(1023)));
        assert!(!quota.has_room(2, Bytes::ZERO));
        assert!(!quota.has_room(0, Bytes::new(1024)));
    }
}
