//! Limit on the open descriptors of this process.

use posthaste_endpoint::{Error, ErrorKind, Lobby, Result, gateway::CONNECTIONS_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::braid::BRAIDS_MAX;

/// Descriptors of a stream: two sockets, and two pipes while both directions are busy.
const OF_A_STREAM: u64 = 6;
/// Descriptors of all braids: further connections, and the pair between two of them.
const OF_BRAIDS: u64 = BRAIDS_MAX as u64 * (CONNECTIONS_MAX as u64 + 2);
/// Other descriptors of the process: ports, spare pipes, the runtime's own, clients that have shown
/// no token yet.
const BESIDE: u64 = 256 + Lobby::DESCRIPTORS_MAX as u64;

/// Raises this process's limit to the descriptors of so many streams.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the machine does not allow it.
pub(crate) fn make_room(streams_max: usize) -> Result<()> {
    let wanted = (streams_max as u64).saturating_mul(OF_A_STREAM) + OF_BRAIDS + BESIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|cause| {
        let most = limit.maximum.unwrap_or(u64::MAX);
        Error::new(
            ErrorKind::Invalid,
            "carry",
            format!("{streams_max} streams"),
        )
        .cause(format!(
            "they need {wanted} open files, and {most} are allowed ({cause})"
        ))
        .hint("raise LimitNOFILE or ulimit -Hn, or give fewer --streams")
    })
}
