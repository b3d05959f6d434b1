//! A chunk and its fragments.

use bytes::Bytes;
use posthaste_types::Digest;

use crate::code::{Codec, CodecError};

/// A chunk cut into fragments, each with its digest.
#[derive(Debug, Clone)]
pub struct Stripe {
    /// BLAKE3 of the chunk itself.
    pub chunk_digest: Digest,
    /// The k data fragments (the last one zero-padded), then the m parity fragments.
    pub fragments: Vec<Bytes>,
    /// BLAKE3 of each fragment.
    pub digests: Vec<Digest>,
}

/// BLAKE3 of `bytes`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

/// Cuts a chunk into the fragments of the codec's code. Data fragments share the chunk's memory;
/// the buffer should have room for k - 1 bytes of padding, or it is moved once. Blocking: reads the
/// chunk three times.
///
/// # Errors
/// [`CodecError`] never, but for a defect here.
pub fn encode_stripe(codec: &Codec, mut chunk: Vec<u8>) -> Result<Stripe, CodecError> {
    let chunk_digest = digest_of(&chunk);
    let (data, parity) = (
        usize::from(codec.code().data()),
        usize::from(codec.code().parity()),
    );
    let size = chunk.len().div_ceil(data);
    chunk.resize(size * data, 0);
    let mut coded = vec![0; size * parity];
    if size > 0 {
        let inputs: Vec<&[u8]> = chunk.chunks_exact(size).collect();
        let mut out: Vec<&mut [u8]> = coded.chunks_exact_mut(size).collect();
        codec.encode(&inputs, &mut out)?;
    }
    let (chunk, coded) = (Bytes::from(chunk), Bytes::from(coded));
    let cut = |bytes: &Bytes, at: usize| bytes.slice(at * size..(at + 1) * size);
    let fragments: Vec<Bytes> = (0..data)
        .map(|at| cut(&chunk, at))
        .chain((0..parity).map(|at| cut(&coded, at)))
        .collect();
    // With k = 1 the data fragment is the chunk, whose digest is known.
    let digests = fragments
        .iter()
        .enumerate()
        .map(|(at, fragment)| match (data, at) {
            (1, 0) => chunk_digest,
            _ => digest_of(fragment),
        });
    Ok(Stripe {
        chunk_digest,
        digests: digests.collect(),
        fragments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Code;

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
            let stripe = encode_stripe(&codec, chunk.clone()).unwrap();
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
}
