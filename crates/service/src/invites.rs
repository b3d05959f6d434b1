//! Invitations: texts by which relays register.
//!
//! Each is a file in `STATE/invites`, named like the depot. It has the hash of its token (never the
//! token), its expiry, the terms for the depot, and the key of the relay that used it.

use std::path::{Path, PathBuf};

use posthaste_api as api;
use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{RelayAddress, join},
};
use posthaste_types::{Digest, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{enlist::check_name, render, secrets};

/// Default lifetime of an invitation.
const USUAL_S: u64 = 7 * 24 * 3600;
/// Longest lifetime.
const LIFETIME_S_MAX: u64 = 365 * 24 * 3600;

/// Invitation as the service keeps it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// BLAKE3 of its token.
    token: String,
    expires_unix_s: u64,
    pub(crate) terms: api::LentTerms,
    /// Key of the relay that used it.
    key: Option<String>,
}

/// Writes an invitation for a relay that is to be called `name`; an earlier one becomes invalid.
///
/// # Errors
/// [`ErrorKind::Invalid`] for too long a lifetime; those of writing.
pub(crate) fn issue(
    state: &Path,
    name: &str,
    new: &api::NewInvite,
    service: RelayAddress,
    now: Timestamp,
) -> Result<api::Invite> {
    let lifetime_s = new.expires_s.unwrap_or(USUAL_S);
    if !(1..=LIFETIME_S_MAX).contains(&lifetime_s) {
        return Err(
            Error::new(ErrorKind::Invalid, "invite", format!("depot {name}"))
                .cause("an invitation is good for a second to a year"),
        );
    }
    let mut token = [0; secrets::SECRET_BYTES];
    getrandom::fill(&mut token).map_err(|cause| {
        Error::new(ErrorKind::Other, "invite", format!("depot {name}")).cause(cause.to_string())
    })?;
    let token = secrets::to_hex(&token);
    let expires_unix_s = unix_s(now).saturating_add(lifetime_s);
    let kept = Kept {
        token: hashed(&token),
        expires_unix_s,
        terms: new.terms.clone(),
        key: None,
    };
    keep(state, name, &kept)?;
    let invite = join::Invite {
        service,
        name: name.to_owned(),
        token,
    };
    Ok(api::Invite {
        text: invite.to_text(),
        expires_at: render::moment(Timestamp::from_secs(expires_unix_s)),
    })
}

/// Withdraws an invitation; returns whether there was one.
///
/// # Errors
/// The operating system's.
pub(crate) fn withdraw(state: &Path, name: &str) -> Result<bool> {
    check_name(name)?;
    let file = file(state, name);
    match std::fs::remove_file(&file) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::io("remove", file.display().to_string(), cause)),
    }
}

/// Returns the invitation that a relay with this key shows, if it is valid: not yet used by any
/// other.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it is not, with the reason.
pub(crate) fn show(
    state: &Path,
    (name, key): (&str, &str),
    token: &str,
    now: Timestamp,
) -> Result<Kept> {
    check_name(name)?;
    let refused = |why: &str| {
        Error::new(
            ErrorKind::PermissionDenied,
            "register",
            format!("depot {name}"),
        )
        .cause(why.to_owned())
        .hint("ask the service's operator for a new one: `posthaste depot invite`")
    };
    let file = file(state, name);
    let text = match secrets::read_private(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(refused("there is no such invitation, or it was withdrawn"));
        }
        text => text?,
    };
    let kept: Kept = serde_json::from_str(&text).map_err(|cause| {
        Error::new(ErrorKind::Invalid, "read", file.display().to_string()).cause(cause)
    })?;
    if !secrets::same(&hashed(token), &kept.token) {
        return Err(refused("there is no such invitation, or it was withdrawn"));
    }
    match &kept.key {
        Some(user) if user == key => {}
        Some(_) => return Err(refused("another relay has used the invitation")),
        None if kept.expires_unix_s < unix_s(now) => {
            return Err(refused("the invitation has expired"));
        }
        None => {}
    }
    Ok(kept)
}

impl Kept {
    /// Records that the relay with this key used it, and returns its former state.
    ///
    /// # Errors
    /// Errors of writing.
    pub(crate) fn used_by(self, state: &Path, name: &str, key: String) -> Result<Self> {
        let used = Self {
            key: Some(key),
            ..self.clone()
        };
        keep(state, name, &used)?;
        Ok(self)
    }

    /// Restores its former state after a failed use, unless it was withdrawn meanwhile.
    ///
    /// # Errors
    /// Errors of writing.
    pub(crate) fn put_back(&self, state: &Path, name: &str) -> Result<()> {
        match file(state, name).exists() {
            true => keep(state, name, self),
            false => Ok(()),
        }
    }
}

fn file(state: &Path, name: &str) -> PathBuf {
    state.join("invites").join(name)
}

fn keep(state: &Path, name: &str, kept: &Kept) -> Result<()> {
    secrets::make_private_directory(&state.join("invites"))?;
    let text = serde_json::to_string(kept).unwrap_or_default();
    secrets::write_private(&file(state, name), &format!("{text}\n"))
}

fn hashed(token: &str) -> String {
    Digest::new(*blake3::hash(token.as_bytes()).as_bytes()).to_string()
}

fn unix_s(at: Timestamp) -> u64 {
    at.as_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use posthaste_endpoint::relay::{Fingerprint, join::Invite};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);
    const LATER: Timestamp = Timestamp::from_secs(1_000_061);

    fn issued(state: &Path, expires_s: u64) -> String {
        let new = api::NewInvite {
            expires_s: Some(expires_s),
            ..Default::default()
        };
        let service = RelayAddress {
            url: "https://centre:7431".into(),
            fingerprint: Fingerprint::new([1; 32]),
        };
        let text = issue(state, "campus", &new, service, NOW).unwrap().text;
        Invite::read(&text, "x").unwrap().token
    }

    fn why(shown: Result<Kept>) -> String {
        let error = shown.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        error.to_string()
    }

    #[test]
    fn an_invitation_is_good_for_the_relay_that_used_it_first() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let token = issued(state, 60);
        let kept = show(state, ("campus", "one"), &token, NOW).unwrap();
        let kept = kept.used_by(state, "campus", "one".into()).unwrap();
        assert!(show(state, ("campus", "one"), &token, LATER).is_ok());
        let stolen = show(state, ("campus", "other"), &token, NOW);
        assert!(why(stolen).contains("another relay"));
        kept.put_back(state, "campus").unwrap();
        assert!(show(state, ("campus", "other"), &token, NOW).is_ok());
    }

    #[test]
    fn what_was_never_written_or_is_over_is_of_no_use() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let token = issued(state, 60);
        assert!(why(show(state, ("campus", "one"), &token, LATER)).contains("expired"));
        assert!(why(show(state, ("other", "one"), &token, NOW)).contains("no such"));
        let again = issued(state, 60);
        assert!(why(show(state, ("campus", "one"), &token, NOW)).contains("no such"));
        assert!(show(state, ("campus", "one"), &again, NOW).is_ok());
        assert!(withdraw(state, "campus").unwrap() && !withdraw(state, "campus").unwrap());
        assert!(why(show(state, ("campus", "one"), &again, NOW)).contains("no such"));
        let kind = |shown: Result<Kept>| shown.err().map(|error| error.kind());
        let outside = show(state, ("../token", "one"), &again, NOW);
        assert_eq!(kind(outside), Some(ErrorKind::Invalid));
    }

    #[test]
    fn the_token_itself_is_not_kept() {
        let state = tempfile::tempdir().unwrap();
        let token = issued(state.path(), 60);
        let kept = std::fs::read_to_string(file(state.path(), "campus")).unwrap();
        assert!(!kept.contains(&token));
        let new = api::NewInvite {
            expires_s: Some(0),
            ..Default::default()
        };
        let service = RelayAddress {
            url: "https://centre:7431".into(),
            fingerprint: Fingerprint::new([1; 32]),
        };
        assert!(issue(state.path(), "campus", &new, service, NOW).is_err());
    }
}
