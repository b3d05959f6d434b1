//! What is left to the night.

/// Whether all is tried, as `.ci/nightly` does by setting `POSTHASTE_NIGHT`.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "whether it is night is said outside"
)]
pub fn is_night() -> bool {
    std::env::var_os("POSTHASTE_NIGHT").is_some()
}

/// Of `count` seeds, kills or examples that a test tries, how many it tries now: a third by day, all by night.
#[must_use]
pub fn share_of(count: u64) -> u64 {
    match is_night() {
        true => count,
        false => count.div_ceil(3),
    }
}
