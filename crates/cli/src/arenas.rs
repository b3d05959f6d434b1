//! Settings of the C library's memory arenas.

#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "nothing safe asks this of glibc")
)]

/// More than a fragment that is on its way has, as a rule: pages that come anew each time cost time.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 4 << 20;
/// Free bytes kept at the end of the heap for small allocations. Setting the threshold for large
/// ones turns off glibc's dynamic adjustment, so the initial 128 KiB would be returned and fetched
/// all the time.
#[cfg(target_env = "gnu")]
const FREE_BYTES: libc::c_int = 16 << 20;

/// Has threads share two places that memory comes from, instead of each having one of its own (malloc(3), `M_ARENA_MAX`). What a
/// service keeps for long comes from one thread; what others need for a moment would stay with each of them, some megabytes at a time.
/// And what is very large, a snapshot of many requests before all, is given back to the system at once when it is not needed any more
/// (`M_MMAP_THRESHOLD`): glibc would come to keep up to 64 MiB of that for another time.
/// For before threads are started. Of no effect with other libraries than glibc.
pub fn share() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it reads and writes nothing but glibc's own settings, and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_BYTES);
    }
}
