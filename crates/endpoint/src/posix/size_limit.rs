//! Limit on the size of files (`ulimit -f`): an error of the file that reaches it, and not the end of
//! the process, which a service would meet again at each start.

#![expect(unsafe_code, reason = "neither std nor rustix sets what a signal does")]

/// Makes a write beyond the limit fail with an error in place of a signal, for this process and those
/// it starts.
pub fn outlive_size_limit() {
    // SAFETY: to ignore a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
