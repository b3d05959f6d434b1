//! Opens addresses with the credentials people already have.

use std::sync::Arc;

use crate::{
    Endpoint, Location, Result,
    posix::{DraftRules, Posix},
    s3::S3,
    sftp::Sftp,
};

/// What it takes to open an address.
#[derive(Debug, Clone, Default)]
pub struct Access {
    profile: Option<String>,
    ssh_options: Vec<String>,
}

impl Access {
    /// Access with the credentials of `profile`, or of the environment, and options for `ssh`.
    #[must_use]
    pub fn new(profile: Option<String>, ssh_options: Vec<String>) -> Self {
        Self {
            profile,
            ssh_options,
        }
    }

    /// Opens `location`. Files are written by `rules`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`] for an unknown profile;
    /// [`crate::ErrorKind::Unauthenticated`] and [`crate::ErrorKind::Unreachable`] where opening
    /// connects.
    pub async fn open(&self, location: Location, rules: DraftRules) -> Result<Arc<dyn Endpoint>> {
        match location {
            Location::Local(path) => Ok(Arc::new(Posix::new(path, rules))),
            Location::S3 { bucket, key } => {
                Ok(Arc::new(S3::open(&bucket, &key, self.profile.as_deref())?))
            }
            Location::Sftp {
                user,
                host,
                port,
                path,
            } => {
                let host = crate::sftp::Host {
                    user,
                    host,
                    port,
                    options: self.ssh_options.clone(),
                };
                Ok(Arc::new(Sftp::open(host, path, rules).await?))
            }
        }
    }
}
