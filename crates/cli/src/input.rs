//! Line by line input of commands: a file, or standard input.

use std::path::Path;

use tokio::io::AsyncRead;

use crate::failure::{Exit, Failure};

/// Opens a file that an argument names, `-` for standard input.
///
/// # Errors
/// Returns [`Exit::FileNotFound`] if it can't be opened, and a usage failure for a directory.
pub async fn open(file: &str) -> Result<Box<dyn AsyncRead + Send + Unpin>, Failure> {
    if file == "-" {
        return Ok(Box::new(tokio::io::stdin()));
    }
    let failed =
        |why: String| Failure::new(Exit::FileNotFound, format!("can't read {file}: {why}"));
    if Path::new(file).is_dir() {
        let why = "it is a directory (name a file with a line for each)";
        return Err(Failure::usage(format!("can't read {file}: {why}")));
    }
    let opened = tokio::fs::File::open(Path::new(file)).await;
    let opened = opened.map_err(|cause| failed(format!("{cause} (check the path)")))?;
    Ok(Box::new(opened))
}
