//! Only place in this crate that reads the environment and configuration files.

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
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{Error, ErrorKind, Result, new_word};

pub(crate) use aws::{aws_address, aws_ca_bundle, aws_credential_process, aws_knows, aws_unknown};
pub(crate) use azure::AzureSettings;
pub(crate) use google::{google_emulator, google_key_file};
pub(crate) use login::{Login, login_for, token_source};
pub use own::{is_secret, own_profile};
pub use profiles::{Profile, Profiles, parse_profiles, profiles};
pub(crate) use profiles::{Secret, TlsChoice, no_profile, profile};

/// Largest configuration file read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[expect(
    clippy::disallowed_methods,
    reason = "this file is where the environment is read"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a variable whose name programs write in either case.
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

/// Returns all variables that are not empty.
pub(crate) fn variables() -> HashMap<String, String> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let text = (name.into_string().ok()?, value.into_string().ok()?);
        Some(text).filter(|(_, value)| !value.is_empty())
    });
    variables.collect()
}

/// Returns a folder of the XDG base directory specification, which requires absolute paths.
fn folder(name: &str, below_home: &str) -> Option<PathBuf> {
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home()?.join(below_home)))
}

/// Returns the possible places of a configuration file: the user's folder, then those of the whole
/// machine.
pub(crate) fn configuration_files(name: &str) -> Vec<PathBuf> {
    let system = variable("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
    folder("XDG_CONFIG_HOME", ".config")
        .into_iter()
        .chain(std::env::split_paths(&system).filter(|path| path.is_absolute()))
        .map(|folder| folder.join("posthaste").join(name))
        .collect()
}

/// Returns the folders in which programs are searched.
pub(crate) fn search_path() -> Vec<PathBuf> {
    let path = variable("PATH").unwrap_or_default();
    // A relative folder would make the program depend on the current directory.
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect()
}

/// Returns the folder for records of unfinished copies to remote stores.
pub(crate) fn state_folder() -> PathBuf {
    static PRIVATE: OnceLock<PathBuf> = OnceLock::new();
    let private = || PRIVATE.get_or_init(|| private_folder(&std::env::temp_dir()));
    folder("XDG_STATE_HOME", ".local/state")
        .unwrap_or_else(|| private().clone())
        .join("posthaste/unfinished")
}

/// Returns a folder below a shared one that nobody else can write or read. It has our name if that
/// is ours; else an unpredictable one, so that others can neither plant records nor keep us from
/// writing any.
fn private_folder(below: &Path) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    let usual = below.join(format!("posthaste-{uid}"));
    if is_private(&usual, uid) {
        return usual;
    }
    // If it can't be made, the first write into it fails.
    let other = below.join(format!("posthaste-{uid}-{}", new_word()));
    let _ = is_private(&other, uid);
    other
}

/// Makes a folder if there is none; returns whether it is this user's and nobody else may enter it.
fn is_private(path: &Path, uid: u32) -> bool {
    // An existing folder is examined like a new one.
    let _ = fs::DirBuilder::new().mode(0o700).create(path);
    fs::symlink_metadata(path)
        .is_ok_and(|about| about.is_dir() && about.uid() == uid && about.mode() & 0o077 == 0)
}

/// Reads one whole small file for the credential chain.
pub(crate) fn read_small_file(path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fails if others than its owner may read a file that holds a secret.
pub(crate) fn refuse_open_to_others(
    operation: &'static str,
    path: &Path,
    found: &fs::Metadata,
) -> Result<()> {
    if found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let shown = path.to_string_lossy();
    Err(Error::new(ErrorKind::PermissionDenied, operation, shown)
        .cause("others may read it")
        .hint("run chmod 600 on it"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn without_a_home_records_go_where_nobody_else_can_plant_any() {
        let shared = tempfile::tempdir().unwrap();
        let usual = private_folder(shared.path());
        assert_eq!(fs::metadata(&usual).unwrap().mode() & 0o777, 0o700);
        assert_eq!(private_folder(shared.path()), usual, "it is found again");
        fs::set_permissions(&usual, fs::Permissions::from_mode(0o770)).unwrap();
        let other = private_folder(shared.path());
        assert_ne!(other, usual, "others of the group can write there");
        assert_eq!(fs::metadata(&other).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir(&usual).unwrap();
        symlink(&other, &usual).unwrap();
        assert_ne!(
            private_folder(shared.path()),
            usual,
            "a link leads elsewhere"
        );
    }
}
