//! Key that encrypts credentials: AES-256-GCM, with a random nonce for each, and owner and name as
//! associated data.
//!
//! The file has one key a line. The first key seals, any key opens. So a key is changed without a
//! moment at which credentials can't be read: the new key is written before the old one, everything
//! is sealed anew, and the old key is removed.

use std::path::{Path, PathBuf};

use posthaste_endpoint::{Error, ErrorKind, Result, relay::is_constant};
use posthaste_types::Digest;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

use crate::{secrets, store::sync_parent};

const KEY_BYTES: usize = 32;
/// Keys of a file: one, and during a change two. This bounds unfinished changes.
const KEYS_MAX: usize = 8;
/// First byte of sealed data: another form gets another number.
const FORM: u8 = 1;

/// Keys of a file, the sealing one first; none before the first credential.
pub(super) struct Keys {
    file: PathBuf,
    keys: Vec<[u8; KEY_BYTES]>,
}

impl Keys {
    /// Reads the keys; a missing file has none.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if others can read the file, [`ErrorKind::Invalid`] if it
    /// holds something else; the operating system's.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = match secrets::read_private(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let wrong = |cause: &str| {
            Error::new(ErrorKind::Invalid, "use", file.display().to_string())
                .cause(cause.to_owned())
                .hint("name the file with the key of this service's credentials")
        };
        let keys = text.lines().map(|line| {
            let key: Result<Digest, _> = line.trim().parse();
            let key = key.map_err(|_| wrong("it is no key of 64 hexadecimal digits a line"))?;
            if is_constant(key.as_bytes()) {
                return Err(wrong("a key in it is one byte again and again"));
            }
            Ok(*key.as_bytes())
        });
        let keys: Vec<_> = keys.collect::<Result<_>>()?;
        if keys.len() > KEYS_MAX || (keys.is_empty() && file.exists()) {
            return Err(wrong("it has no key, or too many"));
        }
        Ok(Self {
            file: file.to_owned(),
            keys,
        })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn are_there(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Makes a new key that seals from now on; the others stay. It is durable when this returns.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if too many earlier changes did not finish; the operating system's.
    pub(super) fn renew(&mut self) -> Result<()> {
        if self.keys.len() >= KEYS_MAX {
            let shown = self.file.display().to_string();
            return Err(Error::new(ErrorKind::Conflict, "add a key to", shown)
                .cause("changes of it began and did not end, and each of its keys may be needed")
                .hint("start the service again, and see what keeps them from ending"));
        }
        let mut key = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut key).map_err(|_| no_noise())?;
        let mut keys = vec![key];
        keys.extend(&self.keys);
        self.write(keys)
    }

    /// Removes all keys but the sealing one.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn forget_older(&mut self) -> Result<()> {
        let newest = self.keys.iter().take(1).copied().collect();
        self.write(newest)
    }

    fn write(&mut self, keys: Vec<[u8; KEY_BYTES]>) -> Result<()> {
        let lines = keys.iter().map(|key| secrets::to_hex(key) + "\n");
        secrets::write_private(&self.file, &lines.collect::<String>())?;
        sync_parent(&self.file)?;
        self.keys = keys;
        Ok(())
    }

    /// Encrypts a text of an owner under a name.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if there is no key or no randomness.
    pub(super) fn seal(&self, whose: (&str, &str), text: &[u8]) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| no_noise())?;
        self.seal_with(nonce, whose, text)
    }

    /// Seals as [`Keys::seal`], but equal texts give equal bytes, as a repeated submission needs.
    /// The nonce derives from all sealed data, so no nonce is used for two texts.
    ///
    /// # Errors
    /// Errors of [`Keys::seal`].
    pub(super) fn seal_alike(&self, whose: (&str, &str), text: &[u8]) -> Result<Vec<u8>> {
        let key = self.keys.first().ok_or_else(no_noise)?;
        let key = blake3::derive_key("posthaste 2026-11-29 nonces of sealed addresses", key);
        let all = [&bound(whose.0, whose.1)[..], &[0], text].concat();
        let mut nonce = [0; NONCE_LEN];
        let digest = blake3::keyed_hash(&key, &all);
        nonce.copy_from_slice(&digest.as_bytes()[..NONCE_LEN]);
        self.seal_with(nonce, whose, text)
    }

    fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        (owner, name): (&str, &str),
        text: &[u8],
    ) -> Result<Vec<u8>> {
        let key = self.keys.first().ok_or_else(no_noise)?;
        let mut bytes = text.to_vec();
        cipher(key)?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound(owner, name)),
                &mut bytes,
            )
            .map_err(|_| no_noise())?;
        Ok([&[FORM][..], &nonce, &bytes].concat())
    }

    /// Opens a text sealed for this owner and name; none if it was sealed with another key, or for
    /// others.
    pub(super) fn open(&self, (owner, name): (&str, &str), sealed: &[u8]) -> Option<Vec<u8>> {
        let (&form, rest) = sealed.split_first()?;
        let (nonce, rest) = rest.split_at_checked(NONCE_LEN)?;
        if form != FORM {
            return None;
        }
        self.keys.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut bytes = rest.to_vec();
            let aad = Aad::from(bound(owner, name));
            let opened = cipher(key).ok()?.open_in_place(nonce, aad, &mut bytes);
            Some(opened.ok()?.to_vec())
        })
    }
}

fn cipher(key: &[u8; KEY_BYTES]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| no_noise())?;
    Ok(LessSafeKey::new(key))
}

/// Returns the data bound to a sealed text. No owner and no name has a zero in it.
fn bound(owner: &str, name: &str) -> Vec<u8> {
    format!("posthaste credential\0{owner}\0{name}").into_bytes()
}

fn no_noise() -> Error {
    Error::new(ErrorKind::Other, "encrypt", "a credential")
        .cause("there is no key, or the operating system gives no random numbers")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const MINE: (&str, &str) = ("alice", "archive");

    #[test]
    fn what_is_sealed_opens_for_its_owner_and_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let mut keys = Keys::read(&file).unwrap();
        assert!(!keys.are_there());
        assert!(keys.seal(MINE, b"secret").is_err());
        keys.renew().unwrap();
        let sealed = keys.seal(MINE, b"secret").unwrap();
        assert!(!sealed.windows(6).any(|some| some == b"secret"));
        assert_ne!(sealed, keys.seal(MINE, b"secret").unwrap());
        assert_eq!(keys.open(MINE, &sealed).unwrap(), b"secret");
        for other in [("bob", "archive"), ("alice", "other"), ("alic", "earchive")] {
            assert_eq!(keys.open(other, &sealed), None, "{other:?}");
        }
        for at in 0..sealed.len() {
            let mut harmed = sealed.clone();
            harmed[at] ^= 1;
            assert_eq!(keys.open(MINE, &harmed), None, "{at}");
        }
        assert_eq!(keys.open(MINE, &sealed[..5]), None);
    }

    #[test]
    fn a_change_of_keys_leaves_nothing_that_can_not_be_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let mut keys = Keys::read(&file).unwrap();
        keys.renew().unwrap();
        let before = keys.seal(MINE, b"secret").unwrap();
        keys.renew().unwrap();
        // State after a crash in between.
        let mut keys = Keys::read(&file).unwrap();
        let after = keys.seal(MINE, b"secret").unwrap();
        for sealed in [&before, &after] {
            assert_eq!(keys.open(MINE, sealed).unwrap(), b"secret");
        }
        keys.forget_older().unwrap();
        let keys = Keys::read(&file).unwrap();
        assert_eq!(keys.open(MINE, &before), None);
        assert_eq!(keys.open(MINE, &after).unwrap(), b"secret");
    }

    #[test]
    fn a_file_that_is_none_of_keys_or_that_others_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        for text in ["", "short\n", &"zz".repeat(32), &"00".repeat(32)] {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            let error = Keys::read(&file).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Keys::read(&file).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
}
