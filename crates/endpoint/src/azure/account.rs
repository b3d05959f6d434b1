//! Storage accounts, and the credentials for them.

use std::path::PathBuf;

use crate::{
    Error, ErrorKind, Result, Server,
    access::Chosen,
    config::{self, AzureSettings, Secret},
    web::bearer::Bearer,
};

/// Domains after `ACCOUNT.blob.` in the existing clouds.
const CLOUDS: [&str; 3] = [
    "core.windows.net",
    "core.usgovcloudapi.net",
    "core.chinacloudapi.cn",
];

/// Credential of requests.
pub(super) enum Credential {
    /// Shared Key, with which each request is signed.
    Key { account: String, key: Vec<u8> },
    /// Shared access signature: the query without its `?`.
    Sas(Secret),
    /// Bearer token.
    Token(Bearer),
    /// None, for public data.
    Nobody,
}

/// Storage account.
pub(super) struct Account {
    /// URL `https://ACCOUNT.blob.core.windows.net`, without a slash at the end.
    pub base: String,
    pub credential: Credential,
    /// Certificates to trust beside the system's, in PEM.
    pub ca_file: Option<PathBuf>,
}

/// Returns the account whose blobs a host holds: `ACCOUNT.blob.core.windows.net`.
fn account_of(host: &str) -> Option<&str> {
    let (account, rest) = host.split_once('.')?;
    let cloud = rest.strip_prefix("blob.")?;
    (is_account(account) && CLOUDS.contains(&cloud)).then_some(account)
}

/// Returns whether a web address is a place in an account. An address with a query other than a
/// signature (a snapshot, a version) is read as from any web server.
pub(crate) fn is_address(server: &Server) -> bool {
    let query = server.query.as_deref();
    let is_plain = query.is_none_or(|query| query.contains("sig="));
    let is_above = server.path.is_empty();
    is_plain && !is_above && account_of(&server.host).is_some()
}

/// Returns whether a name can be an account's: lower-case letters and digits ("Storage account
/// overview"), and `-` for secondary places.
fn is_account(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

impl Account {
    /// Loads the account of the chosen profile, or else of the environment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown profile or an invalid setting in it;
    /// [`ErrorKind::Unauthenticated`] without credentials.
    pub(super) fn load(chosen: Option<&Chosen>) -> Result<Self> {
        let settings = said_by(chosen)?;
        let base = base_of(&settings)?;
        let credential = credential_of(settings)?.ok_or_else(|| {
            Error::new(ErrorKind::Unauthenticated, "use", &*base)
                .cause("no usable credentials")
                .hint(
                    "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or \
                     AZURE_STORAGE_CONNECTION_STRING, or name a profile; anonymous = true in a \
                     profile reads what is public",
                )
        })?;
        Ok(Self {
            base,
            credential,
            ca_file: ca_file_of(chosen),
        })
    }

    /// Returns the account of the address `server`, with the signature in the address. Otherwise
    /// uses the credentials of the chosen profile or of the environment if they are this account's.
    /// Public data needs none.
    ///
    /// # Errors
    /// Errors of [`Account::load`].
    pub(super) fn of_address(server: &Server, chosen: Option<&Chosen>) -> Result<Self> {
        let account = account_of(&server.host).unwrap_or_default();
        let port = server
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        let mut settings = match &server.query {
            Some(query) => AzureSettings {
                sas: Some(Secret::new(query.as_str())),
                ..AzureSettings::default()
            },
            None => said_by(chosen)?,
        };
        let is_ours = settings
            .account
            .as_deref()
            .is_none_or(|said| said == account);
        if !is_ours {
            settings = AzureSettings::default();
        }
        settings.account = Some(account.to_owned());
        Ok(Self {
            base: format!("https://{}{port}", server.host),
            credential: credential_of(settings)?.unwrap_or(Credential::Nobody),
            ca_file: ca_file_of(chosen),
        })
    }
}

/// Returns the address of the account of the chosen profile or of the environment.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile or an invalid setting in it.
pub(crate) fn address_of(chosen: Option<&Chosen>) -> Result<String> {
    base_of(&said_by(chosen)?)
}

fn base_of(settings: &AzureSettings) -> Result<String> {
    match (&settings.endpoint, &settings.account) {
        (Some(endpoint), _) => checked_base(endpoint),
        (None, Some(account)) if is_account(account) => {
            Ok(format!("https://{account}.blob.{}", CLOUDS[0]))
        }
        (None, Some(_)) => Err(wrong(
            "the account is not made of lower-case letters and digits",
        )),
        (None, None) => Err(wrong("no storage account").hint(
            "set AZURE_STORAGE_ACCOUNT, or name a profile with an account (see \
             docs/reference/profiles.md)",
        )),
    }
}

impl Credential {
    /// Returns a hash that distinguishes credentials and reveals nothing else.
    pub(super) fn fingerprint(&self) -> String {
        let hash = match self {
            Self::Key { key, .. } => blake3::hash(key),
            Self::Sas(sas) => blake3::hash(sas.reveal().as_bytes()),
            Self::Token(token) => blake3::hash(token.name().as_bytes()),
            Self::Nobody => return String::new(),
        };
        hash.to_hex()[..16].to_owned()
    }
}

fn said_by(chosen: Option<&Chosen>) -> Result<AzureSettings> {
    match chosen {
        Some(chosen) => {
            let profile = chosen.ours.as_ref();
            let profile = profile.ok_or_else(|| config::no_profile(&chosen.name))?;
            AzureSettings::of_profile(profile, &chosen.name)
        }
        None => AzureSettings::of_environment(),
    }
}

fn ca_file_of(chosen: Option<&Chosen>) -> Option<PathBuf> {
    chosen?.ours.as_ref()?.ca_file.clone()
}

fn wrong(cause: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "use", "Azure Blob Storage").cause(cause)
}

fn checked_base(endpoint: &str) -> Result<String> {
    let base = endpoint.trim_end_matches('/');
    if !base.starts_with("http://") && !base.starts_with("https://") {
        return Err(wrong("the endpoint has no scheme")
            .hint("write https://ACCOUNT.blob.core.windows.net or http://host:port/ACCOUNT"));
    }
    if base.contains('?') {
        return Err(wrong("the endpoint has a query").hint("give a signature as sas_token"));
    }
    Ok(base.to_owned())
}

/// Returns the configured credential; `None` if there is none and anonymous access was not
/// requested.
fn credential_of(settings: AzureSettings) -> Result<Option<Credential>> {
    if let Some(key) = settings.key {
        let account = settings
            .account
            .ok_or_else(|| wrong("an account key without the account's name"))?;
        let key = reqsign_core::hash::base64_decode(key.reveal().trim())
            .map_err(|_| wrong("the account key is no base64"))?;
        return Ok(Some(Credential::Key { account, key }));
    }
    if let Some(sas) = settings.sas {
        let text = sas.reveal().trim().trim_start_matches('?');
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if !is_plain || !text.contains("sig=") {
            return Err(wrong("the SAS token has no signature")
                .hint("it begins with sv= or so and holds sig="));
        }
        return Ok(Some(Credential::Sas(Secret::new(text))));
    }
    if let Some(source) = settings.token {
        return Ok(Some(Credential::Token(Bearer::new(source)?)));
    }
    Ok(settings.anonymous.then_some(Credential::Nobody))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Location, Profile};

    fn chosen(text: &str) -> Chosen {
        let profile: Profile = toml::from_str(text).unwrap();
        Chosen {
            name: "azure".to_owned(),
            ours: Some(profile),
        }
    }

    fn load(text: &str) -> Result<Account> {
        Account::load(Some(&chosen(text)))
    }

    fn of_address(address: &str, profile: &str) -> Result<Account> {
        let Ok(Location::Server(server)) = Location::parse(address.as_ref()) else {
            panic!("{address} is a server");
        };
        Account::of_address(&server, Some(&chosen(profile)))
    }

    #[test]
    fn profiles_say_where_and_who() {
        let found = load("account = \"me\"\naccount_key = \"aGk=\"").unwrap();
        assert_eq!(found.base, "https://me.blob.core.windows.net");
        assert!(matches!(found.credential, Credential::Key { key, .. } if key == b"hi"));
        let found = load("endpoint = \"http://h:1/me/\"\nsas_token = \"?sv=1&sig=x\"").unwrap();
        assert_eq!(found.base, "http://h:1/me");
        assert!(matches!(found.credential, Credential::Sas(sas) if sas.reveal() == "sv=1&sig=x"));
        let found = load("account = \"me\"\ntoken = \"abc\"").unwrap();
        assert!(matches!(found.credential, Credential::Token(_)));
        let found = load("account = \"me\"\nanonymous = true").unwrap();
        assert!(matches!(found.credential, Credential::Nobody));
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_without_the_secret() {
        for (text, wanted) in [
            ("account_key = \"aGk=\"", "AZURE_STORAGE_ACCOUNT"),
            ("account = \"me\"", "no usable credentials"),
            ("account = \"me\"\naccount_key = \"hush!\"", "no base64"),
            ("account = \"me\"\nsas_token = \"hush\"", "no signature"),
            (
                "account = \"me\"\nsas_token = \"sig=hush hush\"",
                "no signature",
            ),
            ("account = \"me\"\ntoken = \"hush\\u0001\"", "no header"),
            (
                "account = \"me.evil.example/\"\ntoken = \"hush\"",
                "lower-case",
            ),
            ("endpoint = \"h:1\"\ntoken = \"hush\"", "no scheme"),
            (
                "endpoint = \"http://h:1\"\naccount_key = \"aGk=\"",
                "without the account",
            ),
        ] {
            let Err(error) = load(text) else {
                panic!("{text} passed");
            };
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(wanted), "{text}: {shown}");
            assert!(!shown.contains("hush"), "{shown}");
        }
    }

    #[test]
    fn addresses_of_accounts_are_known() {
        assert_eq!(account_of("me.blob.core.windows.net"), Some("me"));
        assert_eq!(account_of("me.blob.core.usgovcloudapi.net"), Some("me"));
        for host in [
            "me.blob.evil.example",
            "blob.core.windows.net",
            "me.dfs.core.windows.net",
        ] {
            assert_eq!(account_of(host), None, "{host}");
        }
        let address = "https://me.blob.core.windows.net/c/k";
        let found = of_address(&format!("{address}?sv=1&sig=x"), "").unwrap();
        assert_eq!(found.base, "https://me.blob.core.windows.net");
        assert!(matches!(found.credential, Credential::Sas(_)));
        let key = "account = \"me\"\naccount_key = \"aGk=\"";
        let found = of_address(address, key).unwrap();
        assert!(matches!(found.credential, Credential::Key { .. }));
        let other = key.replace("\"me\"", "\"other\"");
        let found = of_address(address, &other).unwrap();
        assert!(
            matches!(found.credential, Credential::Nobody),
            "another account's key is sent"
        );
    }
}
