//! A relay makes itself known to a service by an invitation, and says from time to time how it is.
//!
//! Both go to where the service hands out sources, over TLS with its pinned key. `docs/reference/relay-protocol.md`
//! has the forms.

use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize};

use super::{
    Fingerprint, RelayAddress, RelayClient, Scope,
    cargo::{Ask, Load},
    client::ANSWER_BYTES_MAX,
    wire::{StatusBody, Target},
};
use crate::{Error, ErrorKind, Result};

/// The form of what is said here. A service takes no other.
pub const PROTOCOL: u32 = 1;

/// Longest body of either kind, in bytes.
pub const BODY_BYTES_MAX: usize = 8 << 10;

/// What a relay says to be taken into the books. It holds the relay's secret, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBody {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The release it runs.
    pub version: String,
    /// What the depot is to be called: as the invitation says.
    pub name: String,
    /// Where the service reaches it.
    pub url: String,
    /// The key it shows.
    pub fingerprint: String,
    /// What tokens for it are minted from, 64 hexadecimal digits.
    pub secret: String,
}

/// How a relay is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatBody {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// What the depot is called.
    pub name: String,
    /// Where the service reaches it now.
    pub url: String,
    /// It ends: nobody is to ask it anything more.
    #[serde(default)]
    pub leaves: bool,
    /// What it would answer whoever asks.
    pub status: StatusBody,
}

/// What whoever lends disk needs to make a relay known to a service.
#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    /// Where the service hands out sources.
    pub service: RelayAddress,
    /// What the depot is to be called.
    pub name: String,
    /// What the service is shown, good for one relay.
    pub token: String,
}

/// The same as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    service: String,
    fingerprint: String,
    name: String,
    token: String,
}

impl fmt::Debug for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invite")
            .field("service", &self.service)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Invite {
    /// The text of an invitation: TOML that begins with what to do with it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let written = Written {
            service: self.service.url.clone(),
            fingerprint: self.service.fingerprint.to_string(),
            name: self.name.clone(),
            token: self.token.clone(),
        };
        let fields = toml::to_string(&written).unwrap_or_default();
        format!(
            "# Lends disk to a posthaste service. Keep it to yourself, and start the relay with it:\n\
             #   posthaste relay --dir DIR --capacity SIZE --listen 0.0.0.0:7421 --advertise https://HOST:7421 --join THIS-FILE\n\
             {fields}"
        )
    }

    /// Reads one. What it says is never shown: there is a token in it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is none.
    pub fn read(text: &str, shown: &str) -> Result<Self> {
        let wrong = |cause: String| {
            Error::new(
                ErrorKind::Invalid,
                "read",
                format!("the invitation {shown}"),
            )
            .cause(cause)
            .hint("`posthaste depot invite` of the service's operator writes one")
        };
        let written: Written =
            toml::from_str(text).map_err(|cause| wrong(cause.message().to_owned()))?;
        let fingerprint: Fingerprint = written
            .fingerprint
            .parse()
            .map_err(|cause| wrong(format!("{cause}")))?;
        let service = RelayAddress {
            url: written.service,
            fingerprint,
        };
        service
            .host_and_port()
            .map_err(|cause| wrong(cause.to_string()))?;
        let is_token = written.token.len() == 64
            && written.token.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_token {
            return Err(wrong("its token is not 64 hexadecimal digits".into()));
        }
        Ok(Self {
            service,
            name: written.name,
            token: written.token,
        })
    }
}

impl RelayClient {
    /// Makes a relay known to the service that this is the client of; the credential is the token of an
    /// [`Invite`]. The service connects to the relay before it answers. Asked again by the same relay nothing changes.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::PermissionDenied`] when the invitation is of no use any more or another relay
    /// used it, [`ErrorKind::Unsupported`] when either is too old for the other, and what the service found when it
    /// tried to reach the relay.
    pub async fn register(&self, body: &RegisterBody) -> Result<()> {
        self.tell("register with", Target::Register, serde_json::to_vec(body))
            .await
    }

    /// Says how a relay is; the credential is the relay's own secret.
    ///
    /// # Errors
    /// As [`Self::status`]; [`ErrorKind::NotFound`] and [`ErrorKind::Unauthenticated`] when the service does not
    /// know it (any more).
    pub async fn heartbeat(&self, body: &HeartbeatBody) -> Result<()> {
        self.tell("report to", Target::Heartbeat, serde_json::to_vec(body))
            .await
    }

    async fn tell(
        &self,
        operation: &'static str,
        target: Target,
        body: serde_json::Result<Vec<u8>>,
    ) -> Result<()> {
        let body = body
            .map_err(|cause| Error::new(ErrorKind::Other, operation, "a service").cause(cause))?;
        let ask = Ask {
            operation,
            method: Method::POST,
            target,
            query: "",
            scope: Scope::Heartbeat,
            body: Some(Load::plain(body)),
        };
        let (lease, response) = self.send(&ask).await?;
        self.collect(&ask, lease, response, ANSWER_BYTES_MAX, None)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invite() -> Invite {
        Invite {
            service: RelayAddress {
                url: "https://centre.example:7431".into(),
                fingerprint: Fingerprint::new([7; 32]),
            },
            name: "campus".into(),
            token: "ab".repeat(32),
        }
    }

    #[test]
    fn an_invitation_is_read_as_it_was_written() {
        assert_eq!(Invite::read(&invite().to_text(), "x").unwrap(), invite());
    }

    #[test]
    fn what_is_none_is_refused_in_a_line_that_tells_no_secret() {
        let text = invite().to_text();
        for (wrong, why) in [
            (String::new(), "missing field"),
            (text.replace("sha256:07", "sha256:x7"), "a fingerprint is"),
            (text.replace("https://", "http://"), "https://host:port"),
            (text.replace("abab", "ab"), "64 hexadecimal digits"),
            (format!("{text}\nmore = 1\n"), "unknown field"),
            (text.replace("token = \"", "token = "), ""),
        ] {
            let error = Invite::read(&wrong, "the-file").unwrap_err();
            let line = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(line.contains("the-file") && line.contains(why), "{line}");
            assert!(!line.contains("abab") && !line.contains('\n'), "{line}");
        }
        assert!(!format!("{:?}", invite()).contains("abab"));
    }
}
