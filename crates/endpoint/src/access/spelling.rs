//! Canonical spelling of each place, whichever profile opens it.

use super::{Access, Chosen};
use crate::{Location, Result, Store, azure, gcs, plugin::Launch, s3};

/// Domain of Amazon's own stores: a bucket's name identifies one bucket, whichever region receives
/// the request.
const AMAZON: &str = "amazonaws.com";

impl Access {
    /// Spells the place of `location` canonically: for a store with its address, so that two
    /// profiles of one store name one place. The targets of different plug-in profiles are unknown:
    /// they count as two.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`], of an unknown profile, and of a profile that names no store.
    pub fn spelling(&self, location: Location) -> Result<String> {
        let (location, chosen) = self.place(location)?;
        let chosen = chosen.as_ref();
        let of_store = |base: Option<String>| {
            let base = base.map_or_else(|| AMAZON.to_owned(), |base| store_at(&base));
            format!("{base} {}", location.spelling())
        };
        Ok(match &location {
            Location::S3 { .. } => of_store(s3::address_of(chosen)?),
            Location::Bucket {
                store: Store::Azblob,
                ..
            } => of_store(Some(azure::address_of(chosen)?)),
            Location::Bucket {
                store: Store::Gcs, ..
            } => of_store(Some(gcs::address_of(chosen)?)),
            Location::Server(server) if azure::is_address(server) => {
                let path = String::from_utf8_lossy(&server.path);
                let path = path.trim_matches('/').to_owned();
                let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
                let object = Location::Bucket {
                    store: Store::Azblob,
                    bucket: bucket.to_owned(),
                    key: key.to_owned(),
                };
                let base = format!("https://{}:{}", server.host, server.port());
                format!("{} {}", store_at(&base), object.spelling())
            }
            Location::Plugin { scheme, .. } => {
                format!(
                    "{} {}",
                    plugin_account(scheme, chosen)?,
                    location.spelling()
                )
            }
            Location::Local(_)
            | Location::Sftp { .. }
            | Location::Server(_)
            | Location::Host { .. } => format!(" {}", location.spelling()),
        })
    }
}

/// Spells a store's address canonically: its host in lower case with its port, and its path.
fn store_at(base: &str) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.to_ascii_lowercase();
    let port = match (scheme, host.rsplit_once(':')) {
        (_, Some((_, port))) if port.bytes().all(|byte| byte.is_ascii_digit()) => "",
        ("http", _) => ":80",
        (_, _) => ":443",
    };
    let name = host.strip_suffix(":443").unwrap_or(&host);
    if name == AMAZON || name.ends_with(".amazonaws.com") {
        return AMAZON.to_owned();
    }
    match path.trim_matches('/') {
        "" => format!("{host}{port}"),
        path => format!("{host}{port}/{path}"),
    }
}

/// Returns a hash that distinguishes the settings that profiles give to a plug-in, without
/// revealing them.
fn plugin_account(scheme: &str, chosen: Option<&Chosen>) -> Result<String> {
    let Some(launch) = Launch::find(scheme, chosen)? else {
        return Ok(String::new());
    };
    let mut hasher = blake3::Hasher::new();
    for (name, value) in &launch.profile {
        for text in [name, value] {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::fs::PermissionsExt};

    use super::*;

    const PROFILES: &str = r#"
[one]
url = "s3://runs/a"
endpoint = "https://S3.Example.org"
access_key_id = "x"
secret_access_key = "y"
[other]
url = "s3://runs"
endpoint = "https://s3.example.org:443/"
access_key_id = "z"
secret_access_key = "y"
[far]
url = "s3://runs/a"
endpoint = "https://s3.example.org:9000"
[west]
endpoint = "https://s3.us-west-2.amazonaws.com"
[amazon]
access_key_id = "x"
[blobs]
url = "azblob://runs"
account = "lab"
account_key = "eA=="
[emulated]
url = "azblob://runs"
endpoint = "http://127.0.0.1:10000/lab"
[gs1]
url = "gs://runs"
anonymous = true
[gs2]
url = "gs://runs/a"
[home]
url = "sftp://me@Host/data"
[dtn]
url = "sftp://me@host:22/data/a"
[dav]
url = "webdavs://store.org/runs"
user = "me"
"#;

    fn access() -> (tempfile::TempDir, Access) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        std::fs::write(&path, PROFILES).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        (folder, Access::new(None, Vec::new()).with_profiles(path))
    }

    #[test]
    fn a_place_has_one_spelling_whichever_profile_opens_it() {
        let (_folder, access) = access();
        let spelled = |(profile, text): (&str, &str)| {
            let access = match profile {
                "" => access.clone(),
                name => access.with_profile(name.to_owned()),
            };
            let location = Location::parse(OsStr::new(text)).unwrap();
            access.spelling(location).unwrap()
        };
        for (one, other) in [
            (("", "one:x"), ("", "other:a/x")),
            (("one", "s3://runs/a"), ("other", "s3://runs/a")),
            (("", "one:x"), ("other", "s3://runs/a/x")),
            (("west", "s3://runs/a"), ("amazon", "s3://runs/a")),
            (
                ("", "blobs:x"),
                ("blobs", "https://lab.blob.core.windows.net/runs/x"),
            ),
            (("", "gs1:a/x"), ("", "gs2:x")),
            (("", "home:a/x"), ("", "dtn:x")),
            (("", "home:a/x"), ("", "sftp://you@host/data/a/x")),
            (("", "dav:x"), ("", "webdavs://Store.org:443/runs/x")),
        ] {
            assert_eq!(spelled(one), spelled(other), "{one:?} {other:?}");
        }
        for (one, other) in [
            (("", "one:x"), ("", "far:x")),
            (("", "one:x"), ("", "one:y")),
            (("", "blobs:x"), ("", "emulated:x")),
            (("one", "s3://runs/a"), ("amazon", "s3://runs/a")),
        ] {
            assert_ne!(spelled(one), spelled(other), "{one:?} {other:?}");
        }
    }
}
