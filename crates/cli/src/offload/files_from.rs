//! Lists of files, as other tools write them, streamed to the service.

use std::io;

use bytes::Bytes;
use futures_util::{Stream, stream};
use posthaste_api as api;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::{failure::Failure, input};

/// Bytes of lines sent at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Streams a request and its files as lines for the service.
///
/// # Errors
/// Fails if the list can't be opened.
pub(super) async fn lines(
    new: &api::NewRequest,
    file: &str,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static, Failure> {
    let mut first = serde_json::to_vec(new).map_err(anyhow::Error::from)?;
    first.push(b'\n');
    let list = List {
        from: BufReader::with_capacity(BLOCK_BYTES, input::open(file).await?),
        name: file.to_owned(),
        source: new.source.clone(),
        number: 0,
    };
    let rest = stream::try_unfold(list, |mut list| async {
        let block = list.block().await?;
        Ok((!block.is_empty()).then(|| (Bytes::from(block), list)))
    });
    let first = stream::once(async { Ok(Bytes::from(first)) });
    Ok(futures_util::StreamExt::chain(first, rest))
}

/// List that is being read.
struct List {
    from: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    /// Name for people.
    name: String,
    /// Directory at which the list's paths begin.
    source: String,
    number: u64,
}

impl List {
    /// Returns some of the list's lines as JSON; empty after the last.
    async fn block(&mut self) -> io::Result<Vec<u8>> {
        let (mut block, mut line) = (Vec::new(), Vec::new());
        while block.len() < BLOCK_BYTES {
            line.clear();
            let read = self.from.read_until(b'\n', &mut line).await;
            let failed = |cause| io::Error::other(format!("can't read {}: {cause}", self.name));
            if read.map_err(failed)? == 0 {
                break;
            }
            self.number += 1;
            let text = std::str::from_utf8(line.strip_suffix(b"\n").unwrap_or(&line));
            let text = text.map_err(|_| {
                let (number, name) = (self.number, &self.name);
                io::Error::other(format!(
                    "can't read {name}: line {number} is no UTF-8 (rename the file)"
                ))
            })?;
            if let Some(path) = path_of(text, &self.source) {
                serde_json::to_writer(&mut block, path)?;
                block.push(b'\n');
            }
        }
        Ok(block)
    }
}

/// Returns the path that a line names, relative to the directory: also for the output of `find .`
/// or `find /scratch/run7`. `None` for comments and empty lines.
fn path_of<'a>(line: &'a str, source: &str) -> Option<&'a str> {
    if line.is_empty() || line.starts_with(['#', ';']) {
        return None;
    }
    let from_root = line
        .strip_prefix(source.trim_end_matches('/'))
        .and_then(|rest| rest.strip_prefix('/'));
    Some(from_root.or(line.strip_prefix("./")).unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_path_from_the_directory_however_it_was_found() {
        let path = |line| path_of(line, "/scratch/run7/");
        assert_eq!(path("a/b"), Some("a/b"));
        assert_eq!(path("./a/b"), Some("a/b"));
        assert_eq!(path("/scratch/run7/a/b"), Some("a/b"));
        assert_eq!(path("/scratch/run70/a"), Some("/scratch/run70/a"));
        assert_eq!(path(" a"), Some(" a"));
        assert_eq!(path("./#a"), Some("#a"));
        for nothing in ["", "# all of them", "; or so"] {
            assert_eq!(path(nothing), None, "{nothing}");
        }
    }
}
