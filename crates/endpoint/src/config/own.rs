//! Profiles that users give to a service for themselves. They are only for places over a network,
//! and name nothing of the service's machine: no file, no program, no key of its user.

use std::{collections::BTreeMap, ffi::OsStr};

use serde_json::{Map, Value};

use super::Profile;
use crate::{Error, ErrorKind, Location, Result};

/// Longest value, in bytes: a token of a provider.
const VALUE_BYTES_MAX: usize = 8 << 10;

/// Settings that open the places of one scheme.
struct Kind {
    scheme: &'static str,
    settings: &'static [&'static str],
    secrets: &'static [&'static str],
    /// Sets of keys, one of which must be complete; otherwise the service would use credentials
    /// from its own surroundings.
    enough: &'static [&'static [&'static str]],
}

/// Keys for the cost of reading, at any place.
const PRICES: [&str; 2] = ["usd_per_gb_out", "usd_per_1000_gets"];

const WEB: &[&[&str]] = &[
    &["user", "password"],
    &["token"],
    &["refresh_token", "client_id", "token_uri"],
];
const KINDS: [Kind; 6] = [
    Kind {
        scheme: "s3",
        settings: &["endpoint", "region", "access_key_id"],
        secrets: &["secret_access_key", "session_token"],
        enough: &[&["access_key_id", "secret_access_key"]],
    },
    Kind {
        scheme: "azblob",
        settings: &["account", "endpoint"],
        secrets: &["account_key", "sas_token", "token"],
        enough: &[
            &["account", "account_key"],
            &["account", "sas_token"],
            &["account", "token"],
        ],
    },
    Kind {
        scheme: "gs",
        settings: &["endpoint"],
        secrets: &["token"],
        enough: &[&["token"]],
    },
    Kind {
        scheme: "http",
        settings: &["user", "client_id", "token_uri"],
        secrets: &["password", "token", "refresh_token", "client_secret"],
        enough: WEB,
    },
    Kind {
        scheme: "webdav",
        settings: &["user", "client_id", "token_uri"],
        secrets: &["password", "token", "refresh_token", "client_secret"],
        enough: WEB,
    },
    Kind {
        scheme: "ftp",
        settings: &["user", "tls"],
        secrets: &["password"],
        enough: &[&["user", "password"]],
    },
];

/// Returns whether the value of a key of profiles is a secret.
#[must_use]
pub fn is_secret(key: &str) -> bool {
    KINDS.iter().any(|kind| kind.secrets.contains(&key))
}

/// Builds the profile for the places below `url` from keys of [profiles](super::Profiles) and their
/// values.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an address on the service's own machine or with a secret in it, and
/// for keys that places of its scheme don't have. Also for incomplete credentials. No value is
/// quoted.
pub fn own_profile(url: &str, settings: &BTreeMap<String, String>) -> Result<Profile> {
    let shown = url.split('?').next().unwrap_or_default();
    let wrong = |cause: String| Error::new(ErrorKind::Invalid, "use", shown).cause(cause);
    let location = Location::parse(OsStr::new(url))?;
    let kind = location.scheme();
    let kind = KINDS.iter().find(|known| Some(known.scheme) == kind);
    let Some(kind) = kind else {
        let schemes = "s3://, azblob://, gs://, https://, webdavs:// or ftps://";
        return Err(wrong("nobody's own credential opens that".to_owned())
            .hint(format!("name a place like {schemes}")));
    };
    if url.contains('?') {
        let why = "it has a query, which may hold a signature".to_owned();
        return Err(wrong(why).hint("leave what follows `?` out"));
    }
    let has = |key: &&str| settings.contains_key(*key);
    let known = || kind.settings.iter().chain(&PRICES).chain(kind.secrets);
    if let Some(unknown) = settings
        .keys()
        .find(|key| !known().any(|known| known == key))
    {
        let keys: Vec<&str> = known().copied().collect();
        return Err(wrong(format!("`{unknown:.64}` is no key of such a place"))
            .hint(format!("there are {}", keys.join(", "))));
    }
    let is_value = |text: &String| {
        !text.is_empty() && text.len() <= VALUE_BYTES_MAX && !text.chars().any(char::is_control)
    };
    if let Some((key, _)) = settings.iter().find(|(_, value)| !is_value(value)) {
        return Err(wrong(format!(
            "the value of `{key}` is empty, longer than {VALUE_BYTES_MAX} bytes or has control characters"
        )));
    }
    if !kind.enough.iter().any(|keys| keys.iter().all(has)) {
        let ways = kind.enough.iter().map(|keys| keys.join(" and "));
        let ways: Vec<String> = ways.collect();
        let why = "it is not said who asks there".to_owned();
        return Err(wrong(why).hint(format!("give {}", ways.join(", or "))));
    }
    let mut table: Map<String, Value> = settings
        .iter()
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect();
    table.insert("url".to_owned(), Value::String(url.to_owned()));
    serde_json::from_value(Value::Object(table))
        .map_err(|_| wrong("a value is none that its key can have".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_profile_of_somebodys_own_names_nothing_of_the_services_machine() {
        let keys = settings(&[("access_key_id", "AK"), ("secret_access_key", "hidden")]);
        let profile = own_profile("s3://results/alice", &keys).unwrap();
        assert_eq!(profile.url.as_deref(), Some("s3://results/alice"));
        assert!(!format!("{profile:?}").contains("hidden"));
        for url in [
            "/etc",
            "file:///etc",
            "host:path",
            "sftp://host/path",
            "rados://pool",
            "posthaste://relay/x",
            "s3://b/x?sig=hidden",
        ] {
            let error = own_profile(url, &keys).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }

    #[test]
    fn what_reading_costs_is_said_at_any_place() {
        let with = |usd| {
            let pairs = [("token", "t"), ("usd_per_gb_out", usd)];
            own_profile("gs://b", &settings(&pairs))
        };
        assert_eq!(with("0.12").unwrap().egress_micro_usd, 120_000);
        assert!(with("much").is_err());
    }

    #[test]
    fn nobody_gets_by_with_less_than_what_shows_who_asks() {
        let cases: [(&str, &[(&str, &str)]); 8] = [
            ("s3://b", &[]),
            ("s3://b", &[("access_key_id", "AK")]),
            (
                "s3://b",
                &[("access_key_id", "AK"), ("secret_access_key", "x\ny")],
            ),
            (
                "s3://b",
                &[
                    ("access_key_id", "AK"),
                    ("secret_access_key", "x"),
                    ("ca_file", "/etc/shadow"),
                ],
            ),
            ("azblob://c", &[("account_key", "x")]),
            ("gs://b", &[("service_account_file", "/x")]),
            ("https://h/x", &[("user", "alice")]),
            (
                "ftp://h/x",
                &[("user", "a"), ("password", "p"), ("tls", "hidden")],
            ),
        ];
        for (url, pairs) in cases {
            let error = own_profile(url, &settings(pairs)).unwrap_err().to_string();
            assert!(!error.contains("hidden"), "{error}");
        }
        assert!(own_profile("https://h/x", &settings(&[("token", "t")])).is_ok());
    }
}
