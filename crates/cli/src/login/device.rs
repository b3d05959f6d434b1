//! Device authorization flow (RFC 8628), and the tokens that it yields.

use std::time::Duration;

use posthaste_api::Bearer;
use posthaste_service::{Discovery, Issuer, token_ends};
use serde::Deserialize;
use serde_json::Value;

use super::stored::{Stored, Tokens, now_s};
use crate::failure::{Exit, Failure};

/// Default polling interval (RFC 8628, section 3.2), and its increase when the provider asks to
/// slow down (section 3.5).
const INTERVAL_S: u64 = 5;
const SLOWER_S: u64 = 5;
/// Limit of a provider's wait for the user's confirmation, and of its polling interval.
const WAIT_S_MAX: u64 = 3600;
const INTERVAL_S_MAX: u64 = 300;

/// The command line as a client of a provider.
pub struct Client<'a> {
    pub issuer: &'a Issuer,
    pub discovery: Discovery,
    pub id: &'a str,
    pub secret: Option<String>,
}

/// Address to open and code to enter (RFC 8628, section 3.2).
#[derive(Deserialize)]
pub struct Offer {
    device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    pub verification_uri_complete: Option<String>,
    pub expires_in: u64,
    interval: Option<u64>,
}

/// Tokens from a provider (RFC 6749, section 5.1; OpenID Connect Core 1.0, section 3.1.3.3).
#[derive(Deserialize)]
pub struct Given {
    access_token: String,
    expires_in: Option<u64>,
    id_token: Option<String>,
    refresh_token: Option<String>,
}

/// Reason for which the provider gives nothing.
enum Refusal {
    /// Provider's error code (RFC 6749, section 5.2).
    Word(String),
    Failure(Failure),
}

impl Client<'_> {
    /// Requests a device login.
    ///
    /// # Errors
    /// Fails if the provider can't be reached or supports no device logins.
    pub async fn ask(&self, scopes: &[String]) -> Result<Offer, Failure> {
        let Some(address) = &self.discovery.device_authorization_endpoint else {
            return Err(Failure::new(
                Exit::Fatal,
                "can't log in: the provider does not know the device flow (RFC 8628)",
            ));
        };
        let scopes = scopes.join(" ");
        let answer = self.post(address, &[("scope", &scopes)]).await;
        let offer: Offer = answer.map_err(|refusal| refusal.said("let this client in"))?;
        let complete = offer.verification_uri_complete.as_deref();
        let texts = [
            &*offer.user_code,
            &offer.verification_uri,
            complete.unwrap_or_default(),
        ];
        // They are shown on a terminal.
        if texts.concat().chars().any(posthaste_types::is_obeyed) {
            return Err(Failure::new(
                Exit::Fatal,
                "can't log in: the provider's code or address can't be shown",
            ));
        }
        Ok(offer)
    }

    /// Waits until the user confirmed.
    ///
    /// # Errors
    /// Fails if the user declined, did nothing in time, or the provider can't be reached.
    pub async fn wait(&self, offer: &Offer) -> Result<Given, Failure> {
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", &offer.device_code),
        ];
        let patience = Duration::from_secs(offer.expires_in.min(WAIT_S_MAX));
        let asking = async {
            let mut interval_s = offer.interval.unwrap_or(INTERVAL_S).max(1);
            loop {
                let wait_s = interval_s.min(INTERVAL_S_MAX);
                tokio::time::sleep(Duration::from_secs(wait_s)).await;
                match self.post(&self.discovery.token_endpoint, &form).await {
                    Ok(given) => return Ok(given),
                    Err(Refusal::Word(word)) if word == "authorization_pending" => {}
                    Err(Refusal::Word(word)) if word == "slow_down" => interval_s += SLOWER_S,
                    // A provider that does not answer may be overloaded (RFC 8628, section 3.5).
                    Err(Refusal::Failure(failure)) if failure.may_pass() => interval_s *= 2,
                    Err(refusal) => return Err(refusal.said("give a token")),
                }
            }
        };
        let over = || {
            Failure::new(
                Exit::TimeLimit,
                "can't log in: nobody entered the code in time",
            )
        };
        tokio::time::timeout(patience, asking)
            .await
            .unwrap_or_else(|_| Err(over()))
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &self,
        address: &str,
        form: &[(&str, &str)],
    ) -> Result<T, Refusal> {
        let mut form = form.to_vec();
        form.push(("client_id", self.id));
        if let Some(secret) = &self.secret {
            form.push(("client_secret", secret));
        }
        let asked = self.issuer.post(address, &form).await;
        let (status, answer) = asked.map_err(|error| Refusal::Failure(error.into()))?;
        if !status.is_success() {
            let word = answer.get("error").and_then(Value::as_str);
            return Err(Refusal::Word(word.unwrap_or(status.as_str()).to_owned()));
        }
        serde_json::from_value(answer).map_err(|_| {
            let message = format!("can't log in: {address} does not answer as it should");
            Refusal::Failure(Failure::new(Exit::Other, message))
        })
    }
}

impl Refusal {
    fn said(self, what: &str) -> Failure {
        let word = match self {
            Self::Failure(failure) => return failure,
            Self::Word(word) => word,
        };
        let why = match &*word {
            "access_denied" => "somebody said no".to_owned(),
            "expired_token" => "nobody entered the code in time".to_owned(),
            word => format!("it says {}", word.escape_debug()),
        };
        Failure::new(Exit::Fatal, format!("the provider does not {what}: {why}"))
    }
}

impl Given {
    /// Returns the tokens to store. Without a new refresh token, the previous one may still work.
    ///
    /// # Errors
    /// Fails if the token to present is missing.
    pub fn kept(self, bearer: Bearer, before: Option<String>) -> Result<Tokens, Failure> {
        let (shown, lives_s) = match bearer {
            Bearer::AccessToken => (Some(self.access_token), self.expires_in),
            Bearer::IdToken => (self.id_token, None),
        };
        let Some(shown) = shown else {
            return Err(Failure::new(
                Exit::Fatal,
                "can't log in: the provider gives no ID token (`posthaste login` again, and ask whoever runs the service)",
            ));
        };
        let ends = token_ends(&shown).map(|ends| ends.as_micros() / 1_000_000);
        let ends = ends.or_else(|| lives_s.map(|lives_s| now_s().saturating_add(lives_s)));
        Ok(Tokens {
            shown,
            ends_s: ends,
            refresh: self.refresh_token.or(before),
        })
    }
}

/// Renews stored tokens.
///
/// # Errors
/// Fails if the provider can't be reached, or renews nothing.
pub async fn renew(stored: &Stored) -> Result<Tokens, Failure> {
    let again = |why: &str| {
        Failure::new(
            Exit::Fatal,
            format!(
                "can't use the login to {}: it has ended, and {why} (`posthaste login` again)",
                stored.service
            ),
        )
    };
    let Some(refresh) = &stored.tokens.refresh else {
        return Err(again("the provider gave nothing to renew it with"));
    };
    let issuer = Issuer::open(&stored.issuer, stored.ca_file.as_deref())?;
    let client = client(stored, &issuer).await?;
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
    let given: Result<Given, _> = client.post(&client.discovery.token_endpoint, &form).await;
    match given {
        Ok(given) => given.kept(stored.bearer, Some(refresh.clone())),
        Err(Refusal::Failure(failure)) => Err(failure),
        Err(Refusal::Word(word)) => {
            let why = format!("the provider renews it no more: {}", word.escape_debug());
            Err(again(&why))
        }
    }
}

/// Revokes the refresh token (RFC 7009).
///
/// # Errors
/// Fails if the provider can't be reached, or supports no revocation.
pub async fn give_back(stored: &Stored) -> Result<(), Failure> {
    let Some(refresh) = &stored.tokens.refresh else {
        return Ok(());
    };
    let issuer = Issuer::open(&stored.issuer, stored.ca_file.as_deref())?;
    let client = client(stored, &issuer).await?;
    let Some(address) = &client.discovery.revocation_endpoint else {
        return Err(Failure::new(
            Exit::Other,
            format!("{} takes no tokens back", stored.issuer),
        ));
    };
    let form = [("token", &**refresh), ("token_type_hint", "refresh_token")];
    let answer: Result<Value, _> = client.post(address, &form).await;
    answer
        .map(drop)
        .map_err(|refusal| refusal.said("take the login back"))
}

async fn client<'a>(stored: &'a Stored, issuer: &'a Issuer) -> Result<Client<'a>, Failure> {
    let secret = stored.client_secret_file.as_deref();
    Ok(Client {
        issuer,
        discovery: issuer.discover().await?,
        id: &stored.client_id,
        secret: secret.map(posthaste_service::read_private).transpose()?,
    })
}
