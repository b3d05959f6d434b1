//! Encryption of the chunks and the manifest of one dataset: AES-256-GCM under a key of their own.
//!
//! A text's key is derived from the dataset's key, from the text's name (chunk number or manifest)
//! and from a keyed digest of the text itself. So a key encrypts one text only, and its nonce may
//! be constant: if a source changes unnoticed between two encodings, the key changes too, and no
//! nonce serves two texts. The same chunk encoded again, after a crash or for a repair, gives the
//! same bytes, so a restart can go on. Depots learn nothing but sizes: equal chunks have different
//! numbers, and so different keys.

use std::fmt;

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Digest;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use zeroize::Zeroizing;

/// Bytes of a dataset's key.
const KEY_BYTES: usize = 32;
/// Purposes of derived keys. A change would make everything encrypted before unreadable.
const FOR_DIGESTS: &str = "posthaste 2026-11 digest of an encrypted dataset's text";
const FOR_TEXTS: &str = "posthaste 2026-11 key of an encrypted dataset's text";
/// Each key is used for one text.
const NONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

/// Key that encrypts a dataset: random, and written down for its recipients alone. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DatasetKey(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatasetKey")
    }
}

impl DatasetKey {
    /// Returns a new key.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if the operating system gives no randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let filled = SystemRandom::new().fill(&mut *bytes);
        filled.map_err(|_| {
            Error::new(ErrorKind::Other, "make", "a dataset key")
                .cause("the operating system gives no random numbers")
        })?;
        Ok(Self(bytes))
    }

    /// Returns its 64 hexadecimal digits and a newline, for a file only its user can read, or to be
    /// wrapped.
    #[must_use]
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        let mut text = Digest::new(*self.0).to_string();
        text.push('\n');
        Zeroizing::new(text)
    }

    /// Reads [`Self::to_secret_text`]; nothing for other texts.
    #[must_use]
    pub fn from_secret_text(text: &str) -> Option<Self> {
        let bytes: Digest = text.trim_end().parse().ok()?;
        Some(Self(Zeroizing::new(*bytes.as_bytes())))
    }
}

/// Name of a text. No two texts of one dataset have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextName {
    /// This chunk.
    Chunk(u32),
    /// The manifest.
    Manifest,
}

impl TextName {
    const fn number(self) -> u64 {
        match self {
            Self::Chunk(chunk) => chunk as u64,
            Self::Manifest => u64::MAX,
        }
    }
}

/// Error for a text that does not open: the key is another's, or the bytes are not what was
/// encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unopened;

/// Cipher for the texts of one dataset.
#[derive(Clone, PartialEq, Eq)]
pub struct Cipher {
    digests: Zeroizing<[u8; KEY_BYTES]>,
    texts: Zeroizing<[u8; KEY_BYTES]>,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// Makes the cipher of a dataset.
    #[must_use]
    pub fn new(key: &DatasetKey) -> Self {
        let derive = |purpose| Zeroizing::new(blake3::derive_key(purpose, &*key.0));
        Self {
            digests: derive(FOR_DIGESTS),
            texts: derive(FOR_TEXTS),
        }
    }

    /// Returns the digest of a text, which reveals nothing of it without the key.
    #[must_use]
    pub fn digest(&self, text: &[u8]) -> Digest {
        Digest::new(*blake3::keyed_hash(&self.digests, text).as_bytes())
    }

    /// Encrypts `text` in place and appends its tag. Returns the digest of the text, without which
    /// it does not open.
    pub fn encrypt(&self, name: TextName, text: &mut Vec<u8>) -> Digest {
        let digest = self.digest(text);
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let sealed = self
            .key(name, &digest)
            .seal_in_place_append_tag(nonce, Aad::empty(), text);
        #[expect(clippy::expect_used, reason = "ring refuses nothing but 64 GiB")]
        sealed.expect("a text is shorter than 64 GiB");
        digest
    }

    /// Decrypts `text` in place, removes its tag, and checks that it has the digest.
    ///
    /// # Errors
    /// [`Unopened`]; `text` holds nothing of use then.
    pub fn decrypt(
        &self,
        name: TextName,
        digest: &Digest,
        text: &mut Vec<u8>,
    ) -> Result<(), Unopened> {
        let nonce = Nonce::assume_unique_for_key(NONCE);
        let opened = self
            .key(name, digest)
            .open_in_place(nonce, Aad::empty(), text);
        let length = opened.map_err(|_| Unopened)?.len();
        text.truncate(length);
        if self.digest(text) == *digest {
            Ok(())
        } else {
            Err(Unopened)
        }
    }

    /// Derives the key of one text and no other.
    #[expect(clippy::expect_used, reason = "ring refuses nothing but other lengths")]
    fn key(&self, name: TextName, digest: &Digest) -> LessSafeKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.texts);
        hasher.update(&name.number().to_le_bytes());
        hasher.update(digest.as_bytes());
        let key = Zeroizing::new(*hasher.finalize().as_bytes());
        let key = UnboundKey::new(&AES_256_GCM, &*key).expect("a key has 32 bytes");
        LessSafeKey::new(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::TAG_BYTES;
    use proptest::prelude::*;

    const FIRST: TextName = TextName::Chunk(0);

    fn cipher() -> Cipher {
        Cipher::new(&DatasetKey::from_secret_text(&"ab".repeat(32)).unwrap())
    }

    fn encrypted(name: TextName, text: &[u8]) -> (Digest, Vec<u8>) {
        let mut bytes = text.to_vec();
        (cipher().encrypt(name, &mut bytes), bytes)
    }

    #[test]
    fn a_key_is_read_as_it_is_written_and_never_shown() {
        let key = DatasetKey::random().unwrap();
        let text = key.to_secret_text();
        assert_eq!(DatasetKey::from_secret_text(&text), Some(key.clone()));
        assert_ne!(DatasetKey::random().unwrap(), key);
        let shown = format!("{key:?} {:?}", Cipher::new(&key));
        assert!(!shown.contains(text.trim_end()), "{shown}");
        for text in ["", "ab", &"g".repeat(64), &"ab".repeat(33)] {
            assert_eq!(DatasetKey::from_secret_text(text), None);
        }
    }

    #[test]
    fn the_same_text_gives_the_same_bytes_and_any_other_shares_none() {
        let text = [7u8; 4096];
        let (digest, bytes) = encrypted(FIRST, &text);
        assert_eq!(encrypted(FIRST, &text), (digest, bytes.clone()));
        // Under one key and nonce, two texts that differ in a bit would differ in one bit here.
        let mut changed = text;
        changed[0] ^= 1;
        let (other_digest, other) = encrypted(FIRST, &changed);
        assert_ne!(digest, other_digest);
        let second = encrypted(TextName::Chunk(1), &text).1;
        let manifest = encrypted(TextName::Manifest, &text).1;
        for other in [other, second, manifest] {
            let same = other.iter().zip(&bytes).filter(|(a, b)| a == b).count();
            assert!(same < 100, "{same} of 4096 bytes are the same");
        }
    }

    #[test]
    fn what_was_changed_moved_or_is_of_another_dataset_does_not_open() {
        let (digest, bytes) = encrypted(FIRST, b"a chunk of 26 bytes, or so");
        let opens = |cipher: &Cipher, name, digest: &Digest, bytes: &[u8]| {
            cipher.decrypt(name, digest, &mut bytes.to_vec()).is_ok()
        };
        assert!(opens(&cipher(), FIRST, &digest, &bytes));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(!opens(&cipher(), FIRST, &digest, &changed), "byte {at}");
        }
        assert!(!opens(&cipher(), FIRST, &digest, &bytes[1..]));
        assert!(!opens(&cipher(), FIRST, &digest, &bytes[..bytes.len() - 1]));
        assert!(!opens(&cipher(), FIRST, &digest, b""));
        assert!(!opens(&cipher(), TextName::Chunk(1), &digest, &bytes));
        assert!(!opens(&cipher(), TextName::Manifest, &digest, &bytes));
        assert!(!opens(&cipher(), FIRST, &Digest::new([0; 32]), &bytes));
        let other = Cipher::new(&DatasetKey::random().unwrap());
        assert!(!opens(&other, FIRST, &digest, &bytes));
    }

    #[test]
    fn the_form_does_not_change_from_release_to_release() {
        let (digest, bytes) = encrypted(TextName::Chunk(3), b"posthaste");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (digest.to_string().as_str(), hex.as_str()),
            (
                "e813881558a97e3ab94239354712e65efffcad70565ec4d65ea2378bbf5c3639",
                "3142a14145dfd6600eeb6ef6f8e36f0b7bc7c096ff57ade9c2"
            )
        );
    }

    proptest! {
        #[test]
        fn every_text_comes_back(
            text in proptest::collection::vec(any::<u8>(), 0..5000), chunk: u32,
        ) {
            let name = TextName::Chunk(chunk);
            let (digest, mut bytes) = encrypted(name, &text);
            prop_assert_eq!(bytes.len() as u64, text.len() as u64 + TAG_BYTES.get());
            prop_assert_eq!(cipher().decrypt(name, &digest, &mut bytes), Ok(()));
            prop_assert_eq!(bytes, text);
        }
    }
}
