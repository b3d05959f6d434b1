//! Tests that run at night only.

/// Returns whether everything is tried: `.ci/nightly` sets `POSTHASTE_NIGHT`.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "whether it is night is said outside"
)]
pub fn is_night() -> bool {
    std::env::var_os("POSTHASTE_NIGHT").is_some()
}

/// Returns how many of `count` seeds, kills or examples a test tries now: a third by day, all by
/// night.
#[must_use]
pub fn share_of(count: u64) -> u64 {
    match is_night() {
        true => count,
        false => count.div_ceil(3),
    }
}
