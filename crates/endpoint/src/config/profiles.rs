//! Named places and credentials: `~/.config/posthaste/profiles.toml`.

use std::{
    collections::BTreeMap, ffi::OsStr, fmt, fs, io::Read, num::NonZeroU32, path::Path,
    path::PathBuf,
};

use posthaste_types::ByteRate;
use serde::{Deserialize, Deserializer, de};

use super::{FILE_BYTES_MAX, folder, refuse_open_to_others};
use crate::{Error, ErrorKind, Location, Locus, Result, meant};

/// Password, key or token, never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret itself, for authentication.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Protection of an FTP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TlsChoice {
    /// TLS after `AUTH TLS` (RFC 4217).
    Explicit,
    /// TLS from the first byte.
    Implicit,
}

/// Named place with credentials and caps. The protocol decides which keys matter;
/// `docs/reference/profiles.md` lists them with examples.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// Address for which `NAME:path` stands.
    #[serde(deserialize_with = "address")]
    pub(crate) url: Option<String>,
    /// Address that replaces `url` when that fails permanently.
    #[serde(deserialize_with = "address")]
    pub(crate) fallback: Option<String>,
    /// Address where standard input is parked if `url` can't store it.
    #[serde(deserialize_with = "address")]
    pub(crate) park: Option<String>,
    /// Most requests or connections in progress at once.
    pub(crate) connections_max: Option<NonZeroU32>,
    /// Most bytes per second, in both directions together.
    #[serde(deserialize_with = "rate")]
    pub(crate) rate_max: Option<ByteRate>,
    /// Most requests begun in a second.
    pub(crate) requests_per_s_max: Option<NonZeroU32>,
    /// Cost of reading a gigabyte (10^9 bytes), in millionths of a dollar.
    #[serde(rename = "usd_per_gb_out", deserialize_with = "price")]
    pub(crate) egress_micro_usd: u64,
    /// Cost of a thousand GETs, in millionths of a dollar.
    #[serde(rename = "usd_per_1000_gets", deserialize_with = "price")]
    pub(crate) get_micro_usd: u64,
    /// Certificates to trust beside the system's, in PEM.
    pub(crate) ca_file: Option<PathBuf>,

    /// Address of the store; that of its provider if absent. S3, Azure Blob, GCS.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) access_key_id: Option<String>,
    pub(crate) secret_access_key: Option<Secret>,
    pub(crate) session_token: Option<Secret>,

    /// Storage account of Azure Blob.
    pub(crate) account: Option<String>,
    pub(crate) account_key: Option<Secret>,
    pub(crate) sas_token: Option<Secret>,

    /// Key file of a service account, as Google hands it out.
    pub(crate) service_account_file: Option<PathBuf>,
    /// True to read public data without credentials. S3, GCS.
    pub(crate) anonymous: bool,
    /// True if the requester pays. S3.
    pub(crate) requester_pays: bool,

    /// Fingerprint of the key that a relay must have, as it prints it.
    pub(crate) fingerprint: Option<String>,
    /// Path of a copy of the relay's secret.
    pub(crate) secret_file: Option<PathBuf>,

    /// User. HTTP, WebDAV, FTP, SFTP.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Protection of FTP, if the address doesn't state it.
    pub(crate) tls: Option<TlsChoice>,
    /// Options for `ssh`, as `-o` takes them.
    pub(crate) ssh_options: Vec<String>,
    /// Bearer token: HTTP, WebDAV, Azure Blob, GCS.
    pub(crate) token: Option<Secret>,
    /// File that holds the current bearer token, and a program that prints it: HTTP, WebDAV.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) token_command: Vec<String>,
    /// Credentials for requesting tokens, and the address: HTTP, WebDAV.
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) client_id: Option<String>,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) token_uri: Option<String>,
    /// Hosts that also get the credentials when the server redirects to them; `.example.org` stands
    /// for all below it. They see the credentials. HTTP, WebDAV.
    pub(crate) credentials_for: Vec<String>,

    /// Settings whose meaning only a plug-in knows.
    pub(crate) plugin: BTreeMap<String, Secret>,
}

impl Profile {
    /// Returns the settings for a plug-in: every credential with its key, and its own keys.
    pub(crate) fn for_plugin(&self) -> BTreeMap<String, String> {
        let plain = [
            ("endpoint", &self.endpoint),
            ("region", &self.region),
            ("access_key_id", &self.access_key_id),
            ("account", &self.account),
            ("user", &self.user),
        ];
        let secret = [
            ("secret_access_key", &self.secret_access_key),
            ("session_token", &self.session_token),
            ("account_key", &self.account_key),
            ("sas_token", &self.sas_token),
            ("password", &self.password),
            ("token", &self.token),
        ];
        let files = [
            ("ca_file", &self.ca_file),
            ("service_account_file", &self.service_account_file),
        ];
        let mut told: BTreeMap<String, String> = BTreeMap::new();
        for (key, text) in plain {
            told.extend(text.clone().map(|text| (key.to_owned(), text)));
        }
        for (key, path) in files {
            let text = path.as_ref().map(|path| path.to_string_lossy());
            told.extend(text.map(|text| (key.to_owned(), text.into_owned())));
        }
        for (key, text) in secret {
            let text = text.as_ref().map(|text| text.reveal().to_owned());
            told.extend(text.map(|text| (key.to_owned(), text)));
        }
        let own = self.plugin.iter();
        told.extend(own.map(|(key, text)| (key.clone(), text.reveal().to_owned())));
        told
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match Location::parse(OsStr::new(&text)) {
        Ok(_) => Ok(Some(text)),
        Err(_) => Err(de::Error::custom("not an address")),
    }
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ByteRate>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.parse() {
        Ok(rate) if rate > ByteRate::new(0) => Ok(Some(rate)),
        Ok(_) | Err(_) => Err(de::Error::custom("not a rate like 200M")),
    }
}

/// Highest accepted price of a gigabyte, or of a thousand requests, in dollars.
const USD_MAX: f64 = 1e6;

/// Price: a number, or the text of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Usd {
    Number(f64),
    Text(String),
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range is refused"
)]
fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let usd = match Usd::deserialize(deserializer) {
        Ok(Usd::Number(usd)) => Some(usd),
        Ok(Usd::Text(text)) => text.parse().ok(),
        Err(_) => None,
    };
    match usd {
        Some(usd) if (0.0..=USD_MAX).contains(&usd) => Ok((usd * 1e6).round() as u64),
        _ => Err(de::Error::custom("not a price from 0 to a million dollars")),
    }
}

/// Profiles of one file.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    by_name: BTreeMap<String, Profile>,
}

impl Profiles {
    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// Parses the text of a `profiles.toml`.
///
/// # Errors
/// [`ErrorKind::Invalid`] with the number of the invalid line, never with its text, which may hold
/// a secret.
pub fn parse_profiles(text: &str) -> Result<Profiles> {
    let by_name: BTreeMap<String, Profile> = toml::from_str(text).map_err(|cause| {
        let line = cause.span().map_or(1, |span| {
            let before = text.as_bytes().get(..span.start).unwrap_or_default();
            before.iter().filter(|&&byte| byte == b'\n').count() + 1
        });
        // The parser's message quotes values; these only name what was expected.
        let safe = [
            "unknown field",
            "not an address",
            "not a rate",
            "not a price",
        ];
        let message = cause.message();
        let detail = if safe.iter().any(|start| message.starts_with(start)) {
            let short = message.split(", expected").next().unwrap_or_default();
            format!(": {}", short.replace("unknown field", "unknown key"))
        } else {
            // What was expected comes last, and quotes nothing.
            let expected = message.rsplit_once(", expected ").map(|(_, wanted)| wanted);
            expected.map_or_else(String::new, |wanted| {
                format!(": {wanted} is expected there")
            })
        };
        invalid(format!("line {line} is not understood{detail}"))
    })?;
    for name in by_name.keys() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
            return Err(invalid(
                "a profile's name is not made of letters, digits and -_.".to_owned(),
            )
            .hint("NAME:path must be an address"));
        }
    }
    Ok(Profiles { by_name })
}

fn invalid(cause: String) -> Error {
    Error::new(ErrorKind::Invalid, "read", "profiles")
        .cause(cause)
        .hint("see docs/reference/profiles.md")
}

/// Returns the profile `name` of `file`, or of `~/.config/posthaste/profiles.toml`; `None` if it
/// isn't there.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if others may read the file; [`ErrorKind::Invalid`].
pub(crate) fn profile(file: Option<&Path>, name: &str) -> Result<Option<Profile>> {
    Ok(profiles(file)?.by_name.remove(name))
}

/// Returns the profiles of `file`, or of `~/.config/posthaste/profiles.toml`; none if there is no
/// file.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if others may read the file; [`ErrorKind::Invalid`].
pub fn profiles(file: Option<&Path>) -> Result<Profiles> {
    let usual = || Some(folder("XDG_CONFIG_HOME", ".config")?.join("posthaste/profiles.toml"));
    match file.map(Path::to_owned).or_else(usual) {
        Some(path) => load_from(&path),
        None => Ok(Profiles::default()),
    }
}

fn load_from(path: &Path) -> Result<Profiles> {
    let shown = path.to_string_lossy().into_owned();
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Profiles::default());
        }
        Err(cause) => return Err(Error::io("read profiles from", shown, cause)),
    };
    let fail = |cause| Error::io("read profiles from", &*shown, cause);
    let found = file.metadata().map_err(fail)?;
    refuse_open_to_others("use profiles from", path, &found)?;
    let mut text = String::new();
    file.by_ref()
        .take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(fail)?;
    parse_profiles(&text).map_err(|error| error.with("file", &shown))
}

/// Returns an error about an unknown profile.
pub(crate) fn no_profile(name: &str) -> Error {
    let known = profiles(None).unwrap_or_default();
    let hint = "name one of ~/.config/posthaste/profiles.toml or ~/.aws/config";
    Error::new(ErrorKind::Invalid, "use profile", name)
        .cause("no such profile")
        .hint(meant(name, known.names(), hint))
        .at(Locus::Client)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn profiles_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        assert_eq!(load_from(&path).unwrap().names().count(), 0);
        fs::write(&path, "[site]\nsecret_access_key = \"hush\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = load_from(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let profiles = load_from(&path).unwrap();
        let secret = profiles
            .by_name
            .get("site")
            .unwrap()
            .secret_access_key
            .as_ref();
        assert_eq!(secret.unwrap().reveal(), "hush");
        assert!(!profiles.by_name.contains_key("other"));
    }

    #[test]
    fn caps_and_addresses_are_read() {
        let text = "[a]\nurl = \"gs://b/c\"\nfallback = \"s3://d\"\npark = \"dtn:parked\"\nrate_max = \"200M\"\nconnections_max = 4\nrequests_per_s_max = 10\n";
        let profiles = parse_profiles(text).unwrap();
        let profile = profiles.by_name.get("a").unwrap();
        assert_eq!(profile.url.as_deref(), Some("gs://b/c"));
        assert_eq!(profile.fallback.as_deref(), Some("s3://d"));
        assert_eq!(profile.park.as_deref(), Some("dtn:parked"));
        assert_eq!(profile.rate_max, Some(ByteRate::new(200 << 20)));
        assert_eq!(profile.connections_max, NonZeroU32::new(4));
    }

    #[test]
    fn prices_are_read_to_a_millionth_of_a_dollar() {
        let text = "[a]\nusd_per_gb_out = 0.09\nusd_per_1000_gets = 0.0004\n[b]\nusd_per_gb_out = 1\n[c]\nusd_per_gb_out = \"0.02\"\n";
        let profiles = parse_profiles(text).unwrap().by_name;
        let prices = |name: &str| {
            (
                profiles[name].egress_micro_usd,
                profiles[name].get_micro_usd,
            )
        };
        assert_eq!(prices("a"), (90_000, 400));
        assert_eq!(prices("b"), (1_000_000, 0));
        assert_eq!(prices("c"), (20_000, 0));
    }

    #[test]
    fn what_is_wrong_is_said_without_what_is_secret() {
        for (text, wanted) in [
            ("[s]\npassword = hush\n", "line 2"),
            ("[s]\n\npassword = [\"hush\"]\n", "line 3"),
            ("[s]\npasword = \"hush\"\n", "unknown key `pasword`"),
            ("[s]\nurl = \"s3://u:hush@/\"\nuser = 3", "not an address"),
            ("[s]\npassword = \"hush\"\nuser = 3", "line 3"),
            ("[s]\nurl = \"sftp://u:hush@h/\"\n", "not an address"),
            ("[s]\nrate_max = \"hush\"\n", "not a rate"),
            ("[s]\nrate_max = \"0\"\n", "not a rate"),
            (
                "[s]\nusd_per_gb_out = -0.1\n",
                "line 2 is not understood: not a price",
            ),
            ("[s]\nusd_per_gb_out = nan\n", "not a price"),
            ("[s]\nusd_per_1000_gets = 1e9\n", "not a price"),
            ("[s]\nusd_per_1000_gets = \"hush\"\n", "not a price"),
            ("[s]\nusd_per_1000_gets = [\"hush\"]\n", "not a price"),
            ("[s]\nconnections_max = 0\n", "line 2"),
            (
                "[s]\nuser = 3\n",
                "line 2 is not understood: a string is expected there",
            ),
            (
                "[s]\nuser = [\"hush, expected hush\"]\n",
                "a string is expected there",
            ),
            ("password = \"hush\"\n", "line 1"),
            ("[\"a b\"]\npassword = \"hush\"\n", "a profile's name"),
        ] {
            let error = parse_profiles(text).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(wanted), "{text}: {shown}");
            assert!(!shown.contains("hush"), "{shown}");
        }
    }

    #[test]
    fn plugins_are_told_all_credentials() {
        let text = "[s]\nuser = \"me\"\npassword = \"hush\"\n[s.plugin]\nproxy = \"/tmp/x\"\n";
        let profiles = parse_profiles(text).unwrap();
        let told: Vec<(String, String)> = profiles.by_name["s"].for_plugin().into_iter().collect();
        let wanted = [("password", "hush"), ("proxy", "/tmp/x"), ("user", "me")];
        assert_eq!(told, wanted.map(|(key, text)| (key.into(), text.into())));
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = "[s]\npassword = \"hush\"\ntoken = \"hush\"\naccount_key = \"hush\"\nsas_token = \"hush\"\nsecret_access_key = \"hush\"\nsession_token = \"hush\"\nplugin = { key = \"hush\" }\n";
        let shown = format!("{:?}", parse_profiles(text).unwrap());
        assert!(!shown.contains("hush") && shown.contains('…'), "{shown}");
    }
}
