//! The line with which a peer that was started over SSH says where it is and who may use it.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::wire::{VERSION_NEWEST, VERSION_OLDEST};
use crate::relay::Fingerprint;

/// What the line begins with; what comes before it is a login shell's, which may not have ended its own line.
const START: &str = "posthaste-peer ";

/// Where a peer listens, what it speaks, its key and the secret its one client shows it. Later
/// releases may add fields.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The oldest version of the protocol it speaks.
    pub oldest: u32,
    /// The newest version it speaks.
    pub newest: u32,
    /// The release it is, for people.
    pub release: String,
    /// Where it listens; `None` when it could not.
    pub address: Option<IpAddr>,
    /// The port there.
    pub port: u16,
    /// Its key, made for this one time.
    fingerprint: String,
    /// 64 hexadecimal digits, made for this one time.
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
    /// The invitation of this release.
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

    /// Its key; `None` when that is written in a way nobody here knows.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint.parse().ok()
    }

    /// The secret; `None` when it is none.
    #[must_use]
    pub fn secret(&self) -> Option<[u8; 32]> {
        crate::relay::from_hex(&self.secret)
    }

    /// The line, with its end.
    #[must_use]
    pub fn line(&self) -> String {
        // Texts and numbers can always be written.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{START}{json}\n")
    }

    /// Reads a line; `None` when it is another.
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
