//! Settings of the C library's memory arenas.

#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "nothing safe asks this of glibc")
)]

/// Larger than most fragments in transit: fresh pages for each allocation cost time.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 4 << 20;
/// Free bytes kept at the end of the heap for small allocations. Setting the threshold for large
/// ones turns off glibc's dynamic adjustment, so the initial 128 KiB would be returned and fetched
/// all the time.
#[cfg(target_env = "gnu")]
const FREE_BYTES: libc::c_int = 16 << 20;

/// Lets all threads share two arenas instead of one each (malloc(3), `M_ARENA_MAX`). One thread
/// allocates what a service keeps for long. With an arena each, other threads would retain some
/// megabytes of short-lived data.
///
/// Very large allocations, above all a snapshot of many requests, are returned to the system at
/// once (`M_MMAP_THRESHOLD`). Otherwise glibc would come to keep up to 64 MiB of them.
///
/// Call this before threads are started. It has no effect with other libraries than glibc.
pub fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it accesses only glibc's own settings, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES);
    }
}
