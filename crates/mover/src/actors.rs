//! Accounts whose rights are used for files. A mover that runs as root assumes those of each
//! request's owner, and lends its own to no service with fewer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use posthaste_endpoint::{Accounts, Actor, Error, ErrorKind, Result};
use rustix::process::geteuid;

/// Accounts whose rights are used for files.
#[derive(Default)]
pub(crate) struct Actors {
    accounts: Arc<Accounts>,
    /// True if the service itself runs as root.
    serves_root: AtomicBool,
}

impl Actors {
    /// Records whether the service has the rights of root.
    pub(crate) fn serve(&self, is_root: bool) {
        self.serves_root.store(is_root, Ordering::Relaxed);
    }

    /// Returns the actor for an owner; without one, the mover's own user.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if that would be root although the service is not, or if
    /// this mover can't act for the owner. Also the errors of looking up the account.
    pub(crate) async fn of(&self, owner: Option<&str>) -> Result<Actor> {
        let is_root = geteuid().is_root();
        let Some(owner) = owner else {
            if is_root && !self.serves_root.load(Ordering::Relaxed) {
                return Err(
                    Error::new(ErrorKind::PermissionDenied, "touch files", "as root")
                        .cause("the service has less rights, and does not say whose to take on")
                        .hint("run the mover as another user, or the service with --as-owners"),
                );
            }
            return Ok(Actor::oneself());
        };
        if !is_root {
            return Err(Error::new(ErrorKind::PermissionDenied, "act for", owner)
                .cause("only a mover that runs as root can act for others")
                .hint("run it as root: it takes on the rights of each owner"));
        }
        let (accounts, name) = (Arc::clone(&self.accounts), owner.to_owned());
        let found = tokio::task::spawn_blocking(move || accounts.actor(&name)).await;
        found.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "look up", "an account").cause(cause.to_string())
        })?
    }
}
