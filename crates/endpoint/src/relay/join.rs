//! Registration of a relay with a service by an invitation, and its heartbeats.
//!
//! Both go to the address where the service serves sources, over TLS with its pinned key.
//! `docs/reference/relay-protocol.md` specifies the messages.

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

/// Version of these messages. A service accepts no other.
pub const PROTOCOL: u32 = 1;

/// Largest body of either message, in bytes.
pub const BODY_BYTES_MAX: usize = 8 << 10;

/// Message with which a relay registers. It holds the relay's secret, so it is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBody {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Release that the relay runs.
    pub version: String,
    /// Name of the depot, from the invitation.
    pub name: String,
    /// URL at which the service reaches the relay.
    pub url: String,
    /// Fingerprint of the relay's key.
    pub fingerprint: String,
    /// Secret from which its tokens are minted, 64 hexadecimal digits.
    pub secret: String,
}

/// State of a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatBody {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Name of the depot.
    pub name: String,
    /// URL at which the service reaches the relay now.
    pub url: String,
    /// True if the relay shuts down: it accepts no more requests.
    #[serde(default)]
    pub leaves: bool,
    /// Status that the relay would answer to a request.
    pub status: StatusBody,
}

/// Invitation to register a relay with a service.
#[derive(Clone, PartialEq, Eq)]
pub struct Invite {
    /// Address where the service serves sources.
    pub service: RelayAddress,
    /// Name of the depot.
    pub name: String,
    /// Token for the service, valid for one relay.
    pub token: String,
}

/// Written form of an invitation.
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
    /// Returns the text of the invitation: TOML that begins with instructions for its use.
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

    /// Parses an invitation. Errors never show its text, which contains a token.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the text is not an invitation.
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
    /// Registers a relay with this service; the credential is the token of an [`Invite`]. The
    /// service connects to the relay before it answers. Registering the same relay again changes
    /// nothing.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::PermissionDenied`] if the invitation is expired or
    /// used by another relay; [`ErrorKind::Unsupported`] if either is too old for the other; the
    /// service's error on connecting to the relay.
    pub async fn register(&self, body: &RegisterBody) -> Result<()> {
        self.tell("register with", Target::Register, serde_json::to_vec(body))
            .await
    }

    /// Reports the state of a relay; the credential is the relay's own secret.
    ///
    /// # Errors
    /// Errors of [`Self::status`]; [`ErrorKind::NotFound`] and [`ErrorKind::Unauthenticated`] if
    /// the service does not know the relay (any more).
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
