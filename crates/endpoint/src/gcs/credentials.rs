//! Credentials: none, a bearer token, or an account with a key file.

use std::path::Path;

use http::HeaderValue;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{
    Error, ErrorKind, Result,
    access::Chosen,
    clock,
    config::{self, Profile, Secret, google_emulator, google_key_file, read_small_file},
    web::{
        Web,
        bearer::Bearer,
        oauth::{self, Account, Grant, Token},
    },
};

/// Address of Google's own service.
const GOOGLE: &str = "https://storage.googleapis.com";

/// Address of the store, and the credentials for it.
pub(super) struct Address {
    pub base: String,
    pub authority: Authority,
}

impl Address {
    /// Finds the settings in the chosen profile, else in the environment.
    pub(super) fn find(chosen: Option<&Chosen>) -> Result<Self> {
        let profile = profile_of(chosen)?;
        let is_emulated = google_emulator().is_some();
        let base = address_of(chosen)?;
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::new(ErrorKind::Invalid, "use the store", base)
                .cause("the address has no scheme")
                .hint("write https://host or http://host:port"));
        }
        let identity = match Identity::of(profile)? {
            Some(identity) => identity,
            None if is_emulated => Identity::Anonymous,
            None => match google_key_file() {
                Some(path) => Identity::Account(Box::new(key_file(&path)?)),
                None => Identity::Unknown,
            },
        };
        Ok(Self {
            base,
            authority: Authority {
                identity,
                token: Mutex::new(None),
            },
        })
    }
}

fn profile_of(chosen: Option<&Chosen>) -> Result<Option<(&str, &Profile)>> {
    let named = chosen.map(|chosen| {
        let ours = chosen.ours.as_ref();
        let ours = ours.ok_or_else(|| config::no_profile(&chosen.name))?;
        Ok((&*chosen.name, ours))
    });
    named.transpose()
}

/// Returns the address of the store of the chosen profile or of the environment, without a slash at
/// the end.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unknown profile.
pub(crate) fn address_of(chosen: Option<&Chosen>) -> Result<String> {
    let named = profile_of(chosen)?.and_then(|(_, profile)| profile.endpoint.clone());
    let base = named
        .or_else(google_emulator)
        .unwrap_or_else(|| GOOGLE.to_owned());
    Ok(base.trim_end_matches('/').to_owned())
}

enum Identity {
    Anonymous,
    /// No credentials configured. An error at the first request, since opening makes none.
    Unknown,
    Bearer(Bearer),
    Account(Box<Account>),
}

impl Identity {
    /// Returns the credentials that a profile of this name specifies.
    fn of(profile: Option<(&str, &Profile)>) -> Result<Option<Self>> {
        let Some((name, profile)) = profile else {
            return Ok(None);
        };
        if profile.anonymous {
            return Ok(Some(Self::Anonymous));
        }
        if let Some(source) = config::token_source(profile, name)? {
            return Ok(Some(Self::Bearer(Bearer::new(source)?)));
        }
        let account = profile.service_account_file.as_deref().map(key_file);
        Ok(account.transpose()?.map(|key| Self::Account(Box::new(key))))
    }
}

/// Key file as Google hands it out, or as `gcloud` leaves it.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KeyFile {
    ServiceAccount {
        client_email: String,
        private_key: Secret,
        private_key_id: Option<String>,
        token_uri: Option<String>,
    },
    AuthorizedUser {
        client_id: String,
        client_secret: Secret,
        refresh_token: Secret,
        token_uri: Option<String>,
    },
}

fn key_file(path: &Path) -> Result<Account> {
    let shown = path.to_string_lossy();
    let text =
        read_small_file(path).map_err(|cause| Error::io("read the key in", &*shown, cause))?;
    // Messages never quote invalid text, which may be part of the key.
    let invalid = |cause: &'static str| {
        Error::new(ErrorKind::Invalid, "use the key in", &*shown)
            .cause(cause)
            .hint("name a service account's key file as Google hands it out")
    };
    let read: KeyFile =
        serde_json::from_slice(&text).map_err(|_| invalid("it is no key file of an account"))?;
    let (grant, token_uri) = match read {
        KeyFile::ServiceAccount {
            client_email,
            private_key,
            private_key_id,
            token_uri,
        } => {
            let key = oauth::signing_key(&private_key)
                .ok_or_else(|| invalid("its private key is no RSA key in PKCS #8"))?;
            let grant = Grant::Signed {
                email: client_email,
                key_id: private_key_id,
                key,
            };
            (grant, token_uri)
        }
        KeyFile::AuthorizedUser {
            client_id,
            client_secret,
            refresh_token,
            token_uri,
        } => {
            let grant = Grant::Refreshed {
                client_id,
                client_secret: Some(client_secret),
                refresh_token,
            };
            (grant, token_uri)
        }
    };
    Ok(Account {
        grant,
        token_uri: token_uri.unwrap_or_else(|| oauth::TOKEN_URI.to_owned()),
    })
}

/// Credentials, with the current token.
pub(super) struct Authority {
    identity: Identity,
    token: Mutex<Option<Token>>,
}

impl Authority {
    /// Returns a name that distinguishes credentials; never a secret.
    pub(super) fn name(&self) -> String {
        match &self.identity {
            Identity::Anonymous | Identity::Unknown => "anonymous".to_owned(),
            Identity::Bearer(token) => token.name(),
            Identity::Account(account) => account.grant.name().to_owned(),
        }
    }

    /// Returns the header with a token that is still valid for a while.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] if no token is available.
    pub(super) async fn header(&self, web: &Web) -> Result<Option<HeaderValue>> {
        match &self.identity {
            Identity::Anonymous => Ok(None),
            Identity::Unknown => Err(Error::new(
                ErrorKind::Unauthenticated,
                "use",
                "Google Cloud Storage",
            )
            .cause("there are no credentials")
            .hint("set GOOGLE_APPLICATION_CREDENTIALS or name a profile, see docs/reference/profiles.md")),
            Identity::Bearer(token) => token.header(web).await.map(Some),
            Identity::Account(account) => {
                // Held while a token is fetched, so that one request fetches it for all.
                let mut token = self.token.lock().await;
                let now = clock::now();
                if let Some(held) = token.as_ref().filter(|held| held.good_until > now) {
                    return bearer(&held.secret).map(Some);
                }
                let fresh = oauth::fetch(web, account, None).await?;
                let header = bearer(&fresh.secret);
                *token = Some(fresh);
                header.map(Some)
            }
        }
    }

    /// Forgets the token in this header, which was refused; returns whether another can be fetched.
    pub(super) async fn forget(&self, shown: &Option<HeaderValue>) -> bool {
        match (&self.identity, shown) {
            (Identity::Account(_), _) => {}
            (Identity::Bearer(token), Some(shown)) => return token.forget(shown).await,
            (Identity::Bearer(_) | Identity::Anonymous | Identity::Unknown, _) => return false,
        }
        let mut token = self.token.lock().await;
        let held = token.as_ref().and_then(|held| bearer(&held.secret).ok());
        // Another request may have fetched a new one meanwhile.
        if held == *shown {
            *token = None;
        }
        true
    }
}

fn bearer(token: &Secret) -> Result<HeaderValue> {
    let text = format!("Bearer {}", token.reveal().trim());
    let mut value = HeaderValue::try_from(text).map_err(|_| {
        Error::new(ErrorKind::Invalid, "use", "the token")
            .cause("it has characters no header can carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}
