//! Logins by the site's identity provider: a token that an OpenID provider signed is as good as one
//! of the service.
//!
//! `settings` defines the trusted provider and the users' rights. `issuer` asks the provider;
//! `keys` and `jwt` check that it signed a token, for this service and for now; `grants` makes a
//! caller of the token's claims. Nothing of a token is believed before its signature is checked,
//! except which key is to check it.

mod grants;
mod issuer;
mod jwt;
mod keys;
mod settings;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Timestamp;
use tokio::sync::{Mutex, Notify};

pub use issuer::{Discovery, Issuer};
pub use jwt::ends as token_ends;
pub use settings::Oidc;
pub(crate) use settings::Written;

use crate::{monotonic, tokens::Caller};
use jwt::Token;
use keys::{Keys, Verdict};

/// Interval of fetching the provider's keys: a withdrawn key is trusted for this long at most.
const KEYS_EVERY: Duration = Duration::from_secs(3600);
/// Interval after a failed fetch.
const KEYS_AGAIN: Duration = Duration::from_secs(60);
/// Time for which keys are trusted if the provider can't be reached.
const KEYS_GOOD_FOR: Duration = Duration::from_secs(86_400);
/// Pause after a fetch that a token caused and that found no new key, for all callers.
const ASKED_EVERY: Duration = Duration::from_secs(10);

/// Trusted provider, if any. It may be replaced while the service runs.
#[derive(Default)]
pub(crate) struct Logins {
    trusted: RwLock<Option<Arc<Trusted>>>,
    changed: Notify,
}

impl Oidc {
    /// Prepares the provider. Asks nothing yet.
    ///
    /// # Errors
    /// Errors of [`Issuer::open`].
    pub(crate) fn open(&self) -> Result<Trusted> {
        Ok(Trusted {
            issuer: Issuer::open(&self.issuer, self.ca_file.as_deref())?,
            settings: self.clone(),
            known: RwLock::default(),
            asked: Mutex::default(),
        })
    }
}

/// Provider, and its known state.
pub(crate) struct Trusted {
    settings: Oidc,
    issuer: Issuer,
    known: RwLock<Option<(Instant, Arc<Keys>)>>,
    /// Last fetch of keys in vain because of a token; held during a fetch.
    asked: Mutex<Option<Instant>>,
}

impl Logins {
    /// Trusts this provider, or none if there are no settings.
    ///
    /// # Errors
    /// Errors of [`Issuer::open`].
    pub(crate) fn open(settings: Option<&Oidc>) -> Result<Self> {
        let logins = Self::default();
        logins.trust(settings.map(Oidc::open).transpose()?);
        Ok(logins)
    }

    /// Replaces the trusted provider, or removes it. Keys are fetched when needed.
    pub(crate) fn trust(&self, opened: Option<Trusted>) {
        let trusted = opened.map(Arc::new);
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
        self.changed.notify_one();
    }

    fn trusted(&self) -> Option<Arc<Trusted>> {
        let trusted = self.trusted.read();
        trusted.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how users log in, for any caller; none if they can't.
    pub(crate) fn told(&self) -> Option<api::Identity> {
        let trusted = self.trusted()?;
        let settings = &trusted.settings;
        Some(api::Identity {
            issuer: settings.issuer.clone(),
            client_id: settings.client_id.clone(),
            scopes: settings.scopes.clone(),
            bearer: settings.bearer,
        })
    }

    /// Returns the caller of a token that a provider signed; none if logins are off, or it is no
    /// such token.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] for a token that is not good, or not for this service;
    /// [`ErrorKind::PermissionDenied`] for a user without a grant; those of asking for keys.
    pub(crate) async fn caller(&self, shown: &str, now: Timestamp) -> Option<Result<Arc<Caller>>> {
        if !jwt::looks_like_one(shown) {
            return None;
        }
        let trusted = self.trusted()?;
        Some(trusted.caller(shown, now).await.map(Arc::new))
    }

    /// Keeps the keys fresh until the service ends.
    pub(crate) async fn keep_fresh(self: Arc<Self>) -> Result<()> {
        let mut said = String::new();
        loop {
            let pause = match self.trusted() {
                None => Duration::MAX,
                Some(trusted) => match trusted.ask().await {
                    Ok(()) => {
                        said.clear();
                        KEYS_EVERY
                    }
                    Err(error) => {
                        let now = error.to_string();
                        if now != said {
                            tracing::warn!("{now}");
                            said = now;
                        }
                        KEYS_AGAIN
                    }
                },
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

impl Trusted {
    async fn caller(&self, shown: &str, now: Timestamp) -> Result<Caller> {
        let refused = |cause: &str| {
            Error::new(ErrorKind::Unauthenticated, "use", "the service")
                .cause(cause.to_owned())
                .hint("`posthaste login` gets a new one")
        };
        let token = Token::read(shown).map_err(refused)?;
        // This check is free, and says more than an unknown signature.
        token.is_of(&self.settings.issuer).map_err(refused)?;
        match self.check(&token).await? {
            Verdict::Good => {}
            Verdict::Unknown => {
                return Err(refused(
                    "it is signed by a key that its issuer does not have",
                ));
            }
            Verdict::Bad => return Err(refused("its signature is wrong")),
        }
        let until = token.is_good(&self.settings.audience, now);
        let until = until.map_err(refused)?;
        grants::caller(&self.settings, token.claims(), until)
    }

    /// Checks a signature, with new keys if it names an unknown one.
    async fn check(&self, token: &Token<'_>) -> Result<Verdict> {
        let known = self.known();
        let verdict = known.as_ref().map(|keys| token.check(keys));
        if let Some(verdict @ (Verdict::Good | Verdict::Bad)) = verdict {
            return Ok(verdict);
        }
        let mut asked = self.asked.lock().await;
        let is_early = asked.is_some_and(|at| monotonic().duration_since(at) < ASKED_EVERY);
        if is_early {
            // Another caller may have fetched them meanwhile.
            let keys = self.known().ok_or_else(|| self.has_no_keys())?;
            return Ok(token.check(&keys));
        }
        let answer = self.ask().await;
        let verdict = self.known().map(|keys| token.check(&keys));
        // A token with a key that is found then caused a justified fetch, and delays no others.
        let is_found = matches!(verdict, Some(Verdict::Good | Verdict::Bad));
        *asked = (!is_found).then(monotonic);
        match (verdict, answer) {
            (Some(verdict), _) => Ok(verdict),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(self.has_no_keys()),
        }
    }

    fn has_no_keys(&self) -> Error {
        let issuer = &self.settings.issuer;
        Error::new(ErrorKind::Unreachable, "check", "the token")
            .cause(format!(
                "the keys of {issuer} could not be had a moment ago"
            ))
            .retry_after(ASKED_EVERY)
    }

    /// Returns the keys if they are recent enough.
    fn known(&self) -> Option<Arc<Keys>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (since, keys) = known.as_ref()?;
        let is_good = monotonic().duration_since(*since) < KEYS_GOOD_FOR;
        is_good.then(|| Arc::clone(keys))
    }

    /// Fetches the current keys.
    async fn ask(&self) -> Result<()> {
        let discovery = self.issuer.discover().await?;
        let keys = self.issuer.keys(&discovery).await?;
        let known = Some((monotonic(), Arc::new(keys)));
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }
}
