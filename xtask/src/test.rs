//! `cargo xtask test`: all tests, on a machine that may have nothing but Rust yet.

use anyhow::{Context, bail};
use posthaste_testbed::install;

use crate::{cargo, succeed};

/// Installs what the tests need, then runs every test of the workspace, those in documentation
/// too. `arguments` are handed to `cargo test`.
///
/// # Errors
/// When something is missing and can't be installed, or a test fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    install_servers()?;
    eprintln!("xtask: cargo test --workspace --locked");
    succeed(cargo(&["test", "--workspace", "--locked"]).args(arguments))
}

/// Says each program the tests run against, and installs what is missing. Reports all that can't
/// be installed together, so that one round of installing by hand is enough.
fn install_servers() -> anyhow::Result<()> {
    eprintln!("xtask: the tests run against real servers: OpenSSH's sshd and versitygw for S3");
    let mut missing = Vec::new();
    for (what, found) in [
        (
            "sshd",
            install::ensure_ssh_server().context("can't have OpenSSH's server"),
        ),
        (
            "versitygw",
            install::ensure_s3_server().context("can't have the S3 server"),
        ),
    ] {
        match found {
            Ok(path) => eprintln!("xtask: {what} is {}", path.display()),
            Err(error) => missing.push(format!("{error:#}")),
        }
    }
    if !missing.is_empty() {
        bail!(
            "the tests need more than there is:\n  {}",
            missing.join("\n  ")
        );
    }
    Ok(())
}
