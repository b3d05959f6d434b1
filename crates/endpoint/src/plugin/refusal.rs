//! Errors that a plug-in reports.

use std::time::Duration;

use serde::Deserialize;

use crate::{Error, ErrorKind, Locus, error::Status};

/// Longest text of a plug-in in messages, in characters: a message is one line.
const SHOWN_CHARACTERS_MAX: usize = 500;

/// Longest pause that a plug-in may request, in seconds: an hour; a longer one is cut.
const RETRY_AFTER_S_MAX: f64 = 3600.0;

/// Shortest text of a profile that counts as a secret: hiding "1" would hide every 1.
const SECRET_CHARACTERS_MIN: usize = 4;

/// Operation, and the end of a copy at which an error counts if the plug-in does not say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doing {
    pub verb: &'static str,
    pub end: Locus,
}

impl Doing {
    pub(super) const OPEN: Self = Self::at(Locus::Client, "open");
    pub(super) const LOOK: Self = Self::at(Locus::Source, "look at");
    pub(super) const LIST: Self = Self::at(Locus::Source, "list");
    pub(super) const READ: Self = Self::at(Locus::Source, "read");
    pub(super) const READ_LINK: Self = Self::at(Locus::Source, "read link");
    pub(super) const WRITE: Self = Self::at(Locus::Destination, "write");
    pub(super) const CHECK: Self = Self::at(Locus::Destination, "check");
    pub(super) const REMOVE: Self = Self::at(Locus::Destination, "remove");
    pub(super) const COPY: Self = Self::at(Locus::Destination, "copy on the server to");
    pub(super) const MAKE_LINK: Self = Self::at(Locus::Destination, "make link");
    pub(super) const MAKE_DIRECTORY: Self = Self::at(Locus::Destination, "make directory");
    pub(super) const SEAL: Self = Self::at(Locus::Destination, "set the attributes of");

    const fn at(end: Locus, verb: &'static str) -> Self {
        Self { verb, end }
    }

    pub(super) fn error(self, kind: ErrorKind, subject: &str) -> Error {
        Error::new(kind, self.verb, subject)
    }
}

/// Reason for which a plug-in did not carry out a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    kind: String,
    status: Option<String>,
    locus: Option<String>,
    cause: Option<String>,
    hint: Option<String>,
    retry_after_s: Option<f64>,
}

impl Refusal {
    /// Returns the error it means while `doing` something. `secrets` are never shown, even if
    /// quoted.
    pub(super) fn error(&self, doing: Doing, subject: &str, secrets: &Secrets) -> Error {
        let locus = match self.locus.as_deref() {
            Some("source") => Locus::Source,
            Some("destination") => Locus::Destination,
            Some("network") => Locus::Network,
            Some("client") => Locus::Client,
            Some(_) | None => doing.end,
        };
        let mut error = doing.error(kind_of(&self.kind), subject).at(locus);
        if let Some(cause) = &self.cause {
            error = error.cause(secrets.hide(cause));
        }
        if let Some(hint) = &self.hint {
            error = error.hint(secrets.hide(hint));
        }
        if let Some(pause_s) = self.retry_after_s
            && let Ok(pause) = Duration::try_from_secs_f64(pause_s.min(RETRY_AFTER_S_MAX))
        {
            error = error.retry_after(pause);
        }
        match self.status.as_deref() {
            Some("temporary") => error.status_is(Status::Temporary),
            Some("permanent") => error.status_is(Status::Permanent),
            Some(_) | None => error,
        }
    }
}

/// Returns the kind with this code; an unknown code is [`ErrorKind::Other`].
fn kind_of(code: &str) -> ErrorKind {
    match code {
        "not-found" => ErrorKind::NotFound,
        "permission-denied" => ErrorKind::PermissionDenied,
        "unauthenticated" => ErrorKind::Unauthenticated,
        "full" => ErrorKind::Full,
        "corrupt" => ErrorKind::Corrupt,
        "changed" => ErrorKind::Changed,
        "conflict" => ErrorKind::Conflict,
        "invalid" => ErrorKind::Invalid,
        "unsupported" => ErrorKind::Unsupported,
        "unreachable" => ErrorKind::Unreachable,
        "timed-out" => ErrorKind::TimedOut,
        "busy" => ErrorKind::Busy,
        "cancelled" => ErrorKind::Cancelled,
        _ => ErrorKind::Other,
    }
}

/// Secrets that were given to a plug-in.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a String>) -> Self {
        let mut secrets: Vec<String> = texts
            .filter(|text| text.chars().count() >= SECRET_CHARACTERS_MIN)
            .cloned()
            .collect();
        // A secret that contains another goes first, or its rest would stay.
        secrets.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(secrets)
    }

    /// Returns one line of `text` without secrets and control characters, of limited length.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = text.replace(secret.as_str(), "…");
        }
        text.trim()
            .chars()
            .take(SHOWN_CHARACTERS_MAX)
            .map(|letter| {
                if posthaste_types::is_obeyed(letter) {
                    ' '
                } else {
                    letter
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> Error {
        let refusal: Refusal = serde_json::from_str(line).unwrap();
        refusal.error(Doing::LIST, "x://y", &Secrets::default())
    }

    #[test]
    fn errors_are_what_the_plugin_says_they_are() {
        let error = error(
            r#"{"kind":"busy","locus":"destination","cause":"tape\nrobot","hint":"wait","retry_after_s":1.5}"#,
        );
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert_eq!(error.locus(), Locus::Destination);
        assert_eq!(error.pause(), Some(Duration::from_millis(1500)));
        assert_eq!(error.to_string(), "can't list x://y: tape robot (wait)");
    }

    #[test]
    fn the_end_is_the_plugins_unless_said() {
        assert_eq!(error("{}").locus(), Locus::Source);
        assert_eq!(error(r#"{"locus":"network"}"#).locus(), Locus::Network);
        assert_eq!(error(r#"{"locus":"moon"}"#).locus(), Locus::Source);
    }

    #[test]
    fn the_status_follows_from_the_kind_unless_said() {
        assert!(!error(r#"{"kind":"full"}"#).is_temporary());
        assert!(error(r#"{"kind":"full","status":"temporary"}"#).is_temporary());
        assert!(error(r#"{"kind":"unreachable"}"#).is_temporary());
        assert!(!error(r#"{"kind":"on-strike","retry_after_s":-1}"#).is_temporary());
        assert_eq!(error("{}").kind(), ErrorKind::Other);
    }

    #[test]
    fn every_code_has_its_kind() {
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::PermissionDenied,
            ErrorKind::Unauthenticated,
            ErrorKind::Full,
            ErrorKind::Corrupt,
            ErrorKind::Changed,
            ErrorKind::Conflict,
            ErrorKind::Invalid,
            ErrorKind::Unsupported,
            ErrorKind::Unreachable,
            ErrorKind::TimedOut,
            ErrorKind::Busy,
            ErrorKind::Cancelled,
            ErrorKind::Other,
        ] {
            assert_eq!(kind_of(Error::new(kind, "a", "b").code()), kind);
        }
    }

    #[test]
    fn secrets_are_hidden_wherever_they_are_quoted() {
        let texts = ["hush", "hush-hush", "no"].map(str::to_owned);
        let secrets = Secrets::new(texts.iter());
        assert_eq!(
            secrets.hide("no: hush-hush and hush\u{1b}[1m"),
            "no: … and … [1m"
        );
    }
}
