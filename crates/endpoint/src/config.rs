//! The one place of this room that reads the environment and configuration files.

mod aws;
mod azure;
mod google;
mod login;
mod own;
mod profiles;

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

pub(crate) use aws::{aws_address, aws_ca_bundle, aws_credential_process, aws_knows};
pub(crate) use azure::AzureSettings;
pub(crate) use google::{google_emulator, google_key_file};
pub(crate) use login::{Login, login_for, token_source};
pub use own::{is_secret, own_profile};
pub use profiles::{Profile, Profiles, parse_profiles, profiles};
pub(crate) use profiles::{Secret, TlsChoice, no_profile, profile};

/// Longest configuration file read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[expect(
    clippy::disallowed_methods,
    reason = "this file is where the environment is read"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable that programs write in capitals or not.
pub(crate) fn of_either_case(name: &str) -> Option<String> {
    variable(name).or_else(|| variable(&name.to_ascii_lowercase()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file is where the environment is read"
)]
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// All variables that say something.
pub(crate) fn variables() -> HashMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let text = (name.into_string().ok()?, value.into_string().ok()?);
        Some(text).filter(|(_, value)| !value.is_empty())
    });
    variables.collect()
}

/// A folder of the XDG base directory specification, which wants absolute paths.
fn folder(name: &str, below_home: &str) -> Option<PathBuf> {
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home()?.join(below_home)))
}

/// Where a configuration file may lie: the user's folder, then those of the whole machine.
pub(crate) fn configuration_files(name: &str) -> Vec<PathBuf> {
    let system = variable("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
    folder("XDG_CONFIG_HOME", ".config")
        .into_iter()
        .chain(std::env::split_paths(&system).filter(|path| path.is_absolute()))
        .map(|folder| folder.join("posthaste").join(name))
        .collect()
}

/// Where programs are looked for.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    // A relative folder would make it depend on where one stands which program is run.
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect()
}

/// Where records of unfinished copies to remote stores are kept.
pub(crate) fn state_folder() -> PathBuf {
    folder("XDG_STATE_HOME", ".local/state")
        .unwrap_or_else(std::env::temp_dir)
        .join("posthaste/unfinished")
}

/// Reads one whole small file for the credential chain.
pub(crate) fn read_small_file(path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
