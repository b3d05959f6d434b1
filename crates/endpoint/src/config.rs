//! The one place of this room that reads the environment and configuration files.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::{Error, ErrorKind, Locus, Result};

/// Longest configuration file read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A named set of credentials in `profiles.toml`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// Where the store listens; Amazon's own address when absent.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
    pub session_token: Option<String>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file is where the environment is read"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this file is where the environment is read"
)]
fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// A folder of the XDG base directory specification, which wants absolute paths.
fn folder(name: &str, below_home: &str) -> Option<PathBuf> {
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home()?.join(below_home)))
}

/// Where records of unfinished copies to remote stores are kept.
pub(crate) fn state_folder() -> PathBuf {
    folder("XDG_STATE_HOME", ".local/state")
        .unwrap_or_else(std::env::temp_dir)
        .join("posthaste/unfinished")
}

/// The profile `name` of `~/.config/posthaste/profiles.toml`; `None` when it isn't there.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] when others may read the file; [`ErrorKind::Invalid`].
pub(crate) fn profile(name: &str) -> Result<Option<Profile>> {
    let Some(path) =
        folder("XDG_CONFIG_HOME", ".config").map(|home| home.join("posthaste/profiles.toml"))
    else {
        return Ok(None);
    };
    profile_in(&path, name)
}

fn profile_in(path: &Path, name: &str) -> Result<Option<Profile>> {
    let shown = path.to_string_lossy().into_owned();
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(Error::io("read profiles from", shown, cause)),
    };
    let fail = |cause| Error::io("read profiles from", &*shown, cause);
    let mode = file.metadata().map_err(fail)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "use profiles from", &*shown)
                .cause("others may read it")
                .hint("run chmod 600 on it"),
        );
    }
    let mut text = String::new();
    file.by_ref()
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(fail)?;
    let mut profiles: BTreeMap<String, Profile> = toml::from_str(&text).map_err(|cause| {
        // The message of the parser quotes lines, and a line may hold a secret.
        let line = cause.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        });
        Error::new(ErrorKind::Invalid, "read profiles from", &*shown)
            .cause(format!("line {line} is not understood"))
    })?;
    Ok(profiles.remove(name))
}

/// The name of the AWS profile in force.
fn aws_profile(chosen: Option<&str>) -> String {
    chosen
        .map(str::to_owned)
        .or_else(|| variable("AWS_PROFILE"))
        .unwrap_or_else(|| "default".to_owned())
}

/// The AWS address and region in force, as AWS's own tools find them.
pub(crate) fn aws_address(chosen: Option<&str>) -> (Option<String>, String) {
    let name = aws_profile(chosen);
    let settings = aws_settings(&name);
    let setting = |key: &str| settings.as_ref().and_then(|found| found.get(key).cloned());
    let endpoint = variable("AWS_ENDPOINT_URL_S3")
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| setting("endpoint_url"));
    let region = variable("AWS_REGION")
        .or_else(|| variable("AWS_DEFAULT_REGION"))
        .or_else(|| setting("region"))
        .unwrap_or_else(|| "us-east-1".to_owned());
    (endpoint, region)
}

/// Whether `~/.aws` knows the profile.
pub(crate) fn aws_knows(name: &str) -> bool {
    aws_settings(name).is_some()
}

fn aws_settings(name: &str) -> Option<BTreeMap<String, String>> {
    let file = |variable_name: &str, default: &str| {
        let path = variable(variable_name)
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join(".aws").join(default)))?;
        fs::read_to_string(path).ok()
    };
    let config = file("AWS_CONFIG_FILE", "config").and_then(|text| section(&text, name));
    let credentials =
        file("AWS_SHARED_CREDENTIALS_FILE", "credentials").and_then(|text| section(&text, name));
    match (config, credentials) {
        (None, None) => None,
        (config, credentials) => Some(
            credentials
                .unwrap_or_default()
                .into_iter()
                .chain(config.unwrap_or_default())
                .collect(),
        ),
    }
}

/// The settings of `[name]` or `[profile name]` in an AWS configuration file.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut inside = false;
    for line in text.lines() {
        if let Some(title) = line
            .trim()
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            let title = title.trim();
            inside = title.strip_prefix("profile ").map_or(title, str::trim) == name;
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let settings = found.get_or_insert_default();
            settings.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

/// Reads one whole small file for the credential chain.
pub(crate) fn read_small_file(path: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An error about a profile nobody knows.
pub(crate) fn no_profile(name: &str) -> Error {
    Error::new(ErrorKind::Invalid, "use profile", name)
        .cause("no such profile")
        .hint("name one of ~/.config/posthaste/profiles.toml or ~/.aws/config")
        .at(Locus::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_files_are_read_by_section() {
        let text =
            "[default]\nregion = eu-1\n[profile far]\nendpoint_url = http://x\ns3 =\n  max = 1\n";
        assert_eq!(section(text, "default").unwrap()["region"], "eu-1");
        let far = section(text, "far").unwrap();
        assert_eq!(far["endpoint_url"], "http://x");
        assert!(!far.contains_key("max"));
        assert!(section(text, "near").is_none());
    }

    #[test]
    fn profiles_others_can_read_are_refused_and_secrets_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        fs::write(&path, "[site]\nsecret_access_key = \"hush\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = profile_in(&path, "site").err().unwrap();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let site = profile_in(&path, "site").unwrap().unwrap();
        assert_eq!(site.secret_access_key.as_deref(), Some("hush"));
        assert!(profile_in(&path, "other").unwrap().is_none());
        fs::write(&path, "[site]\nsecret_access_key = hush\n").unwrap();
        let error = profile_in(&path, "site").err().unwrap();
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}
