//! Refusal of endless and destructive copies: a directory into itself, or a file onto itself.

use posthaste_endpoint::{Entry, Error, ErrorKind, Kind, Locus, Result, is_same_directory};

use super::{
    super::{Source, lane::Shared, retry::retried},
    directory::Directory,
};

/// Fails if the destination is the source, or lies inside it, as far as both ends report where they
/// lie.
///
/// # Errors
/// [`ErrorKind::Invalid`]; errors of the requests.
pub(super) async fn refuse(
    shared: &Shared,
    source: &Source,
    entry: &Entry,
    to: &[u8],
) -> Result<()> {
    let (from, into) = (&source.place.endpoint, &shared.destination.endpoint);
    let system = from.system();
    if system.is_none() || system != into.system() {
        return Ok(());
    }
    let lies_at = retried(shared, || from.real_path(b"")).await?;
    let goes_to = retried(shared, || into.real_path(to)).await?;
    let cause = match entry.kind {
        Kind::Directory if is_within(&goes_to, &lies_at) => "it can't be copied into itself",
        Kind::File if goes_to == lies_at => "it is the same file as the destination",
        Kind::Directory | Kind::File | Kind::Link | Kind::Special => return Ok(()),
    };
    Err(is_inside(from.show(b""), cause))
}

fn is_inside(shown: String, cause: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "copy", shown)
        .cause(cause)
        .hint("name a destination outside it")
        .at(Locus::Client)
}

/// Fails if a directory of the source is where the copy goes, by a way that [`refuse`] can't see
/// through before: over SFTP to oneself, for instance. Costs requests only for a directory with the
/// destination's name.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(super) async fn refuse_directory(shared: &Shared, directory: &Directory) -> Result<()> {
    let (from, into) = (
        &directory.source.place.endpoint,
        &shared.destination.endpoint,
    );
    let below = &directory.from;
    let Some(root) = root_of(directory) else {
        return Ok(());
    };
    let shown = into.show(root);
    let called = format!("/{}", String::from_utf8_lossy(below));
    let system = from.system();
    let is_known = system.is_some() && system == into.system();
    if is_known || shared.options.dry_run || !shown.trim_end_matches('/').ends_with(&called) {
        return Ok(());
    }
    // A destination that can't be written shows that on the first write.
    let is_same = is_same_directory((&**into, root), (&**from, below)).await;
    match is_same {
        Ok(true) => Err(is_inside(
            from.show(below),
            "it can't be copied into itself",
        )),
        Ok(false) | Err(_) => Ok(()),
    }
}

/// Fails if a followed link led to where the copy goes.
///
/// # Errors
/// [`ErrorKind::Unsupported`]; errors of the requests.
pub(super) async fn refuse_followed(
    shared: &Shared,
    directory: &Directory,
    place: &[u8],
) -> Result<()> {
    let from = &directory.source.place.endpoint;
    let into = &shared.destination.endpoint;
    let Some(root) = root_of(directory) else {
        return Ok(());
    };
    if from.system().is_none() || from.system() != into.system() {
        return Ok(());
    }
    if retried(shared, || into.real_path(root)).await? != place {
        return Ok(());
    }
    let shown = from.show(&directory.from);
    Err(Error::new(ErrorKind::Unsupported, "copy", shown)
        .cause("a followed link leads to where the copy goes")
        .hint("leave it out with --exclude, or keep links")
        .at(Locus::Source))
}

/// Returns the root into which all of a directory goes; `None` for the first directory.
fn root_of(directory: &Directory) -> Option<&[u8]> {
    let root = directory.to.strip_suffix(&directory.from[..])?;
    (!directory.from.is_empty()).then(|| root.strip_suffix(b"/").unwrap_or(root))
}

/// Returns whether `path` is `directory` or lies in it.
fn is_within(path: &[u8], directory: &[u8]) -> bool {
    match path.strip_prefix(directory) {
        Some([] | [b'/', ..]) => true,
        // All that a bucket or a server has lies in its root.
        Some(_) => directory.is_empty() || directory.ends_with(b"/"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn what_lies_in_a_directory_begins_with_its_path() {
        for path in [&b"/a"[..], b"/a/b", b"/a/b/c"] {
            assert!(is_within(path, b"/a"));
            assert!(is_within(path, b"/"));
            assert!(is_within(path, b""));
        }
        for path in [&b"/ab"[..], b"/", b"/b/a", b""] {
            assert!(!is_within(path, b"/a"));
        }
    }
}
