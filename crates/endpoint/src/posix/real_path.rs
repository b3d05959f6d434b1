//! Resolves paths through all links.

use std::path::{Path, PathBuf};

use super::show;
use crate::{Error, Result};

/// Resolves a path, whose end need not exist yet. Blocks.
///
/// # Errors
/// The system's errors.
pub fn real_path(path: &Path) -> Result<PathBuf> {
    let fail = |cause| Error::io("look at", show(path), cause);
    let absolute = std::path::absolute(path).map_err(fail)?;
    let (mut there, mut missing) = (absolute.as_path(), Vec::new());
    loop {
        if let Ok(found) = there.canonicalize() {
            let below = missing.iter().rev();
            return Ok(below.fold(found, |path, name| path.join(name)));
        }
        let (Some(above), Some(name)) = (there.parent(), there.file_name()) else {
            return Ok(absolute);
        };
        missing.push(name.to_owned());
        there = above;
    }
}
