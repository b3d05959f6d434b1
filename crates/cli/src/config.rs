//! The one place of the executable that reads the environment.

use std::path::PathBuf;

/// Where the service listens unless told otherwise.
pub const SERVICE_URL: &str = "http://127.0.0.1:7420";

#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the environment"
)]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The service's state directory: `$XDG_STATE_HOME/posthaste`, else `~/.local/state/posthaste`.
pub fn state_directory() -> PathBuf {
    let state = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local").join("state")));
    state
        .unwrap_or_else(|| PathBuf::from("."))
        .join("posthaste")
}

/// Whether colours are unwanted (<https://no-color.org>).
pub fn no_color() -> bool {
    variable("NO_COLOR").is_some()
}
