use crate::Bytes;

/// Bytes that encrypting adds to a chunk: the tag of AES-GCM.
pub const TAG_BYTES: Bytes = Bytes::new(16);

/// Returns the sizes that depots store of an encrypted dataset and of its chunks, each chunk with
/// its tag. The number of chunks stays the same.
#[must_use]
pub fn encrypted_sizes(bytes: Bytes, chunk_size: Bytes) -> (Bytes, Bytes) {
    let tags = TAG_BYTES.times(bytes.pieces(chunk_size));
    (bytes + tags, chunk_size + TAG_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_has_a_tag_and_there_are_as_many_as_before() {
        let chunk = Bytes::new(1000);
        for (bytes, encrypted) in [(0, 0), (1, 17), (1000, 1016), (1001, 1033), (5000, 5080)] {
            let (size, chunk_size) = encrypted_sizes(Bytes::new(bytes), chunk);
            assert_eq!((size.get(), chunk_size.get()), (encrypted, 1016));
            let chunks = Bytes::new(bytes).pieces(chunk);
            assert_eq!(size.pieces(chunk_size), chunks, "{bytes}");
        }
    }
}
