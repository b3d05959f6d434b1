//! Stored logins, in a file for each service that only its user can read.

use std::{
    fs,
    path::{Path, PathBuf},
};

use posthaste_api::Bearer;
use posthaste_endpoint::{Error, ErrorKind};
use posthaste_service::{make_private_directory, read_private, write_private};
use serde::{Deserialize, Serialize};

use super::device;
use crate::{
    config,
    failure::{Exit, Failure},
};

/// Time before the expiry at which tokens are renewed: the calls made with them take time.
const EARLY_S: u64 = 30;

/// Stored login. No message contains its tokens.
#[derive(Serialize, Deserialize)]
pub struct Stored {
    pub service: String,
    pub issuer: String,
    pub client_id: String,
    pub bearer: Bearer,
    pub ca_file: Option<PathBuf>,
    pub client_secret_file: Option<PathBuf>,
    pub tokens: Tokens,
}

/// Tokens of one login.
#[derive(Serialize, Deserialize)]
pub struct Tokens {
    /// Token for the service.
    pub shown: String,
    /// Expiry of the token in Unix seconds, if known.
    pub ends_s: Option<u64>,
    /// Refresh token.
    pub refresh: Option<String>,
}

/// Place of a stored login.
#[derive(Debug, Clone)]
pub struct Login {
    file: PathBuf,
}

impl Login {
    /// Returns the login to a service; `None` if nobody is logged in.
    ///
    /// # Errors
    /// Returns the operating system's errors.
    pub fn find(url: &str) -> Result<Option<Self>, Failure> {
        let file = file_of(url);
        match file.symlink_metadata() {
            Ok(_) => Ok(Some(Self { file })),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("look at", &file, cause)),
        }
    }

    /// Stores a login, replacing any previous one.
    ///
    /// # Errors
    /// Returns the operating system's errors.
    pub fn keep(stored: &Stored) -> Result<Self, Failure> {
        let file = file_of(&stored.service);
        if let Some(directory) = file.parent() {
            make_private_directory(directory)?;
        }
        let login = Self { file };
        let _locked = login.lock()?;
        login.write(stored)?;
        Ok(login)
    }

    /// Returns the token for the service, renewed if it expires soon.
    ///
    /// # Errors
    /// Returns the errors of reading and of renewing it.
    pub async fn token(&self) -> Result<String, Failure> {
        let stored = self.read()?;
        if is_good(&stored.tokens) {
            return Ok(stored.tokens.shown);
        }
        // Providers accept a refresh token once, so two commands must not both use it.
        let login = self.clone();
        let locked = tokio::task::spawn_blocking(move || login.lock()).await;
        let _locked = locked.map_err(anyhow::Error::from)??;
        let mut stored = self.read()?;
        if !is_good(&stored.tokens) {
            stored.tokens = device::renew(&stored).await?;
            self.write(&stored)?;
        }
        Ok(stored.tokens.shown)
    }

    /// Returns an authority that the login trusts beside the system's.
    ///
    /// # Errors
    /// Returns the errors of reading it.
    pub fn ca_file(&self) -> Result<Option<PathBuf>, Failure> {
        Ok(self.read()?.ca_file)
    }

    /// Removes the login and returns it.
    ///
    /// # Errors
    /// Returns the errors of reading and removing it.
    pub fn forget(&self) -> Result<Stored, Failure> {
        let _locked = self.lock()?;
        let stored = self.read();
        fs::remove_file(&self.file).map_err(|cause| failed("remove", &self.file, cause))?;
        stored
    }

    fn read(&self) -> Result<Stored, Failure> {
        let text = read_private(&self.file).map_err(|error| {
            let is_gone = error.kind() == ErrorKind::NotFound;
            let more = if is_gone {
                " (`posthaste login` again)"
            } else {
                ""
            };
            Failure::from(error).and(more)
        })?;
        serde_json::from_str(&text).map_err(|_| {
            let shown = self.file.display();
            Failure::new(
                Exit::Fatal,
                format!("can't use the login in {shown}: it is damaged (`posthaste login` again)"),
            )
        })
    }

    fn write(&self, stored: &Stored) -> Result<(), Failure> {
        let text = serde_json::to_string(stored).map_err(anyhow::Error::from)?;
        Ok(write_private(&self.file, &format!("{text}\n"))?)
    }

    /// Locks the login for a change. Blocks.
    fn lock(&self) -> Result<fs::File, Failure> {
        let path = self.file.with_extension("lock");
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|cause| failed("lock", &path, cause))?;
        file.lock().map_err(|cause| failed("lock", &path, cause))?;
        Ok(file)
    }
}

fn is_good(tokens: &Tokens) -> bool {
    let soon_s = now_s() + EARLY_S;
    tokens.ends_s.is_none_or(|ends_s| soon_s < ends_s)
}

/// Returns the time in Unix seconds.
pub fn now_s() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)
}

/// Returns the file of a service, whatever characters its address has.
fn file_of(url: &str) -> PathBuf {
    let name = blake3::hash(url.trim_end_matches('/').as_bytes()).to_hex();
    let logins = config::state_directory().join("logins");
    logins.join(format!("{}.json", &name[..32]))
}

fn failed(operation: &'static str, path: &Path, cause: std::io::Error) -> Failure {
    Error::io(operation, path.display().to_string(), cause).into()
}
