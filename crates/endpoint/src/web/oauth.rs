//! Tokens for accounts (RFC 6749, RFC 7523).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, header};
use rustls::{SignatureScheme, crypto::ring, sign::SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Error, ErrorKind, Locus, Result, clock,
    config::Secret,
    web::{About, Sent, Web, encode, kind_of_status, read_refusal, read_whole, refused},
};

/// Address at which Google issues tokens.
pub(crate) const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// Scope of the tokens: objects may be read and written, access lists not.
const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// Lifetime of an assertion: Google accepts no more than an hour.
const ASSERTED_FOR_S: u64 = 3600;

/// Time before a token's end at which it is renewed: a request with it may take a while.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);

/// Longest time the token service may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Account for which tokens are requested.
pub(crate) struct Account {
    pub grant: Grant,
    /// Address at which tokens are issued.
    pub token_uri: String,
}

/// Credentials shown for a token.
pub(crate) enum Grant {
    /// Assertion that a service account signs.
    Signed {
        email: String,
        key_id: Option<String>,
        key: Arc<dyn SigningKey>,
    },
    /// Credentials that a person got when logging in.
    Refreshed {
        client_id: String,
        client_secret: Option<Secret>,
        refresh_token: Secret,
    },
}

impl Grant {
    /// Returns a name that distinguishes accounts; never a secret.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Signed { email, .. } => email,
            Self::Refreshed { client_id, .. } => client_id,
        }
    }
}

/// Token and the time until which it is used.
pub(crate) struct Token {
    pub secret: Secret,
    pub good_until: Instant,
    /// Refresh token that replaces the previous one from now on.
    pub refresh: Option<Secret>,
}

/// Reads the key of a service account from PEM.
pub(crate) fn signing_key(pem: &Secret) -> Option<Arc<dyn SigningKey>> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.reveal().as_bytes()).ok()?;
    let provider = ring::default_provider().key_provider;
    let key = provider.load_private_key(PrivateKeyDer::Pkcs8(der)).ok()?;
    key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])?;
    Some(key)
}

/// Requests a token, with `refresh` instead of the account's own refresh token if that was
/// replaced.
///
/// # Errors
/// [`ErrorKind::Unauthenticated`] if the service gives none; errors of [`Web::send`].
pub(crate) async fn fetch(web: &Web, account: &Account, refresh: Option<&Secret>) -> Result<Token> {
    let about = About {
        operation: "get a token from",
        subject: account.token_uri.clone(),
        locus: Locus::Client,
    };
    let asked = clock::now();
    let form = form_of(account, refresh, &about)?;
    let request = Request::post(&account.token_uri)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Sent::pieces(vec![form.into()]))
        .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
    let (head, body) = web
        .send(request, &about, ANSWERS_WITHIN)
        .await?
        .into_parts();
    if !head.status.is_success() {
        let body = read_refusal(body).await;
        let mut kind = kind_of_status(head.status);
        if head.status.is_client_error() && kind.0 != ErrorKind::Busy {
            let hint = match &account.grant {
                Grant::Signed { .. } => "check the account's key file and this machine's clock",
                Grant::Refreshed { .. } => "log in again: the refresh token may have ended",
            };
            kind = (ErrorKind::Unauthenticated, hint);
        }
        return Err(refused(
            &about,
            head.status,
            &head.headers,
            kind,
            reason(&body),
        ));
    }
    let body = read_whole(body, &about).await?;
    // Don't quote the answer: it holds the token.
    let given: Given = serde_json::from_slice(&body).map_err(|_| {
        let error = about.fail(ErrorKind::Unauthenticated);
        error.cause("the answer holds no token")
    })?;
    let lifetime = Duration::from_secs(given.expires_in);
    Ok(Token {
        secret: given.access_token,
        refresh: given.refresh_token,
        good_until: asked + lifetime.saturating_sub(RENEWED_BEFORE.min(lifetime / 2)),
    })
}

#[derive(Deserialize)]
struct Given {
    access_token: Secret,
    refresh_token: Option<Secret>,
    #[serde(default = "an_hour")]
    expires_in: u64,
}

fn an_hour() -> u64 {
    3600
}

/// Returns the reason in a refusal of the service (RFC 6749, section 5.2).
fn reason(body: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Refusal {
        error: String,
        error_description: String,
    }
    let read: Refusal = serde_json::from_slice(body).unwrap_or_default();
    match (&*read.error, &*read.error_description) {
        (error, "") => error.to_owned(),
        (error, description) => format!("{error}: {}", description.trim_end_matches('.')),
    }
}

fn form_of(account: &Account, refresh: Option<&Secret>, about: &About) -> Result<String> {
    let pairs: Vec<(&str, String)> = match &account.grant {
        Grant::Signed { email, key_id, key } => {
            let assertion = assertion(email, key_id.as_deref(), key.as_ref(), &account.token_uri);
            let assertion = assertion.map_err(|cause| {
                let error: Error = about.fail(ErrorKind::Unauthenticated);
                error.cause(cause)
            })?;
            vec![
                (
                    "grant_type",
                    "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned(),
                ),
                ("assertion", assertion),
            ]
        }
        Grant::Refreshed {
            client_id,
            client_secret,
            refresh_token,
        } => {
            let refresh_token = refresh.unwrap_or(refresh_token);
            let mut pairs = vec![
                ("grant_type", "refresh_token".to_owned()),
                ("client_id", client_id.clone()),
                ("refresh_token", refresh_token.reveal().to_owned()),
            ];
            let secret = client_secret.as_ref();
            pairs.extend(secret.map(|secret| ("client_secret", secret.reveal().to_owned())));
            pairs
        }
    };
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value.as_bytes(), false)))
        .collect();
    Ok(pairs.join("&"))
}

/// Returns a signed claim to be `email` (RFC 7519, RFC 7515 with RS256).
fn assertion(
    email: &str,
    key_id: Option<&str>,
    key: &dyn SigningKey,
    audience: &str,
) -> Result<String, rustls::Error> {
    let now = clock::unix_secs();
    let head = json!({ "alg": "RS256", "typ": "JWT", "kid": key_id });
    let claims = json!({
        "iss": email,
        "scope": SCOPE,
        "aud": audience,
        "iat": now,
        "exp": now + ASSERTED_FOR_S,
    });
    let texts = [head, claims].map(|text| base64_url(text.to_string().as_bytes()));
    let signed = texts.join(".");
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .ok_or_else(|| rustls::Error::General("the key is no RSA key".to_owned()))?;
    let signature = base64_url(&signer.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Encodes bytes in base64 for addresses, without padding (RFC 4648, section 5).
fn base64_url(bytes: &[u8]) -> String {
    let text = reqsign_core::hash::base64_encode(bytes);
    text.trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_")
}
