//! Encryption from end to end: depots and relays see nothing of a dataset but sizes.
//!
//! An encrypted dataset has a random [`DatasetKey`]. Its chunks are encrypted before they are coded
//! ([`Cipher`]), so fragments, their digests and repair work on what depots see. Its manifest is
//! encrypted too, and stored together with the key, which is wrapped for the dataset's recipients
//! in the [`age`] format: an envelope. The identity of any of them opens it.
//!
//! ```text
//! posthaste-envelope-1 LENGTH\n    LENGTH in decimal
//! LENGTH bytes                     the dataset's key, as a file of age
//! 32 bytes                         the digest of the manifest, keyed
//! the rest                         the manifest, encrypted
//! ```

pub mod age;
mod cipher;

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Digest;

pub use cipher::{Cipher, DatasetKey, TextName, Unopened};

use age::{Identity, UnwrapError};

/// First bytes of every envelope; the number is that of the format.
const MAGIC: &[u8] = b"posthaste-envelope-1 ";
/// Longest wrapped key: 64 recipients take 11 KiB.
const WRAPPED_BYTES_MAX: usize = 64 << 10;

/// Returns whether the bytes start like an envelope.
#[must_use]
pub fn is_envelope(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Puts the text of a manifest into an envelope, with the wrapped key of its dataset.
#[must_use]
pub fn close(wrapped: &[u8], cipher: &Cipher, mut text: Vec<u8>) -> Vec<u8> {
    let digest = cipher.encrypt(TextName::Manifest, &mut text);
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(format!("{}\n", wrapped.len()).as_bytes());
    out.extend_from_slice(wrapped);
    out.extend_from_slice(digest.as_bytes());
    out.append(&mut text);
    out
}

/// Opens an envelope with the first identity that fits. Returns the cipher of the dataset and the
/// text of its manifest. Never panics on outside bytes.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it is for others, [`ErrorKind::Corrupt`] if it was changed,
/// [`ErrorKind::Invalid`] for anything that is no envelope.
pub fn open(bytes: &[u8], identities: &[Identity]) -> Result<(Cipher, Vec<u8>)> {
    let (wrapped, digest, text) = split(bytes).ok_or_else(cut_off)?;
    let key = age::unwrap(wrapped, identities).map_err(|error| match error {
        UnwrapError::NoIdentity => failed(
            ErrorKind::PermissionDenied,
            "it is encrypted for others than the identities given",
        )
        .hint("give the identity of one of its recipients"),
        UnwrapError::Malformed(why) => failed(ErrorKind::Corrupt, why),
    })?;
    let key = std::str::from_utf8(&key)
        .ok()
        .and_then(DatasetKey::from_secret_text)
        .ok_or_else(|| failed(ErrorKind::Corrupt, "what is wrapped in it is no key"))?;
    let cipher = Cipher::new(&key);
    let text = decrypt(&cipher, &digest, text)?;
    Ok((cipher, text))
}

/// Returns the text of the manifest in an envelope, by the cipher of its dataset. Never panics on
/// outside bytes.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it was changed or is another's, [`ErrorKind::Invalid`] for anything
/// that is no envelope.
pub fn open_with(bytes: &[u8], cipher: &Cipher) -> Result<Vec<u8>> {
    let (_, digest, text) = split(bytes).ok_or_else(cut_off)?;
    decrypt(cipher, &digest, text)
}

fn decrypt(cipher: &Cipher, digest: &Digest, text: &[u8]) -> Result<Vec<u8>> {
    let mut text = text.to_vec();
    cipher
        .decrypt(TextName::Manifest, digest, &mut text)
        .map_err(|Unopened| failed(ErrorKind::Corrupt, "the manifest in it was changed"))?;
    Ok(text)
}

fn failed(kind: ErrorKind, why: &'static str) -> Error {
    Error::new(kind, "open", "the envelope of the manifest").cause(why)
}

fn cut_off() -> Error {
    failed(ErrorKind::Invalid, "it is cut off, or no envelope")
}

fn split(bytes: &[u8]) -> Option<(&[u8], Digest, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let length: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(b"\n")?;
    if length > WRAPPED_BYTES_MAX {
        return None;
    }
    let (wrapped, rest) = rest.split_at_checked(length)?;
    let (digest, text) = rest.split_first_chunk()?;
    Some((wrapped, Digest::new(*digest), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(identity: &Identity) -> Vec<u8> {
        let key = DatasetKey::random().unwrap();
        let wrapped = age::wrap(&[identity.recipient()], key.to_secret_text().as_bytes()).unwrap();
        close(
            &wrapped,
            &Cipher::new(&key),
            b"names, sizes, digests".to_vec(),
        )
    }

    #[test]
    fn an_envelope_opens_for_its_recipient_and_nobody_else() {
        let (alice, eve) = (Identity::random().unwrap(), Identity::random().unwrap());
        let envelope = closed(&alice);
        assert!(is_envelope(&envelope));
        assert!(!envelope.windows(5).any(|window| window == b"names"));
        let (_, text) = open(&envelope, &[eve.clone(), alice.clone()]).unwrap();
        assert_eq!(text, b"names, sizes, digests");
        for others in [vec![eve], vec![]] {
            let error = open(&envelope, &others).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn an_envelope_opens_with_the_key_of_its_dataset_and_no_other() {
        let alice = [Identity::random().unwrap()];
        let envelope = closed(&alice[0]);
        let (cipher, text) = open(&envelope, &alice).unwrap();
        assert_eq!(open_with(&envelope, &cipher).unwrap(), text);
        let other = Cipher::new(&DatasetKey::random().unwrap());
        let error = open_with(&envelope, &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(open_with(&envelope[1..], &cipher).is_err());
    }

    #[test]
    fn an_envelope_cut_or_changed_anywhere_does_not_open() {
        let alice = [Identity::random().unwrap()];
        let envelope = closed(&alice[0]);
        for at in 0..envelope.len() {
            assert!(open(&envelope[..at], &alice).is_err(), "{at} bytes opened");
            let mut changed = envelope.clone();
            changed[at] ^= 1;
            assert!(open(&changed, &alice).is_err(), "byte {at} does not matter");
        }
        assert!(open(&[&envelope[..], b"x"].concat(), &alice).is_err());
    }
}
