//! Token for slurmrestd, as `scontrol token` prints it.

use std::path::Path;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use posthaste_endpoint::{Error, ErrorKind, Result};
use serde_json::Value;

use crate::secrets;

/// Prefix that `scontrol token` prints.
const PREFIX: &str = "SLURM_JWT=";

/// Token with its stated user.
pub(super) struct Token {
    pub(super) value: HeaderValue,
    /// User name, which Slurm until 22.05 requires beside the token.
    pub(super) user: Option<HeaderValue>,
}

impl Token {
    /// Reads it from a file that nobody else may read, with or without the `SLURM_JWT=` before it.
    /// Blocking.
    ///
    /// # Errors
    /// Errors of [`secrets::read_private`], and [`ErrorKind::Invalid`] for an invalid token.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = secrets::read_private(file)?;
        Self::of(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "use the token in",
                file.display().to_string(),
            )
            .cause("it is not one line of visible letters")
            .hint("scontrol token lifespan=SECONDS writes one")
        })
    }

    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix(PREFIX).unwrap_or(text);
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut value = HeaderValue::from_str(text).ok()?;
        value.set_sensitive(true);
        let user = user(text).and_then(|user| HeaderValue::from_str(&user).ok());
        Some(Self { value, user })
    }
}

/// Returns a token's user, by the claims that Slurm reads.
fn user(token: &str) -> Option<String> {
    let claims = token.split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let user = claims.get("sun").or_else(|| claims.get("username"))?;
    user.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_scontrol_writes_it() {
        // Claims {"exp": 1, "iat": 0, "sun": "alice"}, signed with nothing.
        let token = "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjEsImlhdCI6MCwic3VuIjoiYWxpY2UifQ.c2ln";
        for text in [token.to_owned(), format!("SLURM_JWT={token}\n")] {
            let found = Token::of(&text).unwrap();
            assert_eq!(
                (
                    found.value.to_str().unwrap(),
                    found.user.unwrap().to_str().unwrap()
                ),
                (token, "alice")
            );
            assert!(found.value.is_sensitive());
        }
        assert!(Token::of("opaque").unwrap().user.is_none());
        for text in ["", "SLURM_JWT=", "two words", "two\nlines"] {
            assert!(Token::of(text).is_none(), "{text}");
        }
    }
}
