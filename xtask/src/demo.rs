//! `cargo xtask demo`: one command from a fresh clone to the main job done.

use std::{
    collections::BTreeSet,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::{cargo, shown, succeed};

/// Builds the executable and becomes it. All output here goes to stderr: stdout is the demo's, and
/// with `--json` it is one JSON object.
///
/// # Errors
/// Fails if the build fails or the executable can't be started; else it does not return.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let posthaste = executable()?;
    if !posthaste.exists() {
        eprintln!("{}", build_takes(crates_to_build()));
    }
    succeed(
        cargo(&[
            "build",
            "--release",
            "--locked",
            "--package",
            "posthaste-cli",
        ])
        .stdout(Stdio::null()),
    )?;
    let mut demo = Command::new(posthaste);
    demo.arg("demo").args(arguments);
    let error = demo.exec();
    Err(error).with_context(|| format!("can't run `{}`", shown(&demo)))
}

/// Returns cargo's path of the released executable: this program lies in the same target folder.
fn executable() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("can't find the target folder")?;
    match this.ancestors().nth(2) {
        Some(target) => Ok(target.join("release").join("posthaste")),
        None => bail!("can't find the target folder above {}", this.display()),
    }
}

/// Returns the number of crates in the executable; none if cargo can't tell.
fn crates_to_build() -> Option<usize> {
    let tree = cargo(&[
        "tree",
        "--locked",
        "--package",
        "posthaste-cli",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ])
    .stderr(Stdio::inherit())
    .output()
    .ok()?;
    tree.status
        .success()
        .then(|| distinct(&String::from_utf8_lossy(&tree.stdout)))
}

/// Counts distinct packages in the output of `cargo tree`.
fn distinct(tree: &str) -> usize {
    tree.lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.is_empty())
        .collect::<BTreeSet<_>>()
        .len()
}

fn build_takes(crates: Option<usize>) -> String {
    let crates = crates.map_or("its".to_owned(), |count| format!("{count}"));
    format!(
        "The first build compiles {crates} crates with optimization, the cryptography and SQLite \
         among them in C: about three minutes on 2 cores. The demo itself then takes about a \
         minute; the next start needs no build."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_is_listed_twice_is_built_once() {
        assert_eq!(distinct("a v1.0.0\nb v2.0.0\na v1.0.0 (*)\n\n"), 2);
    }

    #[test]
    fn the_first_build_says_how_much_it_is() {
        assert!(build_takes(Some(190)).contains("compiles 190 crates"));
        assert!(build_takes(None).contains("compiles its crates"));
    }
}
