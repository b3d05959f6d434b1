//! What commands read line by line: a file, or standard input.

use std::path::Path;

use tokio::io::AsyncRead;

use crate::failure::{Exit, Failure};

/// Opens a file that an argument names, `-` for standard input.
///
/// # Errors
/// [`Exit::FileNotFound`] when it can't be.
pub async fn open(file: &str) -> Result<Box<dyn AsyncRead + Send + Unpin>, Failure> {
    if file == "-" {
        return Ok(Box::new(tokio::io::stdin()));
    }
    let opened = tokio::fs::File::open(Path::new(file)).await;
    let opened = opened
        .map_err(|cause| Failure::new(Exit::FileNotFound, format!("can't read {file}: {cause}")))?;
    Ok(Box::new(opened))
}
