//! What is left to the night.

/// Of `count` seeds, kills or examples that a test tries, how many it tries now: a third by day, all where `POSTHASTE_NIGHT` is set, as
/// `.ci/nightly` does.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "whether it is night is said outside"
)]
pub fn share_of(count: u64) -> u64 {
    match std::env::var_os("POSTHASTE_NIGHT") {
        Some(_) => count,
        None => count.div_ceil(3),
    }
}
