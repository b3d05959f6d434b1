//! Address of slurmrestd.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use http::Uri;
use posthaste_endpoint::relay::is_loopback;

/// Address of slurmrestd: `unix:///run/slurmrestd.socket`, `https://slurm.example:6820`, or
/// `http://` on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueUrl {
    shown: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Socket(PathBuf),
    Host { is_secure: bool },
}

impl QueueUrl {
    /// Returns the socket of this machine, if it is one.
    pub(super) fn socket(&self) -> Option<&Path> {
        match &self.place {
            Place::Socket(path) => Some(path),
            Place::Host { .. } => None,
        }
    }

    /// Returns whether it uses TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.place == Place::Host { is_secure: true }
    }

    /// Returns the start of a call's URL.
    pub(super) fn base(&self) -> &str {
        match self.place {
            Place::Socket(_) => "http://localhost",
            Place::Host { .. } => &self.shown,
        }
    }
}

impl fmt::Display for QueueUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl FromStr for QueueUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = text.trim_end_matches('/').to_owned();
        if let Some(path) = shown.strip_prefix("unix://") {
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(format!("`{text}` names no socket: it is unix:///PATH"));
            }
            let place = Place::Socket(path);
            return Ok(Self { shown, place });
        }
        let uri = shown.parse::<Uri>().ok();
        let named = uri.as_ref().and_then(|uri| {
            let is_plain = uri.query().is_none() && !uri.authority()?.as_str().contains('@');
            Some((uri.scheme_str()?, uri.host()?)).filter(|_| is_plain)
        });
        let is_secure = match named {
            Some(("https", _)) => true,
            // By number: a name may stand for an address at which another program listens.
            Some(("http", host)) if host != "localhost" && is_loopback(host) => false,
            Some(("http", _)) => {
                return Err(format!(
                    "`{text}` would carry a token across the network in the clear: name it by https://, with TLS in front of \
                     slurmrestd, or bring its port to this machine"
                ));
            }
            Some(_) | None => {
                // The text may contain a password.
                let is_public = !text.contains(['@', '?']);
                let shown = if is_public { text } else { "what is said" };
                return Err(format!(
                    "`{shown:.200}` is neither https://HOST[:PORT] nor unix:///PATH"
                ));
            }
        };
        let place = Place::Host { is_secure };
        Ok(Self { shown, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_on_the_way_reads_a_token() {
        for (text, base) in [
            ("unix:///run/slurmrestd/sock", "http://localhost"),
            ("https://slurm.example:6820/", "https://slurm.example:6820"),
            ("http://127.0.0.1:6820", "http://127.0.0.1:6820"),
            ("http://[::1]:6820/rest", "http://[::1]:6820/rest"),
        ] {
            let url: QueueUrl = text.parse().unwrap();
            assert_eq!(url.base(), base);
            assert_eq!(url.to_string(), text.trim_end_matches('/'));
        }
        for (text, why) in [
            ("http://slurm.example:6820", "in the clear"),
            ("https://alice:secret@slurm.example", "neither"),
            ("https://slurm.example?token=x", "neither"),
            ("unix:run/sock", "neither"),
            ("unix://run/sock", "names no socket"),
            ("http://localhost:6820", "in the clear"),
            ("slurm.example:6820", "neither"),
            ("", "neither"),
        ] {
            let error = text.parse::<QueueUrl>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
