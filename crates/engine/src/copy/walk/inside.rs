//! A copy of a directory into itself never ends, and one of a file onto itself loses it.

use std::{
    io,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Entry, Error, ErrorKind, Kind, Locus, Result};

use crate::copy::{Place, Source};

/// Fails if the destination is the source, or lies inside it.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(super) fn refuse(source: &Source, entry: &Entry, destination: &Place, to: &[u8]) -> Result<()> {
    let (Some(from), Some(into)) = (&source.place.local, &destination.local) else {
        return Ok(());
    };
    let Ok(from) = from.path(b"").canonicalize() else {
        return Ok(());
    };
    let Ok(into) = real(&into.path(to)) else {
        return Ok(());
    };
    let cause = match entry.kind {
        Kind::Directory if into.starts_with(&from) => "it can't be copied into itself",
        Kind::File if into == from => "it is the same file as the destination",
        Kind::Directory | Kind::File | Kind::Link | Kind::Special => return Ok(()),
    };
    let error = Error::new(ErrorKind::Invalid, "copy", source.place.endpoint.show(b""));
    Err(error
        .cause(cause)
        .hint("name a destination outside it")
        .at(Locus::Client))
}

/// Returns where a path leads, of which the end may not exist yet.
fn real(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut missing = Vec::new();
    let mut there = absolute.as_path();
    loop {
        if let Ok(found) = there.canonicalize() {
            return Ok(missing
                .iter()
                .rev()
                .fold(found, |path, name| path.join(name)));
        }
        let (Some(above), Some(name)) = (there.parent(), there.file_name()) else {
            return Ok(absolute);
        };
        missing.push(name.to_owned());
        there = above;
    }
}
