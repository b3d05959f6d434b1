//! Bearer tokens: `ph1.SCOPE.DATASET.EXPIRY.MAC`, where MAC is the BLAKE3 keyed hash, under the
//! relay's secret, of everything before it. The relay needs no memory of them.

use std::fmt;

use posthaste_types::Timestamp;

use super::{DatasetId, address::from_hex};

/// Lifetime of a token minted for one request, in seconds. Long enough for clocks that differ by
/// minutes, short enough that a leaked log line is soon worthless.
pub const TOKEN_LIFETIME_S: u64 = 600;

/// Rights of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `r`: read fragments, manifest, inventory and status.
    Read,
    /// `w`: the same, and store.
    Write,
    /// `a`: the same, and delete.
    All,
    /// `fr`: read files, and nothing of datasets.
    FilesRead,
    /// `fw`: the same, and write and remove them.
    FilesWrite,
    /// `h`: report the relay's state, and nothing else. The relay shows it to services.
    Heartbeat,
}

impl Scope {
    const fn letter(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::All => "a",
            Self::FilesRead => "fr",
            Self::FilesWrite => "fw",
            Self::Heartbeat => "h",
        }
    }

    fn from_letter(letter: &str) -> Option<Self> {
        match letter {
            "r" => Some(Self::Read),
            "w" => Some(Self::Write),
            "a" => Some(Self::All),
            "fr" => Some(Self::FilesRead),
            "fw" => Some(Self::FilesWrite),
            "h" => Some(Self::Heartbeat),
            _ => None,
        }
    }

    /// Returns whether this scope includes `needed`.
    fn covers(self, needed: Self) -> bool {
        self.subject() == needed.subject() && self >= needed
    }

    /// Returns the subject of the scope: datasets, files or the relay itself. A scope of one
    /// subject never covers another.
    const fn subject(self) -> u8 {
        match self {
            Self::Read | Self::Write | Self::All => 0,
            Self::FilesRead | Self::FilesWrite => 1,
            Self::Heartbeat => 2,
        }
    }
}

/// Mints a token for `scope` on `dataset` (every dataset for `None`) that is valid until `expires`.
#[must_use]
pub fn mint(
    secret: &[u8; 32],
    scope: Scope,
    dataset: Option<&DatasetId>,
    expires: Timestamp,
) -> String {
    let dataset = dataset.map_or_else(|| "*".to_owned(), DatasetId::to_string);
    let expiry = expires.as_micros() / 1_000_000;
    let claims = format!("ph1.{}.{dataset}.{expiry}", scope.letter());
    let mac = blake3::keyed_hash(secret, claims.as_bytes());
    format!("{claims}.{}", mac.to_hex())
}

/// Reason for not accepting a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not a token, or made with another secret.
    Forged,
    /// Expired at this time, in seconds since the Unix epoch.
    Expired {
        /// Last second of its validity.
        at_unix_s: u64,
    },
    /// Valid, but for something else.
    OutOfScope,
}

/// Checks that `token` allows `needed` on `dataset` (for `None`: on no dataset in particular). The
/// time this takes does not depend on how much of a forged code is right.
///
/// # Errors
/// The [`Refusal`].
pub fn verify(
    secret: &[u8; 32],
    token: &str,
    needed: Scope,
    dataset: Option<&DatasetId>,
    now_unix_s: u64,
) -> std::result::Result<(), Refusal> {
    let (claims, mac) = token.rsplit_once('.').ok_or(Refusal::Forged)?;
    let mac: [u8; 32] = from_hex(mac).ok_or(Refusal::Forged)?;
    // `blake3::Hash` compares in constant time.
    if blake3::keyed_hash(secret, claims.as_bytes()) != blake3::Hash::from_bytes(mac) {
        return Err(Refusal::Forged);
    }
    let fields: Vec<&str> = claims.split('.').collect();
    let ["ph1", scope, allowed, expiry] = fields[..] else {
        return Err(Refusal::Forged);
    };
    let scope = Scope::from_letter(scope).ok_or(Refusal::Forged)?;
    let at_unix_s: u64 = expiry.parse().map_err(|_| Refusal::Forged)?;
    if at_unix_s < now_unix_s {
        return Err(Refusal::Expired { at_unix_s });
    }
    let covers = match dataset {
        Some(dataset) => allowed == "*" || allowed.parse() == Ok(*dataset),
        None => true,
    };
    if !scope.covers(needed) || !covers {
        Err(Refusal::OutOfScope)
    } else {
        Ok(())
    }
}

/// Returns whether a token that was [verified](verify) is for every dataset.
#[must_use]
pub fn is_for_all(token: &str) -> bool {
    token.split('.').nth(2) == Some("*")
}

/// Credential that a client shows a relay.
#[derive(Clone)]
pub enum Credential {
    /// Relay's own secret, from which a token is minted for each request.
    Secret([u8; 32]),
    /// Token minted by a holder of the secret.
    Token(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(hidden)",
            Self::Token(_) => "Token(hidden)",
        })
    }
}

impl Credential {
    /// Returns a token for one request.
    pub(crate) fn token(&self, scope: Scope, dataset: Option<&DatasetId>, now_s: u64) -> String {
        match self {
            Self::Secret(secret) => {
                let expires = Timestamp::from_secs(now_s.saturating_add(TOKEN_LIFETIME_S));
                mint(secret, scope, dataset, expires)
            }
            Self::Token(token) => token.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    #[test]
    fn a_token_allows_its_scope_on_its_dataset_until_it_expires() {
        let (mine, other) = (DatasetId::new([1; 16]), DatasetId::new([2; 16]));
        let token = mint(
            &SECRET,
            Scope::Write,
            Some(&mine),
            Timestamp::from_secs(100),
        );
        let check = |needed, dataset, now| verify(&SECRET, &token, needed, Some(dataset), now);
        assert_eq!(check(Scope::Write, &mine, 100), Ok(()));
        assert_eq!(check(Scope::Read, &mine, 5), Ok(()));
        assert_eq!(check(Scope::All, &mine, 5), Err(Refusal::OutOfScope));
        assert_eq!(check(Scope::Read, &other, 5), Err(Refusal::OutOfScope));
        assert_eq!(
            check(Scope::Read, &mine, 101),
            Err(Refusal::Expired { at_unix_s: 100 })
        );
        let any = mint(&SECRET, Scope::All, None, Timestamp::from_secs(100));
        assert_eq!(verify(&SECRET, &any, Scope::All, Some(&other), 5), Ok(()));
        assert!(is_for_all(&any) && !is_for_all(&token));
    }

    #[test]
    fn tokens_for_files_and_for_datasets_are_worth_nothing_to_each_other() {
        let token = |scope| mint(&SECRET, scope, None, Timestamp::from_secs(100));
        let check = |has, needs| verify(&SECRET, &token(has), needs, None, 5);
        assert_eq!(check(Scope::FilesWrite, Scope::FilesRead), Ok(()));
        for (has, needs) in [
            (Scope::FilesRead, Scope::FilesWrite),
            (Scope::All, Scope::FilesRead),
            (Scope::FilesWrite, Scope::Read),
            (Scope::Heartbeat, Scope::Read),
            (Scope::Heartbeat, Scope::FilesRead),
            (Scope::All, Scope::Heartbeat),
        ] {
            assert_eq!(
                check(has, needs),
                Err(Refusal::OutOfScope),
                "{has:?} {needs:?}"
            );
        }
    }

    #[test]
    fn no_changed_token_is_taken() {
        let mine = DatasetId::new([1; 16]);
        let token = mint(&SECRET, Scope::Read, Some(&mine), Timestamp::from_secs(100));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(forged) = String::from_utf8(bytes) else {
                continue;
            };
            assert!(
                verify(&SECRET, &forged, Scope::Read, Some(&mine), 5).is_err(),
                "{forged}"
            );
        }
        for junk in ["", ".", "ph1", "ph1.r.*.9", "ph1.r.*.9.", "ü.ü.ü.ü.ü"] {
            assert_eq!(
                verify(&SECRET, junk, Scope::Read, None, 5),
                Err(Refusal::Forged)
            );
        }
        assert_eq!(
            verify(&[8; 32], &token, Scope::Read, Some(&mine), 5),
            Err(Refusal::Forged)
        );
    }

    #[test]
    fn a_credential_does_not_show_itself() {
        let shown = format!(
            "{:?} {:?}",
            Credential::Secret(SECRET),
            Credential::Token("x9".into())
        );
        assert_eq!(shown, "Secret(hidden) Token(hidden)");
    }
}
