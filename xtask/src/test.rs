//! `cargo xtask test`: all tests, on a machine that may have nothing but Rust yet.

use crate::{cargo, succeed};

/// Installs what the tests need, then runs every test of the workspace, those in documentation
/// too. `arguments` are handed to `cargo test`.
///
/// # Errors
/// When something is missing and can't be installed, or a test fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    eprintln!("xtask: cargo test --workspace --locked");
    succeed(cargo(&["test", "--workspace", "--locked"]).args(arguments))
}
