//! Refusal of endless and destructive copies: a directory into itself, or a file onto itself.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use posthaste_endpoint::{
    Endpoint, Entry, Error, ErrorKind, Kind, Locus, Result, is_same_directory, join,
};
use tokio::task::spawn_blocking;

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
    let lies_at = folded(&retried(shared, || from.real_path(b"")).await?);
    let goes_to = folded(&retried(shared, || into.real_path(to)).await?);
    let error = match entry.kind {
        Kind::Directory if is_within(&goes_to, &lies_at) => {
            is_inside(from.show(b""), "it can't be copied into itself")
        }
        Kind::File if goes_to == lies_at => {
            let error = is_inside(from.show(b""), "it is the same file as the destination");
            error.hint("give the copy another name")
        }
        Kind::Directory | Kind::File | Kind::Link | Kind::Special => return Ok(()),
    };
    Err(error)
}

/// Returns an absolute path without `.` and `..`: what a server leaves of those stands behind
/// directories that are not there, and so are no links. Keys of objects are no such paths.
fn folded(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    let has_dots = |name: &[u8]| matches!(name, b"." | b"..");
    let steps = || path.split(|&byte| byte == b'/');
    if !path.starts_with(b"/") || !steps().any(has_dots) {
        return path.to_vec();
    }
    for name in steps() {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
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

/// Names of directories, from the end of where a copy goes, by which it may lie inside its source.
const NAMES_MAX: usize = 16;

/// Fails if a tree goes into itself, or onto itself, by a way that [`refuse`] does not see through: asked once its directory is there, and
/// nothing in it. Nothing is written but where that directory looks like one of the source.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(super) async fn refuse_root(shared: &Shared, root: &Directory) -> Result<()> {
    let (from, into) = (&root.source.place.endpoint, &shared.destination.endpoint);
    let system = from.system();
    let is_known = system.is_some() && system == into.system();
    // What has no directories of its own is no other name of some.
    let are_files = from.capabilities().directories && into.capabilities().directories;
    if is_known || shared.options.dry_run || !are_files || !into.capabilities().writes {
        return Ok(());
    }
    let lookalikes = lookalikes(root, (&**from, &**into)).await;
    if lookalikes.is_empty() {
        return Ok(());
    }
    let before = into.stat(&root.to, false).await.ok().flatten();
    let mut is_itself = false;
    for below in lookalikes {
        // Where nothing can be written, that shows when it is.
        let is_same = is_same_directory((&**into, &root.to), (&**from, &below)).await;
        is_itself = is_itself || is_same.unwrap_or(false);
    }
    if let Some(before) = before.filter(|_| root.existed) {
        // As old as it was before the trial.
        let before = Entry {
            mode: None,
            ..before
        };
        let _ = into.seal_directory(&root.to, &before, false).await;
    }
    if is_itself {
        remove_made(shared).await;
    }
    match is_itself {
        true => Err(is_inside(
            from.show(b""),
            "it can't be copied into itself, which the destination is by another name",
        )),
        false => Ok(()),
    }
}

/// Notes the directories that a copy would make by a way that [`refuse`] does not see through, as far
/// as one of both ends lies here.
pub(super) async fn note_absent(shared: &Shared, source: &Source, to: &[u8]) {
    let into = &shared.destination;
    let roots: Vec<PathBuf> = match (&source.place.local, &into.local) {
        (Some(from), None) => {
            let ends = ends_of(&into.endpoint.show(to)).into_iter();
            ends.map(|end| from.path(&end)).collect()
        }
        (None, Some(into)) => vec![into.path(to)],
        _ => return,
    };
    if shared.options.dry_run {
        return;
    }
    let look = move || {
        let is_absent = |path: &&Path| {
            let found = path.symlink_metadata();
            found.is_err_and(|cause| cause.kind() == io::ErrorKind::NotFound)
        };
        let above = |root: &PathBuf| {
            let absent = root.ancestors().take_while(is_absent);
            absent.map(Path::to_owned).collect::<Vec<_>>()
        };
        roots.iter().flat_map(above).collect()
    };
    let found: Vec<PathBuf> = spawn_blocking(look).await.unwrap_or_default();
    let mut absent = shared.absent.lock().unwrap_or_else(PoisonError::into_inner);
    *absent = found;
}

/// Removes the empty directories that were made for a refused copy.
async fn remove_made(shared: &Shared) {
    let mut made = {
        let mut absent = shared.absent.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *absent)
    };
    // What lies in another is longer.
    made.sort_by_key(|path| Reverse(path.as_os_str().len()));
    let remove = move || {
        for path in made {
            // One that something came to be in stays.
            let _ = fs::remove_dir(path);
        }
    };
    let _ = spawn_blocking(remove).await;
}

/// The directories of a source that the one that it goes to may be.
async fn lookalikes(
    root: &Directory,
    (from, into): (&dyn Endpoint, &dyn Endpoint),
) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let (lies_at, goes_to) = (from.real_path(b"").await, into.real_path(&root.to).await);
    // Either may be shown as one of a directory that a server takes for its root.
    let is_called_alike = match (&lies_at, &goes_to) {
        (Ok(lies_at), Ok(goes_to)) => ends_with(lies_at, goes_to) || ends_with(goes_to, lies_at),
        _ => true,
    };
    if root.existed && is_called_alike && shares_a_name(root, (from, into)).await {
        found.push(Vec::new());
    }
    let candidates = match (lies_at, goes_to) {
        (Ok(lies_at), Ok(goes_to)) if root.source.place.local.is_none() => {
            let below = goes_to.strip_prefix(&lies_at[..]);
            let below = below.and_then(|below| below.strip_prefix(b"/"));
            below.map(<[u8]>::to_vec).into_iter().collect()
        }
        // It may be called by another path there, as where a server shows some of its files alone.
        _ => ends_of(&into.show(&root.to)),
    };
    let mut listed = Listed::new();
    for below in candidates {
        if has_directory(from, &below, &mut listed).await {
            found.push(below);
        }
    }
    found
}

/// Names of the directories in those that were listed.
type Listed = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

/// Returns whether a source has this directory. A web server is not asked for names that it did not
/// list itself: they are of this machine, and none of its business.
async fn has_directory(from: &dyn Endpoint, below: &[u8], listed: &mut Listed) -> bool {
    if !["http", "webdav"].contains(&from.capabilities().scheme) {
        let there = from.stat(below, false).await;
        return matches!(there, Ok(Some(there)) if there.kind == Kind::Directory);
    }
    let mut above = Vec::new();
    for name in below.split(|byte| *byte == b'/') {
        if !listed.contains_key(&above) {
            let names = directories_in(from, &above).await;
            listed.insert(above.clone(), names);
        }
        if !listed.get(&above).is_some_and(|names| names.contains(name)) {
            return false;
        }
        above = join(&above, name);
    }
    true
}

/// Returns the names of the directories in another; none where it can't be listed.
async fn directories_in(from: &dyn Endpoint, path: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    let Ok(mut listing) = from.list(path, false).await else {
        return names;
    };
    while let Ok(page) = listing.next_page().await
        && !page.is_empty()
    {
        let directories = page.into_iter();
        let directories = directories.filter(|entry| entry.kind == Kind::Directory);
        names.extend(directories.map(|entry| entry.name));
    }
    names
}

/// Returns whether the first entry of a source has the name of an entry at the destination.
async fn shares_a_name(root: &Directory, (from, into): (&dyn Endpoint, &dyn Endpoint)) -> bool {
    let first = async {
        let mut listing = from.list(b"", false).await?;
        let page = listing.next_page().await?;
        match page.first() {
            Some(first) => into.stat(&join(&root.to, &first.name), false).await,
            None => Ok(None),
        }
    };
    first.await.is_ok_and(|there| there.is_some())
}

/// Returns whether the last components of a path are those of another.
fn ends_with(path: &[u8], end: &[u8]) -> bool {
    let end = end.strip_prefix(b"/").unwrap_or(end);
    let above = path.strip_suffix(end);
    above.is_some_and(|above| end.is_empty() || above.is_empty() || above.ends_with(b"/"))
}

/// Returns the last name of a path, the last two, and so on.
fn ends_of(path: &str) -> Vec<Vec<u8>> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let most = names.len().min(NAMES_MAX);
    (1..=most)
        .map(|count| names[names.len() - count..].join("/").into_bytes())
        .collect()
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
    use super::{ends_of, ends_with, folded, is_within};

    #[test]
    fn what_leads_out_again_is_not_inside() {
        let goes = |to: &[u8]| is_within(&folded(to), b"/home/u/src");
        assert!(!goes(b"/home/u/src/new/../../dst"));
        assert!(goes(b"/home/u/src/new/../dst"));
        assert!(goes(b"/home/u/dst/.././src/x"));
        assert_eq!(folded(b"/../.."), b"/");
        for same in [&b"/home//u"[..], b"bucket/a/../b", b""] {
            assert_eq!(folded(same), same);
        }
    }

    #[test]
    fn a_path_ends_as_another_by_whole_names() {
        assert!(ends_with(b"/home/me/t", b"/t") && ends_with(b"/t", b"/t"));
        assert!(ends_with(b"/home/me/t", b"me/t") && ends_with(b"/t", b"/"));
        assert!(!ends_with(b"/home/at", b"/t") && !ends_with(b"/t", b"/home/t"));
    }

    #[test]
    fn a_directory_inside_the_source_is_called_by_an_end_of_where_a_copy_goes() {
        let ends = ends_of("sftp://host/t/in/");
        let expected = ["in", "t/in", "host/t/in", "sftp:/host/t/in"];
        assert_eq!(ends, expected.map(|end| end.as_bytes().to_vec()));
    }

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
