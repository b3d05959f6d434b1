//! Content of files in tests.

/// Returns `len` bytes that nothing compresses, and that no other seed gives. No block of them comes
/// twice.
///
/// An optimized hash makes them: a loop in tests, which are not optimized, took half of their time.
#[must_use]
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}
