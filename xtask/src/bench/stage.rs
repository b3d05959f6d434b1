//! Preparation of benchmarks: a folder, bytes to move, the program built as it ships.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context;

use super::say;
use crate::{cargo, succeed};

/// A benchmark's own folder, removed at the end.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it below `parent`.
    ///
    /// # Errors
    /// Fails if it can't be made.
    pub fn new(parent: &Path) -> anyhow::Result<Self> {
        remove_left(parent)?;
        let path = parent.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Prefix of each benchmark's folder; the number of its process follows.
const FOLDER_PREFIX: &str = "posthaste-bench-";

/// Removes folders of killed benchmarks below `parent`.
fn remove_left(parent: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(parent).with_context(|| format!("list {}", parent.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix(FOLDER_PREFIX));
        if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            say(&format!("can't remove {}: {error}", self.0.display()));
        }
    }
}

/// Builds a program of the workspace as it ships, and returns its path.
///
/// # Errors
/// Fails if it does not compile.
pub fn build(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    succeed(
        cargo(&["build", "--release", "--locked", "--package", package]).stdout(Stdio::null()),
    )?;
    Ok(target_folder()?.join("release").join(program))
}

/// Builds an example of a package as it ships, and returns its path.
///
/// # Errors
/// Fails if it does not compile.
pub fn build_example(package: &str, example: &str) -> anyhow::Result<PathBuf> {
    let arguments = ["--release", "--locked", "--package", package];
    succeed(
        cargo(&["build"])
            .args(arguments)
            .args(["--example", example]),
    )?;
    Ok(target_folder()?.join("release/examples").join(example))
}

/// Returns the folder that cargo builds in.
///
/// # Errors
/// Fails if this program was not built by cargo.
pub fn target_folder() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("find the target folder")?;
    let target = this.ancestors().nth(2).context("find the target folder")?;
    Ok(target.to_owned())
}

/// The xorshift64 generator (Marsaglia, "Xorshift RNGs", 2003): bytes that no file system
/// compresses or shares, the same in every run.
#[derive(Debug)]
pub struct Noise(u64);

impl Noise {
    /// Starts it.
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// Fills the block, up to seven bytes at its end left out.
    pub fn fill(&mut self, block: &mut [u8]) {
        for eight in block.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            eight.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

/// Removes a folder, if it is there.
///
/// # Errors
/// Fails if the disk refuses.
pub fn remove(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    Ok(())
}

/// Returns the bytes of all files below `folder`.
///
/// # Errors
/// Fails if it can't be listed.
pub fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_below(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
