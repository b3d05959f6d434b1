//! `cargo xtask ci`: alias of `.ci/run`, for users of xtask.

use std::process::Command;

use crate::{root, succeed};

/// Runs `.ci/run`.
///
/// # Errors
/// Fails if any of its steps fails.
pub fn run() -> anyhow::Result<()> {
    succeed(Command::new(".ci/run").current_dir(root()))
}
