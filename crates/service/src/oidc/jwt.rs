//! Checks signed claims (RFC 7515, RFC 7519): whether they are for this service and for now (OpenID
//! Connect Core 1.0, section 3.1.3.7; RFC 9068, section 4).

use std::time::Duration;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use posthaste_types::Timestamp;
use serde_json::{Map, Value};

use super::keys::{Algorithm, Keys, Verdict};

/// Longest token, in bytes: hundreds of groups fit.
const BYTES_MAX: usize = 32 << 10;
/// Tolerated difference between two machines' clocks.
const LEEWAY: Duration = Duration::from_secs(60);
/// Accepted types of identity tokens. A token that ends a session or reports another event has
/// another type.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Token that a provider signed, or claims to have signed.
#[derive(Debug)]
pub(super) struct Token<'a> {
    algorithm: Algorithm,
    kid: Option<String>,
    signed: &'a str,
    signature: Vec<u8>,
    claims: Map<String, Value>,
}

/// Returns whether a text has the form of such a token.
pub(super) fn looks_like_one(shown: &str) -> bool {
    shown.starts_with("ey") && shown.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Returns a token's expiry, for a client that got it from its issuer; none if it has none or is of
/// another kind.
#[must_use]
pub fn ends(shown: &str) -> Option<Timestamp> {
    Token::read(shown).ok()?.moment("exp")
}

impl<'a> Token<'a> {
    /// Parses it. Only its form is checked.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub(super) fn read(shown: &'a str) -> Result<Self, &'static str> {
        const NONE: &str = "the token can't be read";
        if shown.len() > BYTES_MAX {
            return Err("the token is longer than 32 KiB");
        }
        let (signed, signature) = shown.rsplit_once('.').ok_or(NONE)?;
        let (header, claims) = signed.split_once('.').ok_or(NONE)?;
        let header = object(header).ok_or(NONE)?;
        let claims = object(claims).ok_or(NONE)?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        let kind = text("typ").map(str::to_lowercase);
        if kind.is_some_and(|kind| !TYPES.contains(&&*kind)) || claims.contains_key("events") {
            return Err("the token is not one that says who somebody is");
        }
        // The token requires extensions that are unknown here.
        if header.contains_key("crit") {
            return Err("the token has critical headers that are not known");
        }
        let algorithm = text("alg").and_then(Algorithm::read);
        Ok(Self {
            algorithm: algorithm.ok_or("the token is not signed in a way that counts")?,
            kid: text("kid").map(str::to_owned),
            signed,
            signature: BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| NONE)?,
            claims,
        })
    }

    /// Checks that it claims to be of this issuer.
    ///
    /// # Errors
    /// Fails if it does not.
    pub(super) fn is_of(&self, issuer: &str) -> Result<(), &'static str> {
        let says = self.claims.get("iss").and_then(Value::as_str);
        (says == Some(issuer))
            .then_some(())
            .ok_or("the token is of another issuer")
    }

    pub(super) fn check(&self, keys: &Keys) -> Verdict {
        let signed = self.signed.as_bytes();
        keys.check(self.algorithm, self.kid.as_deref(), signed, &self.signature)
    }

    /// Checks that it is for one of these audiences and valid now; returns its expiry.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn is_good(
        &self,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Timestamp, &'static str> {
        let is_ours = |name: &Value| {
            let name = name.as_str();
            name.is_some_and(|name| audiences.iter().any(|known| known == name))
        };
        let (is_meant, is_shared) = match self.claims.get("aud") {
            Some(Value::Array(names)) => (names.iter().any(is_ours), names.len() > 1),
            Some(name) => (is_ours(name), false),
            None => (false, false),
        };
        if !is_meant {
            return Err("the token is for another audience");
        }
        // If a token has several audiences, its presenter must be one of ours.
        let presenter = self.claims.get("azp");
        if is_shared && presenter.is_some_and(|name| !is_ours(name)) {
            return Err("the token was made for another client");
        }
        let until = self
            .moment("exp")
            .ok_or("the token does not say when it ends")?;
        if now >= until + LEEWAY {
            return Err("the token has expired");
        }
        if self.claims.contains_key("nbf") {
            let from = self.moment("nbf").ok_or("the token can't be read")?;
            if now + LEEWAY < from {
                return Err("the token is not good yet");
            }
        }
        Ok(until)
    }

    pub(super) fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    fn moment(&self, name: &str) -> Option<Timestamp> {
        /// Year 9999: later times are no real moments.
        const SECS_MAX: f64 = 253_402_300_799.0;
        let secs = self.claims.get(name)?.as_f64()?;
        let secs = (0.0..=SECS_MAX).contains(&secs).then_some(secs)?;
        Some(Timestamp::from_secs(0) + Duration::from_secs_f64(secs))
    }
}

fn object(text: &str) -> Option<Map<String, Value>> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    fn text(header: &Value, claims: &Value) -> String {
        let [header, claims] =
            [header, claims].map(|value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string()));
        format!("{header}.{claims}.AAAA")
    }

    fn read(header: &Value) -> Result<(), &'static str> {
        let shown = text(header, &json!({ "iss": "https://id" }));
        assert!(looks_like_one(&shown));
        Token::read(&shown).and_then(|token| token.is_of("https://id"))
    }

    #[test]
    fn only_what_is_signed_and_says_who_somebody_is_is_read() {
        for good in [
            json!({ "alg": "RS256" }),
            json!({ "alg": "EdDSA", "typ": "JWT", "kid": "1" }),
            json!({ "alg": "ES256", "typ": "at+jwt" }),
        ] {
            read(&good).unwrap();
        }
        for bad in [
            json!({ "alg": "none" }),
            json!({ "alg": "HS256" }),
            json!({ "typ": "JWT" }),
            json!({ "alg": ["RS256"] }),
            json!({ "alg": "RS256", "typ": "logout+jwt" }),
            json!({ "alg": "RS256", "crit": ["exp"] }),
        ] {
            read(&bad).unwrap_err();
        }
        let header = json!({ "alg": "RS256" });
        let shown = text(&header, &json!({ "iss": "https://id/" }));
        Token::read(&shown)
            .unwrap()
            .is_of("https://id")
            .unwrap_err();
        let logout = text(&header, &json!({ "events": {} }));
        Token::read(&logout).unwrap_err();
        let long = text(&header, &json!({ "sub": "x".repeat(BYTES_MAX) }));
        Token::read(&long).unwrap_err();
        for nonsense in ["", "..", "a.b.c", "eyJ9.e30.AAAA", "e30.e30.!"] {
            Token::read(nonsense).unwrap_err();
        }
        for other in ["pht_00", "0123", "ey", "ey.a", "ey.a.b.c"] {
            assert!(!looks_like_one(other), "{other}");
        }
    }

    #[test]
    fn it_is_for_us_and_for_now() {
        let ours = ["posthaste".to_owned(), "api".to_owned()];
        let is_good = |claims: Value| {
            let shown = text(&json!({ "alg": "RS256" }), &claims);
            Token::read(&shown).unwrap().is_good(&ours, NOW)
        };
        let until = is_good(json!({ "aud": "posthaste", "exp": 1_000_100 }));
        assert_eq!(until, Ok(Timestamp::from_secs(1_000_100)));
        for good in [
            json!({ "aud": ["other", "api"], "exp": 1_000_100, "azp": "posthaste" }),
            json!({ "aud": "api", "exp": 999_950 }),
            json!({ "aud": "api", "exp": 1_000_100.5, "nbf": 1_000_059 }),
            json!({ "aud": "api", "exp": 1_000_100, "azp": "portal" }),
        ] {
            is_good(good).unwrap();
        }
        for bad in [
            json!({ "aud": "other", "exp": 1_000_100 }),
            json!({ "aud": [], "exp": 1_000_100 }),
            json!({ "exp": 1_000_100 }),
            json!({ "aud": ["other", "api"], "exp": 1_000_100, "azp": "other" }),
            json!({ "aud": "api" }),
            json!({ "aud": "api", "exp": "1000100" }),
            json!({ "aud": "api", "exp": -1 }),
            json!({ "aud": "api", "exp": 1e300 }),
            json!({ "aud": "api", "exp": 999_940 }),
            json!({ "aud": "api", "exp": 1_000_100, "nbf": 1_000_061 }),
            json!({ "aud": "api", "exp": 1_000_100, "nbf": "soon" }),
        ] {
            is_good(bad.clone()).expect_err(&bad.to_string());
        }
    }
}
