//! `cargo xtask reproduce NAME`: measurements of a paper beside results of our own decisions, one
//! page of `docs/reproduced/` from each paper.

mod offload;
mod overlay;

use std::fs;

use anyhow::{Context, bail};

use crate::root;

/// Reproduces the paper named by the first argument.
///
/// # Errors
/// Fails if there is no such paper, or its page can't be made or written.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    match arguments {
        [name] if name == "offload" => publish(name, &offload::page()?),
        [name] if name == "offload-live" => publish(name, &offload::live::page()?),
        [name, options @ ..] if name == "overlay" => publish(name, &overlay::page(options)?),
        [..] => bail!(
            "write `cargo xtask reproduce offload` or `offload-live` (Timely Offloading, ICS 2008) or `overlay [--runs N] [--seconds N]` \
             (On-demand Overlay Networks, 2010)"
        ),
    }
}

/// Writes a page to `docs/reproduced/NAME.md` and shows it.
fn publish(name: &str, text: &str) -> anyhow::Result<()> {
    let path = root().join(format!("docs/reproduced/{name}.md"));
    fs::create_dir_all(path.parent().context("the page has a folder")?)?;
    fs::write(&path, text)?;
    eprintln!("{text}\nwritten to {}", path.display());
    Ok(())
}
