//! First line of a peer that was started over SSH, with its address and credentials.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::wire::{VERSION_NEWEST, VERSION_OLDEST};
use crate::relay::Fingerprint;

/// Prefix of the line. Text before it comes from a login shell, which may not have ended its own
/// line.
const START: &str = "posthaste-peer ";

/// Address of a peer, its protocol versions, its key and the secret of its one client. Later
/// releases may add fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// Oldest version of the protocol that it speaks.
    pub oldest: u32,
    /// Newest version that it speaks.
    pub newest: u32,
    /// Release, for people.
    pub release: String,
    /// Address on which it listens; `None` if it could not listen.
    pub address: Option<IpAddr>,
    /// Port on which it listens.
    pub port: u16,
    /// Fingerprint of its key, made for this session.
    fingerprint: String,
    /// Secret of 64 hexadecimal digits, made for this session.
    secret: String,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("release", &self.release)
            .field("address", &self.address)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Invitation {
    /// Creates the invitation of this release.
    #[must_use]
    pub fn new(
        listens: Option<(IpAddr, u16)>,
        fingerprint: Fingerprint,
        secret: &[u8; 32],
    ) -> Self {
        Self {
            oldest: VERSION_OLDEST,
            newest: VERSION_NEWEST,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            address: listens.map(|(address, _)| address),
            port: listens.map_or(0, |(_, port)| port),
            fingerprint: fingerprint.to_string(),
            secret: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Returns the fingerprint of its key; `None` if its form is unknown.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint.parse().ok()
    }

    /// Returns the secret; `None` if it is malformed.
    #[must_use]
    pub fn secret(&self) -> Option<[u8; 32]> {
        crate::relay::from_hex(&self.secret)
    }

    /// Returns the line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        // Serialization of texts and numbers can't fail.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{START}{json}\n")
    }

    /// Parses a line; `None` if it is another.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let start = line
            .windows(START.len())
            .position(|found| found == START.as_bytes())?;
        serde_json::from_slice(&line[start + START.len()..]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        let listens = ("10.1.2.3".parse().unwrap(), 50_123);
        Invitation::new(Some(listens), Fingerprint::new([3; 32]), &[9; 32])
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_shows_no_secret() {
        let invitation = invitation();
        let line = invitation.line();
        assert_eq!(Invitation::parse(line.as_bytes()), Some(invitation.clone()));
        assert_eq!(invitation.secret(), Some([9; 32]));
        assert!(!format!("{invitation:?}").contains("0909"));
        let after_a_shell = format!("Welcome to node 7> {line}");
        let parsed = Invitation::parse(after_a_shell.as_bytes());
        assert_eq!(parsed, Some(invitation.clone()));
        assert_eq!(Invitation::parse(b"Welcome to this host\n"), None);
        assert_eq!(Invitation::parse(b"posthaste-peer {}\n"), None);
    }

    #[test]
    fn what_a_later_release_adds_is_passed_by() {
        let line = invitation()
            .line()
            .replace("{\"oldest\"", "{\"moon\":[1],\"oldest\"");
        assert_eq!(Invitation::parse(line.as_bytes()), Some(invitation()));
    }
}
