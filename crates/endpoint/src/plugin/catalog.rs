//! Catalog of plug-ins: those named in `plugins.toml`, and executables called
//! `posthaste-plugin-SCHEME`.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Error, ErrorKind, Locus, Result,
    config::{configuration_files, search_path},
};

/// Prefix of the names of executables.
const PREFIX: &str = "posthaste-plugin-";

/// Longest configuration file read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An installed plug-in.
#[derive(Debug, Clone, PartialEq)]
pub struct Configured {
    /// Scheme of its addresses, in lower case.
    pub scheme: String,
    /// Program and its arguments.
    pub command: Vec<OsString>,
    /// Settings of its users, without secrets; handed to it unchanged.
    pub settings: Map<String, Value>,
    /// Profile it gets when none is named.
    pub profile: Option<String>,
    /// File that names it, or the executable itself.
    pub found_in: PathBuf,
}

/// Table of `plugins.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    command: Vec<String>,
    #[serde(default)]
    settings: Map<String, Value>,
    #[serde(default)]
    profile: Option<String>,
}

/// Returns all plug-ins, by scheme. Those of `plugins.toml` take precedence over those in `PATH`.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if others may change `plugins.toml`; [`ErrorKind::Invalid`].
pub fn configured() -> Result<Vec<Configured>> {
    let mut found = executables(&search_path());
    for file in configuration_files("plugins.toml").iter().rev() {
        for plugin in read(file)? {
            found.insert(plugin.scheme.clone(), plugin);
        }
    }
    Ok(found.into_values().collect())
}

/// Returns the plug-in for a scheme.
///
/// # Errors
/// See [`configured`].
pub(super) fn find(scheme: &str) -> Result<Option<Configured>> {
    let scheme = scheme.to_ascii_lowercase();
    for file in configuration_files("plugins.toml") {
        let found = read(&file)?;
        if let Some(plugin) = found.into_iter().find(|plugin| plugin.scheme == scheme) {
            return Ok(Some(plugin));
        }
    }
    Ok(search_path()
        .iter()
        .map(|folder| folder.join(format!("{PREFIX}{scheme}")))
        .find(|path| is_executable(path))
        .map(|path| of_executable(&scheme, path)))
}

fn of_executable(scheme: &str, path: PathBuf) -> Configured {
    Configured {
        scheme: scheme.to_owned(),
        command: vec![path.clone().into_os_string()],
        settings: Map::new(),
        profile: None,
        found_in: path,
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

/// Schemes are letters, digits, `+`, `-` and `.`, and start with a letter (RFC 3986, section 3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'))
}

/// Returns executables with our prefix; the first folder wins, as with every command.
fn executables(folders: &[PathBuf]) -> BTreeMap<String, Configured> {
    let mut found = BTreeMap::new();
    for entry in folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let scheme = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if let Some(scheme) = scheme.filter(|scheme| is_scheme(scheme))
            && is_executable(&entry.path())
        {
            found
                .entry(scheme.to_owned())
                .or_insert_with(|| of_executable(scheme, entry.path()));
        }
    }
    found
}

/// Returns the plug-ins a file names; none if the file does not exist.
fn read(path: &Path) -> Result<Vec<Configured>> {
    let shown = path.to_string_lossy();
    let fail = |cause| Error::io("read plug-ins from", &*shown, cause);
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(fail(cause)),
    };
    // The file names a program to run: its writers can act for its readers.
    if metadata.permissions().mode() & 0o022 != 0 {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "use plug-ins from", &*shown)
                .cause("others may change it")
                .hint("run chmod go-w on it"),
        );
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(
            Error::new(ErrorKind::Invalid, "read plug-ins from", &*shown).cause("too long"),
        );
    }
    let text = fs::read_to_string(path).map_err(fail)?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Configured>> {
    let invalid = |cause: String| {
        Error::new(
            ErrorKind::Invalid,
            "read plug-ins from",
            path.to_string_lossy(),
        )
        .cause(cause)
        .hint("write [SCHEME] and below it command = [\"PROGRAM\", \"ARGUMENT\"]")
        .at(Locus::Client)
    };
    let tables: BTreeMap<String, Table> =
        toml::from_str(text).map_err(|cause| invalid(cause.message().to_owned()))?;
    let plugins = tables.into_iter().map(|(name, table)| {
        let scheme = name.to_ascii_lowercase();
        if !is_scheme(&scheme) {
            return Err(invalid(format!("{name:?} can be no scheme")));
        }
        if table.command.is_empty() {
            return Err(invalid(format!("the command of {name} is empty")));
        }
        Ok(Configured {
            scheme,
            command: table.command.into_iter().map(OsString::from).collect(),
            settings: table.settings,
            profile: table.profile,
            found_in: path.to_owned(),
        })
    });
    plugins.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Configured>> {
        parse(text, Path::new("plugins.toml"))
    }

    #[test]
    fn plugins_are_named_with_their_settings() {
        let text = "[gsiftp]\ncommand = [\"/opt/p\", \"-v\"]\nprofile = \"grid\"\n[gsiftp.settings]\nparallel = 4\n";
        let found = parsed(text).unwrap();
        assert_eq!(found[0].scheme, "gsiftp");
        assert_eq!(found[0].command, ["/opt/p", "-v"]);
        assert_eq!(found[0].settings["parallel"], 4);
        assert_eq!(found[0].profile.as_deref(), Some("grid"));
    }

    #[test]
    fn what_names_no_plugin_is_refused() {
        for text in [
            "[a]\n",
            "[a]\ncommand = []\n",
            "[a]\ncommand = \"run me\"\n",
            "[a]\ncommand = [\"x\"]\nsecret = \"y\"\n",
            "[\"../a\"]\ncommand = [\"x\"]\n",
            "command = [\"x\"]\n",
        ] {
            assert_eq!(
                parsed(text).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{text}"
            );
        }
    }

    #[test]
    fn executables_are_found_by_name_and_the_first_folder_wins() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let make = |folder: usize, name: &str, mode: u32| {
            let path = folders[folder].path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        make(0, "posthaste-plugin-a", 0o755);
        make(1, "posthaste-plugin-a", 0o755);
        make(1, "posthaste-plugin-b+c", 0o755);
        make(1, "posthaste-plugin-plain", 0o644);
        make(1, "posthaste-plugin-", 0o755);
        make(1, "posthaste-plugin-Up", 0o755);
        let paths: Vec<PathBuf> = folders.iter().map(|it| it.path().to_owned()).collect();
        let found = executables(&paths);
        let schemes: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(schemes, ["a", "b+c"]);
        assert!(found["a"].found_in.starts_with(folders[0].path()));
    }

    #[test]
    fn a_list_others_may_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plugins.toml");
        assert_eq!(read(&path).unwrap(), []);
        fs::write(&path, "[a]\ncommand = [\"x\"]\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }
}
