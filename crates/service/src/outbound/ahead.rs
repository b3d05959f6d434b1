//! Examines a stage-out's destination before a deadline is promised.

use std::{
    ffi::OsStr,
    fs::Metadata,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use posthaste_endpoint::{
    Endpoint, Error, ErrorKind, Kind, Location, Locus, Result, is_unfinished, join,
};
use posthaste_engine::copy::clash;
use posthaste_journal::RequestRecord;
use posthaste_types::Bytes;

use super::{
    listed::{Item, Listed},
    submit::open as open_there,
};
use crate::{
    credentials::Behalf,
    driver::Centre,
    inbound::room::{Room, promised},
};

/// Longest wait of a submission for an address, such as a silent port or a hung file system.
pub(super) const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// Checks that a request can go to its address, as far as can be seen now. An address that does not
/// answer is examined again before anything is written; that finding is returned to be reported.
///
/// # Errors
/// Problems found at the address.
pub(super) async fn look_ahead(
    record: &RequestRecord,
    behalf: &Behalf,
    listed: &Listed,
) -> Result<Option<Error>> {
    let looked = tokio::time::timeout(LOOK_WITHIN, look_there(record, behalf, listed)).await;
    match looked.unwrap_or_else(|_| Err(is_silent(&record.destination))) {
        Ok(()) => Ok(None),
        Err(error) if error.is_temporary() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

fn is_silent(destination: &str) -> Error {
    let why = format!("it did not answer within {} s", LOOK_WITHIN.as_secs());
    Error::new(ErrorKind::TimedOut, "look at", destination)
        .cause(why)
        .hint("what is there already is looked for again before anything is written")
        .at(Locus::Destination)
}

async fn look_there(record: &RequestRecord, behalf: &Behalf, listed: &Listed) -> Result<()> {
    refuse_inside(&record.source, &record.destination, behalf).await?;
    let endpoint = open_there(record, behalf).await?;
    endpoint.check_writes()?;
    if !endpoint.capabilities().links && listed.has_links() {
        return Err(
            Error::new(ErrorKind::Unsupported, "stage out to", endpoint.show(b""))
                .cause("there are symbolic links in it, which that can't keep")
                .hint("pack it first, or remove the links")
                .at(Locus::Destination),
        );
    }
    check_free(record, endpoint.as_ref(), listed).await
}

/// Refuses to export a local directory into itself, and to a path below something that is no
/// directory.
///
/// # Errors
/// [`ErrorKind::Invalid`] in both cases.
pub(super) async fn refuse_inside(source: &[u8], destination: &str, behalf: &Behalf) -> Result<()> {
    let source = PathBuf::from(OsStr::from_bytes(source));
    let Ok(Location::Local(to)) = Location::parse(destination.as_ref()) else {
        return Ok(());
    };
    let (destination, actor) = (destination.to_owned(), behalf.actor().clone());
    let looked = actor.blocking(move || {
        refuse_below_file("stage out to", &destination, &to)?;
        if !source.is_absolute() {
            return Ok(());
        }
        refuse_inside_here("stage out to", &source, &destination, &to)
    });
    looked.await
}

/// Refuses a path below something that is no directory. Blocking.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is one.
fn refuse_below_file(doing: &'static str, destination: &str, to: &Path) -> Result<()> {
    let mut above = to.ancestors().skip(1);
    let found = above.find_map(|path| Some((path, path.metadata().ok()?)));
    match found {
        Some((path, found)) if !found.is_dir() => {
            let why = format!("{} is no directory", path.display());
            Err(Error::new(ErrorKind::Invalid, doing, destination)
                .cause(why)
                .hint("name a place below a directory")
                .at(Locus::Destination))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a destination in a directory that is its source, by whatever name of this machine: also
/// behind a link, or a mount of the source elsewhere. Blocking.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the destination lies in the source.
pub(crate) fn refuse_inside_here(
    doing: &'static str,
    source: &Path,
    destination: &str,
    to: &Path,
) -> Result<()> {
    let Some(root) = source.metadata().ok().filter(Metadata::is_dir) else {
        return Ok(());
    };
    // A missing path lies in its nearest existing parent.
    let above = to.ancestors().find_map(|path| path.canonicalize().ok());
    let is_root = |path: &Path| {
        let found = path.metadata();
        found.is_ok_and(|found| (found.dev(), found.ino()) == (root.dev(), root.ino()))
    };
    if !above.is_some_and(|above| above.ancestors().any(is_root)) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, doing, destination)
        .cause("it lies in the source")
        .hint("name a place outside it")
        .at(Locus::Client))
}

/// Checks that the export would replace nothing: some of its own files may be there, and nothing
/// else in its directories. Files of the right size may be its own; times and bytes are compared
/// when their turn comes.
///
/// # Errors
/// [`ErrorKind::Conflict`] if something else is there, and the endpoint's.
pub(super) async fn check_free(
    record: &RequestRecord,
    endpoint: &dyn Endpoint,
    listed: &Listed,
) -> Result<()> {
    let at = |error: Error| error.at(Locus::Destination);
    let taken = |path: &[u8]| {
        let error = Error::new(ErrorKind::Conflict, "stage out to", endpoint.show(path))
            .cause("something is there already")
            .hint("name another place, or remove it: nothing is ever replaced")
            .at(Locus::Destination);
        // Retrying does not remove it.
        clash(error)
    };
    let Some(there) = endpoint.stat(b"", true).await.map_err(at)? else {
        return Ok(());
    };
    let is_file = there.kind != Kind::Directory;
    if let Some(one) = &record.one_file {
        return match is_file && one.replaces {
            true => Ok(()),
            false => Err(taken(b"")),
        };
    }
    if is_file {
        return Err(taken(b""));
    }
    let (items, mut open) = (listed.items(), vec![Vec::new()]);
    while let Some(folder) = open.pop() {
        let mut listing = endpoint.list(&folder, false).await.map_err(at)?;
        loop {
            let page = listing.next_page().await.map_err(at)?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                let path = join(&folder, &entry.name);
                match (items.get(&path[..]), entry.kind) {
                    // Remains of an unfinished copy are in nobody's way.
                    _ if is_unfinished(&entry.name) => {}
                    (None, _) if folder.is_empty() => {}
                    (Some(Item::Directory), Kind::Directory) => open.push(path),
                    (Some(Item::File(size)), Kind::File) if *size == entry.size => {}
                    _ => return Err(taken(&path)),
                }
            }
        }
    }
    Ok(())
}

/// Checks that a destination on this machine has room for the files, beside what other accepted
/// requests still need there. Not checked: a copy within one file system, which may share the
/// blocks of its source, and a file system that does not answer. `source` is the local directory of
/// the files, if they lie in one.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Full`](posthaste_endpoint::ErrorKind::Full) if it has not;
/// the journal's.
pub(super) async fn check_room(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    (source, behalf): (&[u8], &Behalf),
    listed: &Listed,
) -> Result<()> {
    let Ok(Location::Local(to)) = Location::parse(record.destination.as_ref()) else {
        return Ok(());
    };
    let from = PathBuf::from(OsStr::from_bytes(source));
    let from = from.is_absolute().then_some(from);
    let (there, here) = (to.clone(), from.clone());
    let look = behalf.blocking(move || Ok(room_at(&there, here.as_deref())));
    let Ok(Ok(Some(room))) = tokio::time::timeout(LOOK_WITHIN, look).await else {
        return Ok(());
    };
    let doing = ("stage out to", &*record.destination);
    tokio::task::block_in_place(|| {
        let promised = promised(centre, record.id, room.device)?;
        let fits = |needed| room.fits(doing, needed, promised);
        // Only where that does not suffice each file is looked at.
        fits(listed.bytes()).or_else(|_| {
            let needed = || Ok(missing(listed, &to, from.as_deref()));
            fits(behalf.actor().run(needed)?)
        })
    })
    .map_err(|error: Error| error.at(Locus::Destination))
}

/// Returns the room at a path, or at the nearest directory above it; none if the source lies on the
/// same file system. Blocking.
fn room_at(to: &Path, from: Option<&Path>) -> Option<Room> {
    let above = to.ancestors().find(|path| path.exists())?;
    let room = Room::at(above).ok()?;
    let source = from.and_then(|from| from.metadata().ok());
    let is_same = source.is_some_and(|source| source.dev() == room.device);
    (!is_same).then_some(room)
}

/// Returns the bytes that the files will take at least: without those that are there already, and
/// without holes. Blocking.
fn missing(listed: &Listed, to: &Path, from: Option<&Path>) -> Bytes {
    /// Unit of the blocks that the system reports, in bytes (POSIX, `sys/stat.h`).
    const BLOCK_BYTES: u64 = 512;
    let below = |root: &Path, path: &[u8]| match path {
        b"" => root.to_owned(),
        path => root.join(OsStr::from_bytes(path)),
    };
    let taken = listed.in_order().map(|(path, item)| {
        let Item::File(size) = item else {
            return Bytes::ZERO;
        };
        let there = below(to, path).symlink_metadata();
        if there.is_ok_and(|there| there.is_file() && there.len() == size) {
            return Bytes::ZERO;
        }
        let source = from.and_then(|from| below(from, path).symlink_metadata().ok());
        let held = source.map_or(size, |source| source.blocks().saturating_mul(BLOCK_BYTES));
        Bytes::new(held.min(size))
    });
    taken.sum()
}
