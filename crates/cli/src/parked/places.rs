//! Parking places this user has parked at: those that `posthaste parked` searches.
//!
//! Nothing depends on them: a user can name the address.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::PathBuf};

use posthaste_endpoint::{Location, shown_address};
use serde::{Deserialize, Serialize};

use crate::{config, failure::Failure};

/// Places remembered, at most. The least recently used are forgotten first.
const PLACES_MAX: usize = 100;

/// Parking place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Absolute address.
    pub(crate) url: String,
    /// Profile with which it was opened.
    pub(crate) profile: Option<String>,
}

fn file() -> PathBuf {
    config::state_directory().join("parking-places.json")
}

/// Returns the remembered places, the last used first.
pub(crate) fn known() -> Vec<Place> {
    let text = fs::read(file()).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Stores a place.
pub(crate) fn remember(url: &str, profile: Option<String>) {
    let place = Place {
        url: url.to_owned(),
        profile,
    };
    let mut places = known();
    places.retain(|known| *known != place);
    places.insert(0, place);
    places.truncate(PLACES_MAX);
    let replace = || -> std::io::Result<()> {
        let folder = config::state_directory();
        fs::create_dir_all(&folder)?;
        let mut new = tempfile::NamedTempFile::new_in(&folder)?;
        serde_json::to_writer(&mut new, &places)?;
        new.persist(file())?;
        Ok(())
    };
    // A place that can't be stored must be named with --at.
    let _ = replace();
}

/// Returns the address in a form that is valid in any directory.
///
/// # Errors
/// Returns a [`Failure`] for an invalid address, or one that is not UTF-8.
pub(crate) fn absolute(written: &OsStr) -> Result<String, Failure> {
    let address = match Location::parse(written)? {
        Location::Local(path) => std::path::absolute(path)
            .map_err(anyhow::Error::from)?
            .into_os_string(),
        Location::S3 { .. }
        | Location::Sftp { .. }
        | Location::Bucket { .. }
        | Location::Server(_)
        | Location::Host { .. }
        | Location::Plugin { .. } => written.to_owned(),
    };
    String::from_utf8(address.as_bytes().to_vec()).map_err(|_| {
        Failure::usage(format!(
            "can't park with {}: its name is not UTF-8",
            shown_address(written).escape_debug()
        ))
    })
}
