//! Chooses the account that touches files: the service's own user, or, if it runs as root for many,
//! the owner of each request.

use std::{path::PathBuf, sync::Arc};

use posthaste_endpoint::{Accounts, Actor, Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;
use rustix::process::geteuid;

use crate::credentials::{Behalf, Credentials};

/// Account for each owner.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    /// Accounts looked up lately; none if everything is done as the service's own user.
    known: Option<Accounts>,
    /// Set if everything is done with root's rights, and nobody has said that token holders may
    /// have these.
    is_root_unsaid: bool,
    /// Credentials that users gave for remote places.
    pub(crate) credentials: Arc<Credentials>,
}

impl Actors {
    /// Returns the actors: owners if requested. A service that runs as root without owners lends
    /// its rights only if that is configured (`as_root`).
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if owners are requested without root.
    pub(crate) fn open(as_owners: bool, as_root: bool) -> Result<Self> {
        if as_owners && !geteuid().is_root() {
            return Err(
                Error::new(ErrorKind::PermissionDenied, "act as", "owners of requests")
                    .cause("only root can")
                    .hint("run the service as root, or leave --as-owners out"),
            );
        }
        Ok(Self {
            known: as_owners.then(Accounts::default),
            is_root_unsaid: geteuid().is_root() && !as_owners && !as_root,
            credentials: Arc::default(),
        })
    }

    /// Returns these actors with the users' credentials.
    pub(crate) fn with(self, credentials: Credentials) -> Self {
        Self {
            credentials: Arc::new(credentials),
            ..self
        }
    }

    /// Refuses to move files with root's rights for a caller that is bound to some directories.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] in that case.
    pub(crate) fn refuse_roots_rights(&self, subject: String, below: &[PathBuf]) -> Result<()> {
        if !self.is_root_unsaid || below.is_empty() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::PermissionDenied, "use", subject);
        Err(error
            .cause("the service runs as root, and would move files below its directories with root's rights")
            .hint("an operator starts it with --as-owners, or with --as-root where root's rights are meant"))
    }

    /// Returns whether files are touched as the owners of requests.
    pub(crate) fn are_owners(&self) -> bool {
        self.known.is_some()
    }

    /// Returns on whose behalf the files of a request are touched. Blocks if the name service is
    /// asked.
    ///
    /// # Errors
    /// Errors of [`Self::owner`].
    pub(crate) fn of(&self, record: &RequestRecord) -> Result<Behalf> {
        self.owner(&record.wishes.owner)
    }

    /// Returns on whose behalf an owner's files are touched.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if there is no owner, or it is root; [`ErrorKind::NotFound`]
    /// if this machine has no account of that name.
    pub(crate) fn owner(&self, name: &str) -> Result<Behalf> {
        let Some(known) = &self.known else {
            return Ok(self.elsewhere(name));
        };
        if name.is_empty() {
            return Err(
                Error::new(ErrorKind::PermissionDenied, "touch files for", "nobody")
                    .cause(
                        "files are touched with the rights of a request's owner, and it has none",
                    )
                    .hint("submit it with a token that has an owner, or name one"),
            );
        }
        Ok(Behalf::new(known.actor(name)?, name, &self.credentials))
    }

    /// Returns on whose behalf a job's requests of this user run: without owner if everything is
    /// done as the service's own user.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] for root; [`ErrorKind::NotFound`] if this machine has no
    /// account of that number.
    pub(crate) fn user(&self, uid: u32) -> Result<Behalf> {
        let Some(known) = &self.known else {
            return Ok(self.elsewhere(""));
        };
        let actor = known.numbered(uid)?;
        let name = actor.name().unwrap_or_default().to_owned();
        Ok(Behalf::new(actor, &name, &self.credentials))
    }

    /// Returns on whose behalf remote files are touched, when no file of this machine is.
    pub(crate) fn elsewhere(&self, name: &str) -> Behalf {
        Behalf::new(Actor::oneself(), name, &self.credentials)
    }
}
