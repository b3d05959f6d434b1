//! The age format (`age-encryption.org/v1`, <https://c2sp.org/age>), as far as it wraps a key for
//! recipients: X25519 stanzas, and a payload of one piece. The `age` command opens what is wrapped
//! here, and the reverse.

mod header;
mod keys;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use header::{Header, Stanza};
pub use keys::{Identity, KeyError, Recipient, read_identities};

/// Bytes of the key that encrypts a file and is itself wrapped for each recipient.
const FILE_KEY_BYTES: usize = 16;
/// Bytes of the nonce that starts a payload.
const NONCE_BYTES: usize = 16;
/// Bytes of a payload's pieces: everything wrapped fits into one.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of the tag of ChaCha20-Poly1305.
const TAG_BYTES: usize = 16;
/// Maximum of recipients of one file: the header stays small, and every pull tries each.
pub const RECIPIENTS_MAX: usize = 64;

/// Reason why a file could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwrapError {
    /// The envelope is wrapped for others.
    NoIdentity,
    /// Not an age file, or a changed one.
    Malformed(&'static str),
}

/// Wraps `secret` so that each of the recipients, and nobody else, can read it.
///
/// # Errors
/// [`KeyError`] for no recipient or too many, for a recipient that is no key at all, and if the
/// operating system gives no randomness.
pub fn wrap(recipients: &[Recipient], secret: &[u8]) -> Result<Vec<u8>, KeyError> {
    if recipients.is_empty() || recipients.len() > RECIPIENTS_MAX || secret.len() > PIECE_BYTES {
        return Err(KeyError("1 to 64 recipients can be encrypted for"));
    }
    let mut file_key = Zeroizing::new([0; FILE_KEY_BYTES]);
    keys::fill_random(&mut *file_key)?;
    let stanzas = recipients
        .iter()
        .map(|recipient| stanza_for(recipient, &file_key))
        .collect::<Result<_, _>>()?;
    let mut out = Header { stanzas }.to_bytes(&file_key);
    let mut nonce = [0; NONCE_BYTES];
    keys::fill_random(&mut nonce)?;
    out.extend_from_slice(&nonce);
    let mut payload = secret.to_vec();
    seal(&payload_key(&file_key, &nonce), LAST_PIECE, &mut payload);
    out.extend_from_slice(&payload);
    Ok(out)
}

/// Opens a file with the first identity that fits.
///
/// # Errors
/// [`UnwrapError`]. Never panics on outside bytes.
pub fn unwrap(file: &[u8], identities: &[Identity]) -> Result<Zeroizing<Vec<u8>>, UnwrapError> {
    let (header, signed, payload) = Header::parse(file).map_err(UnwrapError::Malformed)?;
    let file_key = header
        .stanzas
        .iter()
        .flat_map(|stanza| identities.iter().map(move |identity| (stanza, identity)))
        .find_map(|(stanza, identity)| open_stanza(stanza, identity))
        .ok_or(UnwrapError::NoIdentity)?;
    if !signed.is_by(&file_key) {
        return Err(UnwrapError::Malformed("its header was changed"));
    }
    let (nonce, pieces) = payload
        .split_first_chunk::<NONCE_BYTES>()
        .ok_or(UnwrapError::Malformed("it is cut off"))?;
    if pieces.len() > PIECE_BYTES + TAG_BYTES {
        return Err(UnwrapError::Malformed("it is too long for a key"));
    }
    let changed = UnwrapError::Malformed("its payload was changed or cut off");
    open(&payload_key(&file_key, nonce), LAST_PIECE, pieces).ok_or(changed)
}

/// Nonce of a payload's first piece if it is its last: a counter, then a mark.
const LAST_PIECE: [u8; aead::NONCE_LEN] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Nonce of a wrapped file key: its key is used once.
const ONLY: [u8; aead::NONCE_LEN] = [0; aead::NONCE_LEN];

/// Wraps the file key for one recipient by a key that nobody uses again.
fn stanza_for(recipient: &Recipient, file_key: &[u8; FILE_KEY_BYTES]) -> Result<Stanza, KeyError> {
    let ephemeral = Identity::random()?;
    let share = ephemeral.recipient();
    let shared = ephemeral
        .agree(recipient)
        .ok_or(KeyError("a recipient is no key"))?;
    let mut body = file_key.to_vec();
    seal(&wrap_key(&share, recipient, &shared), ONLY, &mut body);
    Ok(Stanza { share, body })
}

fn open_stanza(stanza: &Stanza, identity: &Identity) -> Option<Zeroizing<[u8; FILE_KEY_BYTES]>> {
    let shared = identity.agree(&stanza.share)?;
    let key = wrap_key(&stanza.share, &identity.recipient(), &shared);
    let opened = open(&key, ONLY, &stanza.body)?;
    Some(Zeroizing::new(opened.as_slice().try_into().ok()?))
}

fn wrap_key(share: &Recipient, recipient: &Recipient, shared: &[u8; 32]) -> Zeroizing<[u8; 32]> {
    let salt = [*share.as_bytes(), *recipient.as_bytes()].concat();
    keys::derive(&salt, shared, b"age-encryption.org/v1/X25519")
}

fn payload_key(file_key: &[u8; FILE_KEY_BYTES], nonce: &[u8; NONCE_BYTES]) -> Zeroizing<[u8; 32]> {
    keys::derive(nonce, file_key, b"payload")
}

#[expect(
    clippy::expect_used,
    reason = "ring refuses keys of other lengths and texts of 256 GiB alone"
)]
fn cipher(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&aead::CHACHA20_POLY1305, key).expect("a key has 32 bytes");
    LessSafeKey::new(key)
}

#[expect(
    clippy::expect_used,
    reason = "ring refuses keys of other lengths and texts of 256 GiB alone"
)]
fn seal(key: &[u8; 32], nonce: [u8; aead::NONCE_LEN], text: &mut Vec<u8>) {
    let nonce = Nonce::assume_unique_for_key(nonce);
    cipher(key)
        .seal_in_place_append_tag(nonce, Aad::empty(), text)
        .expect("a text is below 64 KiB");
}

fn open(key: &[u8; 32], nonce: [u8; aead::NONCE_LEN], text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(text.to_vec());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let length = cipher(key)
        .open_in_place(nonce, Aad::empty(), &mut text)
        .ok()?
        .len();
    text.truncate(length);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};
    use proptest::prelude::*;

    const IDENTITY: &str =
        "AGE-SECRET-KEY-13UCTQG0623KYT3UMCYUXQ549Y9F0QZ6RLTTNVV5ZQW2438RSM3LSGDCJAP";
    /// File made by `age` 1.1.1 for that identity, another one and an SSH key.
    const OF_AGE: &str = "\
        YWdlLWVuY3J5cHRpb24ub3JnL3YxCi0+IFgyNTUxOSBrLy9oTjByZHZaR0RwaWFxTjZZZHdPM0NlMFEyd3Z4MjJQZm\
        N5WjUrK2drClM3K2MzTjJadUxpa0lIRzJvMThUc21DcllIbmhHVndDRElLc1NXK25BUFkKLT4gWDI1NTE5IGpXWkk3\
        KzVqTFlxcTIvZW5GNUdEQUhIQnBZL29BV0RlTU5UcTVMajQ0SFUKVGRUd0NOVlQ0Ty9UWko3QStoVkZQMS9GQmNvYl\
        FCZEJzTHJ4T3cwQ2pScwotPiBzc2gtZWQyNTUxOSBSK01UdkEgdTJOT2dMZ05zL2JvSGdrK1ZaVHFPYWJwU0c3NTYr\
        ZFdYU2RKRHFGN0wzbwo1alpmdlhTbm1UQVJUUnNqMmpSU0JGaUVaUHNPN1JuQ2RVcXZKOVhPbStvCi0tLSAwMVZTRz\
        VuQ1liVytPRitUemt1UVE2Uk1NVmFBZUxlR2JXa0JaZlA5MGJnCkoc8swPWr1Hge5QElno6VC7nWd4gFyq/qhnbaka\
        pcbasw5BqPXaXCEfCkX4K2+2q+lm0XZfun3YbgHS";

    fn alice() -> Identity {
        IDENTITY.parse().unwrap()
    }

    #[test]
    fn what_the_age_command_wrapped_opens() {
        let file = STANDARD.decode(OF_AGE).unwrap();
        let opened = unwrap(&file, &[Identity::random().unwrap(), alice()]).unwrap();
        assert_eq!(*opened, b"a key, wrapped by age 1.1.1");
        let others = [Identity::random().unwrap()];
        assert_eq!(unwrap(&file, &others), Err(UnwrapError::NoIdentity));
    }

    #[test]
    fn every_recipient_opens_and_nobody_else() {
        let identities: Vec<Identity> = (0..5).map(|_| Identity::random().unwrap()).collect();
        let recipients: Vec<Recipient> = identities[..4].iter().map(Identity::recipient).collect();
        let file = wrap(&recipients, b"secret").unwrap();
        for identity in &identities[..4] {
            assert_eq!(
                *unwrap(&file, std::slice::from_ref(identity)).unwrap(),
                b"secret"
            );
        }
        assert_eq!(
            unwrap(&file, &identities[4..]),
            Err(UnwrapError::NoIdentity)
        );
        assert_ne!(wrap(&recipients, b"secret").unwrap(), file);
    }

    #[test]
    fn what_can_not_be_wrapped_is_refused() {
        assert!(wrap(&[], b"x").is_err());
        assert!(wrap(&vec![alice().recipient(); RECIPIENTS_MAX + 1], b"x").is_err());
        // A point of small order would let everybody read.
        assert!(wrap(&[Recipient::new([0; 32])], b"x").is_err());
        assert!(wrap(&vec![alice().recipient(); RECIPIENTS_MAX], b"x").is_ok());
    }

    #[test]
    fn a_file_cut_or_changed_anywhere_does_not_open() {
        let file = wrap(&[alice().recipient()], b"secret").unwrap();
        for at in 0..file.len() {
            assert!(
                unwrap(&file[..at], &[alice()]).is_err(),
                "{at} bytes opened"
            );
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(
                unwrap(&changed, &[alice()]).is_err(),
                "byte {at} does not matter"
            );
        }
        assert!(unwrap(&[&file[..], b"x"].concat(), &[alice()]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "[ -~\n]{0,200}",
        ) {
            let _ = unwrap(&bytes, &[alice()]);
            let start = "age-encryption.org/v1\n";
            let _ = unwrap(format!("{start}{text}").as_bytes(), &[alice()]);
            let _ = unwrap(format!("{start}-> X25519 {text}").as_bytes(), &[alice()]);
        }
    }
}
