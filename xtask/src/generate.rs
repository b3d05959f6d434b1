//! `cargo xtask generate`: files made from the program itself.

use std::path::Path;

use crate::{cargo, root, succeed};

/// Writes the OpenAPI document and pages of the reference, which are committed, and man pages and
/// shell completions, which are not: packagers take them from `target/generated`.
///
/// # Errors
/// Fails if the program can't be built or a folder can't be written.
pub fn run() -> anyhow::Result<()> {
    let root = root();
    let generated = root.join("target").join("generated");
    write("openapi", &root.join("openapi"))?;
    write("reference", &root.join("docs/reference"))?;
    write("man", &generated.join("man"))?;
    write("completions", &generated.join("completions"))
}

fn write(what: &str, folder: &Path) -> anyhow::Result<()> {
    succeed(
        cargo(&[
            "run",
            "--quiet",
            "--locked",
            "--package",
            "posthaste-cli",
            "--",
        ])
        .args(["generate", what])
        .arg(folder),
    )?;
    eprintln!("xtask: {what} in {}", folder.display());
    Ok(())
}
