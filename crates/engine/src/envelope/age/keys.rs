//! Identities and recipients: X25519 keys, written in Bech32.

use std::{fmt, str::FromStr};

use bech32::{Bech32, Hrp, primitives::decode::CheckedHrpstring};
use ring::{
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand::{SecureRandom, SystemRandom},
};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

const RECIPIENT_START: &str = "age1";
const IDENTITY_START: &str = "AGE-SECRET-KEY-1";
/// Characters of five bits that hold 32 bytes; the last has four bits to spare, which are 0.
const KEY_CHARACTERS: usize = 52;

/// Error of reading, making or using a key, in one line without anything of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyError(pub(super) &'static str);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for KeyError {}

/// Recipient of encrypted data: the public half of an [`Identity`], written `age1…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recipient([u8; 32]);

impl Recipient {
    pub(super) const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = Hrp::parse_unchecked("age");
        bech32::encode_lower_to_fmt::<Bech32, _>(f, prefix, &self.0).map_err(|_| fmt::Error)
    }
}

impl FromStr for Recipient {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.starts_with(IDENTITY_START) {
            return Err(KeyError("it is a secret identity, not a recipient"));
        }
        if text.starts_with("ssh-") {
            return Err(KeyError(
                "SSH keys are not taken: make one with `posthaste keygen`",
            ));
        }
        decode(text, RECIPIENT_START)
            .map(|bytes| Self(*bytes))
            .ok_or(KeyError("it is no recipient: write age1 and 58 characters"))
    }
}

/// Identity that can read what is encrypted for its [`Recipient`]: a secret key, written
/// `AGE-SECRET-KEY-1…`. Never shown.
#[derive(Clone)]
pub struct Identity(Zeroizing<[u8; 32]>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity of {}", self.recipient())
    }
}

impl Identity {
    /// Returns a new identity.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn random() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        fill_random(&mut *bytes)?;
        Ok(Self(bytes))
    }

    /// Returns its public half.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient(x25519(*self.0, X25519_BASEPOINT_BYTES))
    }

    /// Returns its text, for a file only its user can read.
    #[must_use]
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        let prefix = Hrp::parse_unchecked("AGE-SECRET-KEY-");
        Zeroizing::new(bech32::encode_upper::<Bech32>(prefix, &*self.0).unwrap_or_default())
    }

    /// Returns the secret that both sides share; `None` for a point with which everybody knows it.
    pub(super) fn agree(&self, other: &Recipient) -> Option<Zeroizing<[u8; 32]>> {
        let shared = Zeroizing::new(x25519(*self.0, other.0));
        (*shared != [0; 32]).then_some(shared)
    }
}

impl FromStr for Identity {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text.trim(), IDENTITY_START)
            .map(Self)
            .ok_or(KeyError("it is no identity of age"))
    }
}

/// Reads the identities in a file as `age-keygen` writes it: one a line, with comments.
///
/// # Errors
/// The number of the first line that is none, and why; never its content.
pub fn read_identities(text: &str) -> Result<Vec<Identity>, (usize, KeyError)> {
    let lines = text.lines().zip(1..);
    let lines = lines.map(|(line, number)| (line.trim(), number));
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| {
            let foreign = [
                ("AGE-PLUGIN-", "identities of age's plug-ins are not taken"),
                (
                    "-----BEGIN AGE",
                    "the file is encrypted: open it with `age -d` first",
                ),
                (
                    "age-encryption.org",
                    "the file is encrypted: open it with `age -d` first",
                ),
                (
                    "-----BEGIN",
                    "SSH keys are not taken: make one with `posthaste keygen`",
                ),
            ];
            match foreign.iter().find(|(start, _)| line.starts_with(start)) {
                Some((_, why)) => Err((number, KeyError(why))),
                None => line.parse().map_err(|error| (number, error)),
            }
        })
        .collect()
}

/// Decodes 32 bytes from Bech32, in the one form they have.
fn decode(text: &str, start: &str) -> Option<Zeroizing<[u8; 32]>> {
    // Bech32 takes either case; age only the one it writes.
    if !text.starts_with(start) {
        return None;
    }
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let prefix = start.strip_suffix('1')?;
    let is_whole = checked.fe32_iter().count() == KEY_CHARACTERS
        && checked.fe32_iter().last()?.to_u8() & 0xf == 0;
    if !is_whole || !checked.hrp().as_str().eq_ignore_ascii_case(prefix) {
        return None;
    }
    let mut bytes = Zeroizing::new([0; 32]);
    for (byte, from) in bytes.iter_mut().zip(checked.byte_iter()) {
        *byte = from;
    }
    Some(bytes)
}

/// Fills `bytes` with random bytes.
///
/// # Errors
/// The operating system gives no randomness.
pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), KeyError> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| KeyError("the operating system gives no random numbers"))
}

/// HKDF-SHA-256.
#[expect(
    clippy::expect_used,
    reason = "HKDF refuses nothing but outputs over 8 KiB"
)]
pub(super) fn derive(salt: &[u8], secret: &[u8], purpose: &[u8]) -> Zeroizing<[u8; 32]> {
    struct Length;
    impl KeyType for Length {
        fn len(&self) -> usize {
            32
        }
    }
    let mut out = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[purpose], Length)
        .and_then(|key| key.fill(&mut *out))
        .expect("32 bytes are few");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `age-keygen` 1.1.1.
    const IDENTITY: &str =
        "AGE-SECRET-KEY-13UCTQG0623KYT3UMCYUXQ549Y9F0QZ6RLTTNVV5ZQW2438RSM3LSGDCJAP";
    const RECIPIENT: &str = "age1sua4s2zj55ypz0vs6tsjur84w3ca8cq0ryn94gm6hss3s5j73qlq0lxjlg";

    #[test]
    fn keys_are_those_of_the_age_command() {
        let identity: Identity = IDENTITY.parse().unwrap();
        assert_eq!(identity.recipient().to_string(), RECIPIENT);
        assert_eq!(*identity.to_secret_text(), IDENTITY);
        assert_eq!(RECIPIENT.parse(), Ok(identity.recipient()));
    }

    #[test]
    fn an_identity_is_never_shown() {
        let identity: Identity = IDENTITY.parse().unwrap();
        let shown = format!("{identity:?}");
        assert!(shown.contains(RECIPIENT), "{shown}");
        assert!(!shown.to_uppercase().contains(&IDENTITY[16..40]), "{shown}");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let mut changed = RECIPIENT.to_owned();
        changed.replace_range(20..21, if &RECIPIENT[20..21] == "q" { "p" } else { "q" });
        for text in [
            "",
            "age1",
            &changed,
            &RECIPIENT[..60],
            &RECIPIENT.to_uppercase(),
            IDENTITY,
            "ssh-ed25519 AAAA",
        ] {
            assert!(text.parse::<Recipient>().is_err(), "{text}");
        }
        for text in ["", RECIPIENT, &IDENTITY.to_lowercase(), &IDENTITY[..70]] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_of_identities_is_read_and_its_faults_are_named_by_line() {
        let text = format!("# created: today\n# for {RECIPIENT}\n\n  {IDENTITY}\n{IDENTITY}\n");
        assert_eq!(read_identities(&text).unwrap().len(), 2);
        assert_eq!(read_identities("# nothing\n").unwrap().len(), 0);
        for (line, said) in [
            ("secret!", "no identity"),
            ("AGE-PLUGIN-YUBIKEY-1QQ", "plug-ins"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", "SSH"),
            ("-----BEGIN AGE ENCRYPTED FILE-----", "age -d"),
        ] {
            let (number, error) = read_identities(&format!("{IDENTITY}\n{line}\n")).unwrap_err();
            assert_eq!(number, 2);
            assert!(error.to_string().contains(said), "{error}");
            assert!(!error.to_string().contains("secret!"));
        }
    }
}
