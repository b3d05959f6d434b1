//! Chunk and its fragments.

use bytes::Bytes;
use posthaste_types::Digest;

use crate::{
    code::{Codec, CodecError},
    envelope::{Cipher, TextName},
};

/// Chunk cut into fragments, each with its digest.
#[derive(Debug, Clone)]
pub struct Stripe {
    /// BLAKE3 digest of the chunk itself, as it is stored.
    pub chunk_digest: Digest,
    /// Keyed digest of the chunk's content, if it is encrypted.
    pub content_digest: Option<Digest>,
    /// Data fragments (k, the last one zero-padded), then the m parity fragments.
    pub fragments: Vec<Bytes>,
    /// BLAKE3 digests of the fragments.
    pub digests: Vec<Digest>,
}

/// Returns the BLAKE3 digest of `bytes`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

/// Bytes that a chunk's buffer should have room for after the chunk, or it is moved once: a tag of
/// 16, and the padding of up to 32 data fragments.
pub const SPARE_BYTES: usize = 48;

/// Encrypts chunk number `chunk` if there is a cipher, and cuts it into the fragments of the
/// codec's code. Data fragments share the memory of `bytes`, which should have room for
/// [`SPARE_BYTES`] more. Blocking: reads the chunk three times, and twice more to encrypt it.
///
/// # Errors
/// [`CodecError`] never, but for a defect here.
pub fn encode_stripe(
    codec: &Codec,
    cipher: Option<&Cipher>,
    chunk: u32,
    mut bytes: Vec<u8>,
) -> Result<Stripe, CodecError> {
    let content_digest = cipher.map(|cipher| cipher.encrypt(TextName::Chunk(chunk), &mut bytes));
    let chunk_digest = digest_of(&bytes);
    let fragments = codec.cut(bytes)?;
    // With k = 1 the data fragment is the chunk, whose digest is known.
    let digests =
        fragments
            .iter()
            .enumerate()
            .map(|(at, fragment)| match (codec.code().data(), at) {
                (1, 0) => chunk_digest,
                _ => digest_of(fragment),
            });
    Ok(Stripe {
        chunk_digest,
        content_digest,
        digests: digests.collect(),
        fragments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::DatasetKey;
    use posthaste_types::{Code, TAG_BYTES};

    #[test]
    fn data_fragments_are_the_chunk_and_digests_are_theirs() {
        for (code, size) in [
            ("1+0", 10),
            ("4+1", 10),
            ("4+1", 0),
            ("3+2", 1),
            ("32+4", 100_000),
        ] {
            let codec = Codec::new(code.parse::<Code>().unwrap());
            let chunk: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let stripe = encode_stripe(&codec, None, 0, chunk.clone()).unwrap();
            assert_eq!(
                stripe.fragments.len(),
                usize::from(codec.code().total()),
                "{code}"
            );
            assert_eq!(stripe.chunk_digest, digest_of(&chunk));
            let data = &stripe.fragments[..usize::from(codec.code().data())];
            assert_eq!(data.concat()[..chunk.len()], chunk, "{code}");
            for (fragment, digest) in stripe.fragments.iter().zip(&stripe.digests) {
                assert_eq!(digest_of(fragment), *digest);
            }
        }
    }

    #[test]
    fn an_encrypted_chunk_shows_nothing_and_is_the_same_every_time() {
        let (codec, key) = (
            Codec::new("3+2".parse().unwrap()),
            DatasetKey::random().unwrap(),
        );
        let cipher = Cipher::new(&key);
        let chunk = vec![0x5a; 10_000];
        let encode = |number| encode_stripe(&codec, Some(&cipher), number, chunk.clone()).unwrap();
        let stripe = encode(4);
        assert_eq!(stripe.digests, encode(4).digests);
        assert_ne!(stripe.digests, encode(5).digests);
        assert_eq!(stripe.content_digest, Some(cipher.digest(&chunk)));
        let stored: usize = stripe.fragments[..3].iter().map(Bytes::len).sum();
        assert_eq!(stored, 10_017, "10,000, a tag, and padding to three pieces");
        let spare = TAG_BYTES.get() + u64::from(Code::FRAGMENTS_MAX);
        assert_eq!(SPARE_BYTES as u64, spare);
        for fragment in &stripe.fragments {
            let runs = fragment
                .windows(4)
                .filter(|bytes| *bytes == [0x5a; 4])
                .count();
            assert_eq!(runs, 0);
        }
        let mut whole = stripe.fragments[..3].concat();
        whole.truncate(10_016);
        assert_eq!(digest_of(&whole), stripe.chunk_digest);
        let digest = stripe.content_digest.unwrap();
        cipher
            .decrypt(TextName::Chunk(4), &digest, &mut whole)
            .unwrap();
        assert!(whole == chunk);
    }
}
