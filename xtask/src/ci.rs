//! `cargo xtask ci`: the same as `.ci/run`, for those who think in chores.

use std::process::Command;

use crate::{root, succeed};

/// Runs `.ci/run`.
///
/// # Errors
/// When any of its steps fails.
pub fn run() -> anyhow::Result<()> {
    succeed(Command::new(".ci/run").current_dir(root()))
}
