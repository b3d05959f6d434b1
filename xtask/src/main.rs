//! The project's own chores, as `cargo xtask NAME`.
//!
//! `cargo xtask demo` compiles this crate before anything else on a fresh machine, so it depends
//! on next to nothing.

mod bench;
mod ci;
mod demo;
mod fingerprints;
mod flaky;
mod generate;
mod reproduce;
mod swarm;
mod test;
mod tidy;

use std::{
    env,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};
use posthaste_testbed::install;

const USAGE: &str = "\
The project's chores.

Usage: cargo xtask CHORE [ARGUMENTS]

  demo [DIR] [--json]  build posthaste and show it move a real tree by a deadline
  install              install the servers that the tests run against, and what runs and checks them
  test [NAME …]        install what the tests need, then run them, or a file of tests, or those with this name;
                       `--profile strict` knows no second try and leaves nothing to the night; options go to nextest
  flaky [NAME …]       run tests again and again on a busy machine, and list those that fail by chance;
                       [--rounds N] [--seed N] [--calm]
  swarm                play random worlds that nobody played before, on all cores, and list those that fail;
                       [--minutes N] [--worlds N] [--seed N]: ten minutes unless said
  fingerprints         play every scenario and random worlds, and list those in which the mind decides otherwise than
                       when scenarios/fingerprints.txt was written; [--short] [--write]
  bench NAME           measure posthaste beside others, into docs/benchmarks/; without NAME: which there are
  reproduce NAME       a paper's results beside ours, into docs/reproduced/: offload
  generate             write openapi/, man pages and shell completions
  deny ARGUMENTS       run cargo-deny, which is installed first
  tidy                 check the house rules no compiler checks
  ci                   everything a change must pass, as .ci/run does it
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match chore(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn chore(arguments: &[String]) -> anyhow::Result<()> {
    let Some((name, rest)) = arguments.split_first() else {
        bail!("no chore named\n\n{USAGE}");
    };
    match name.as_str() {
        "bench" => bench::run(rest),
        "deny" => deny(rest),
        "demo" => demo::run(rest),
        "install" => test::servers::install(false),
        "test" => test::run(rest),
        "flaky" => flaky::run(rest),
        "swarm" => swarm::run(rest),
        "fingerprints" => fingerprints::run(rest),
        "generate" => generate::run(),
        "reproduce" => reproduce::run(rest),
        "tidy" => tidy::run(&root()),
        "ci" => ci::run(),
        "help" | "-h" | "--help" => {
            eprint!("{USAGE}");
            Ok(())
        }
        _ => bail!("there is no chore `{name}`\n\n{USAGE}"),
    }
}

/// Runs cargo-deny over the workspace.
///
/// # Errors
/// Fails if no registry serves it, or it finds anything.
fn deny(arguments: &[String]) -> anyhow::Result<()> {
    let program = install::ensure_cargo_program(install::DENY).context("can't have cargo-deny")?;
    succeed(
        Command::new(program)
            .arg("--locked")
            .args(arguments)
            .current_dir(root()),
    )
}

/// Returns the root of the checkout that this program was built from.
fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// Variables of `cargo xtask` about this program's own package. Build scripts would see them and
/// run again, and much be built twice.
const OWN_PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME"];

/// Returns the cargo of this checkout's toolchain file, run at its root as by hand.
fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).current_dir(root());
    for (name, _) in env::vars_os() {
        let is_own = |start: &&str| name.as_encoded_bytes().starts_with(start.as_bytes());
        if OWN_PACKAGE.iter().any(is_own) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs a command to its end.
///
/// # Errors
/// Fails if it can't be started, or ends with anything but success.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("can't run `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// Returns the command as a person would type it.
fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
