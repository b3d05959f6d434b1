//! Lists the sources of a stage-in.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, LazyLock},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use posthaste_endpoint::{
    Access, Endpoint, Entry, Error, ErrorKind, Kind, Location, Locus, Prices, Result, UNFINISHED,
    is_unfinished,
    posix::{Beneath, DraftRules, lies_in_system},
};
use posthaste_engine::dataset::{Bound, Bounds, Lent};
use posthaste_journal::StageIn;
use posthaste_types::ByteRate;
use rustix::io::Errno;
use tokio::task::JoinSet;

use super::{
    apart::{apart, said},
    compare::compare,
    left_out::is_of_one,
    list::{File, List, Stamp, is_within},
    union::union,
};
use crate::credentials::Behalf;

/// Directories listed at once at each source.
const LISTED_AT_ONCE: usize = 16;

/// Advice if there are more files than allowed.
const SMALLER: &str = "stage in its directories one by one";

/// Shared by all, so that a profile's limits hold for all requests together.
static ACCESS: LazyLock<Access> = LazyLock::new(|| Access::new(None, Vec::new()));

/// Opens a source.
///
/// # Errors
/// Errors of [`open_at`].
pub(crate) async fn open(
    address: &str,
    profile: Option<&String>,
    behalf: &Behalf,
) -> Result<Arc<dyn Endpoint>> {
    let opened = open_at(address, profile, behalf).await;
    opened.map_err(|error| error.at(Locus::Source))
}

/// Opens an address.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid address, and errors of opening it.
pub(crate) async fn open_at(
    address: &str,
    profile: Option<&String>,
    behalf: &Behalf,
) -> Result<Arc<dyn Endpoint>> {
    let address = behalf.given(address)?;
    let location = Location::parse(std::ffi::OsStr::new(&address))?;
    open_location(location, profile, behalf, DraftRules::default()).await
}

/// Opens the endpoint of an address.
///
/// # Errors
/// Errors of opening it.
pub(crate) async fn open_location(
    location: Location,
    profile: Option<&String>,
    behalf: &Behalf,
    rules: DraftRules,
) -> Result<Arc<dyn Endpoint>> {
    if let Location::Local(path) = &location {
        refuse_system(path, behalf).await?;
    }
    let access = behalf.access(&with(profile), &location)?;
    access.open(location, rules).await
}

/// Refuses a path among the system's own files, such as `/proc`, by any name: this process's open
/// files lie there.
async fn refuse_system(path: &Path, behalf: &Behalf) -> Result<()> {
    let below = path.to_owned();
    // A mount may never answer, so the caller stops waiting.
    let is_one = move || {
        let opened = match Beneath::open_source(&below, false) {
            Err(Errno::NOTDIR) => Beneath::open_source(below.parent().unwrap_or(&below), false),
            opened => opened,
        };
        Ok(match opened {
            Ok(folder) => folder.is_of_system().unwrap_or(true),
            Err(Errno::NOENT) => lies_in_system(&below),
            // What is not there is told where it is looked for.
            Err(cause) => cause == Errno::LOOP,
        })
    };
    if !behalf.actor().blocking(is_one).await? {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::Invalid, "open", path.display().to_string())
            .cause("its files are the system's own, as those of /proc")
            .hint("name a path below which data lies"),
    )
}

/// Returns one canonical spelling of a location.
///
/// # Errors
/// Errors of [`resolve`].
pub(crate) fn spelling(
    location: Location,
    profile: Option<&String>,
    behalf: &Behalf,
) -> Result<String> {
    behalf.access(&with(profile), &location)?.spelling(location)
}

/// Refuses an address whose host is neither known nor the name of a profile. Blocking.
///
/// # Errors
/// [`ErrorKind::NotFound`], with the profile that was probably meant; that the profiles can't be
/// read.
pub(crate) fn refuse_unknown_host(
    address: &str,
    profile: Option<&String>,
    behalf: &Behalf,
) -> Result<()> {
    let location = Location::parse(std::ffi::OsStr::new(address))?;
    let access = behalf.access(&with(profile), &location)?;
    tokio::task::block_in_place(|| access.refuse_unknown_host(&location))
}

/// Resolves a location: `NAME:path` lies below the address of the credential or the profile NAME.
///
/// # Errors
/// Fails if the profiles can't be read or no such credential exists.
pub(crate) fn resolve(behalf: &Behalf, location: Location) -> Result<Location> {
    behalf.access(&ACCESS, &location)?.resolve(location)
}

/// Terms of reading from a source, by its profile.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Terms {
    pub(super) prices: Prices,
    /// Rate limit of reading.
    pub(super) rate_max: Option<ByteRate>,
}

/// Returns the terms on which each source is read, by the current profiles.
///
/// # Errors
/// Fails if the profiles can't be read or no such credential exists.
pub(super) fn terms(wanted: &StageIn, behalf: &Behalf) -> Result<Vec<Terms>> {
    let profile = wanted.profile.as_ref();
    let of = |address: &String| {
        let location = Location::parse(std::ffi::OsStr::new(address))?;
        let access = behalf.access(&with(profile), &location)?;
        Ok(Terms {
            prices: access.prices(location.clone())?,
            rate_max: access.rate_max(location)?,
        })
    };
    wanted.sources.iter().map(of).collect()
}

/// Returns the rate limit of an address in either direction, by its current profile.
///
/// # Errors
/// Errors of [`resolve`].
pub(crate) fn rate_max(
    address: &str,
    profile: Option<&String>,
    behalf: &Behalf,
) -> Result<Option<ByteRate>> {
    let location = Location::parse(std::ffi::OsStr::new(address))?;
    behalf.access(&with(profile), &location)?.rate_max(location)
}

fn with(profile: Option<&String>) -> Access {
    match profile {
        Some(profile) => ACCESS.with_profile(profile.clone()),
        None => ACCESS.clone(),
    }
}

/// Returns whether the service's user has a profile of that name.
///
/// # Errors
/// Fails if the profiles can't be read.
pub(crate) fn has_profile(name: &str) -> Result<bool> {
    ACCESS.has_profile(name)
}

/// Returns whether a profile of the service's user is for this place, and for no other place that
/// its secrets could be sent to.
///
/// # Errors
/// Fails if the profiles can't be read.
pub(crate) fn covers(name: &str, location: Location) -> Result<bool> {
    ACCESS.covers(name, location)
}

/// Returns [`covers`] for a profile that is named after a host, as in FTS.
///
/// # Errors
/// Errors of [`covers`].
pub(crate) fn covers_host(name: &str, location: Location) -> Result<bool> {
    ACCESS.covers_host(name, location)
}

/// Contents of one source.
pub(super) struct Held {
    pub(super) is_single: bool,
    /// Metadata of the source itself, if it is a directory.
    pub(super) root: Stamp,
    /// Directories by path.
    pub(super) directories: Vec<(Vec<u8>, Stamp)>,
    /// Files by path.
    pub(super) files: Vec<(File, Stamp)>,
    /// Directories that it does not let be listed, links, special files and unfinished copies, by path.
    pub(super) left_out: Vec<(Vec<u8>, Error)>,
}

/// Lists all sources and checks that the files they share are equal.
///
/// # Errors
/// [`ErrorKind::NotFound`] where there is nothing, [`ErrorKind::Conflict`] where two differ in a file, and
/// the endpoints' own.
pub(crate) async fn look(wanted: &StageIn, behalf: &Behalf, lent: &Arc<Lent>) -> Result<Arc<List>> {
    // Its list is kept in memory while it moves.
    let bounds = Arc::new(Bounds::default().sharing(lent));
    let mut looking = JoinSet::new();
    for (place, address) in wanted.sources.iter().enumerate() {
        let (address, profile) = (address.clone(), wanted.profile.clone());
        let (behalf, bounds) = (behalf.clone(), Arc::clone(&bounds));
        looking.spawn(async move {
            let held = look_at(&address, profile.as_ref(), &behalf, &bounds).await;
            (place, held)
        });
    }
    let mut found: Vec<Option<(Arc<dyn Endpoint>, Held)>> = Vec::new();
    found.resize_with(wanted.sources.len(), || None);
    while let Some(looked) = looking.join_next().await {
        let (place, held) = looked.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "look at", "the sources").cause(cause.to_string())
        })?;
        found[place] = Some(held?);
    }
    let (endpoints, mut held): (Vec<_>, Vec<_>) = found.into_iter().flatten().unzip();
    let left_out = held.iter_mut();
    let left_out: Vec<_> = left_out
        .flat_map(|held| std::mem::take(&mut held.left_out))
        .collect();
    let mut list = union(&wanted.sources, held)?;
    list.left_out = left_out_of(&list, left_out)?;
    let list = Arc::new(list);
    compare(&wanted.sources, &endpoints, &list).await?;
    let apart = apart(&wanted.sources, &endpoints, &list).await?;
    let list = List {
        apart,
        ..Arc::unwrap_or_clone(list)
    };
    if let Some(said) = said(&list) {
        tracing::warn!("{said}");
    }
    Ok(Arc::new(list))
}

/// Returns what is said of the directories that no source lists, and of what none has as a file.
///
/// # Errors
/// Nothing but such is there.
fn left_out_of(list: &List, mut unlisted: Vec<(Vec<u8>, Error)>) -> Result<Vec<String>> {
    unlisted.sort_by(|(one, _), (other, _)| one.cmp(other));
    unlisted.dedup_by(|(one, _), (other, _)| one == other);
    let files: BTreeSet<&[u8]> = match unlisted.is_empty() {
        true => BTreeSet::new(),
        false => list.files.iter().map(|file| &file.path[..]).collect(),
    };
    unlisted.retain(|(path, _)| {
        list.directories.binary_search(path).is_err() && !files.contains(&path[..])
    });
    if list.files.is_empty()
        && let Some((_, error)) = unlisted.pop()
    {
        return Err(error);
    }
    let lines = unlisted.iter().map(|(_, error)| error.to_string());
    Ok(lines.collect())
}

async fn look_at(
    address: &str,
    profile: Option<&String>,
    behalf: &Behalf,
    bounds: &Arc<Bounds>,
) -> Result<(Arc<dyn Endpoint>, Held)> {
    let endpoint = open(address, profile, behalf).await?;
    let there = endpoint.stat(b"", true).await;
    let there = there.map_err(|error| error.at(Locus::Source))?;
    let Some(entry) = there else {
        return Err(
            Error::new(ErrorKind::NotFound, "stage in", endpoint.show(b""))
                .cause("nothing is there")
                .at(Locus::Source),
        );
    };
    let held = match entry.kind {
        Kind::File => {
            let location = Location::parse(std::ffi::OsStr::new(address))?;
            let path = location.name().unwrap_or_else(|| b"data".to_vec());
            let file = File {
                path,
                size: entry.size,
            };
            Held {
                is_single: true,
                root: Stamp::NONE,
                directories: Vec::new(),
                files: vec![(file, Stamp::of(&entry))],
                left_out: Vec::new(),
            }
        }
        Kind::Directory | Kind::Link | Kind::Special => Held {
            root: Stamp::of(&entry),
            ..list_tree(&endpoint, bounds).await?
        },
    };
    Ok((endpoint, held))
}

/// Lists a tree, many directories at once.
async fn list_tree(endpoint: &Arc<dyn Endpoint>, bounds: &Arc<Bounds>) -> Result<Held> {
    let mut held = Held {
        is_single: false,
        root: Stamp::NONE,
        directories: Vec::new(),
        files: Vec::new(),
        left_out: Vec::from_iter(endpoint.namesake().map(|error| (Vec::new(), error))),
    };
    let has_modes = endpoint.capabilities().modes;
    let mut open = vec![Vec::new()];
    let mut listing = FuturesUnordered::new();
    loop {
        while listing.len() < LISTED_AT_ONCE
            && let Some(path) = open.pop()
        {
            let bounds = Arc::clone(bounds);
            listing.push(list_one(Arc::clone(endpoint), path, bounds));
        }
        let Some(listed) = listing.next().await else {
            break;
        };
        let (below, listed) = listed;
        let entries = match listed.map_err(|error| error.at(Locus::Source)) {
            // One that may not be listed is no reason to keep the others.
            Err(error) if is_of_one(&error) && !below.is_empty() => {
                let error = error.about(endpoint.show(&below));
                held.left_out.push((below, error));
                continue;
            }
            entries => entries?,
        };
        for entry in entries {
            let path = join(&below, &entry.name);
            if !is_within(&path) {
                let why = "its name is none a file can have";
                return Err(unusable(endpoint, &path, why, "rename it"));
            }
            if let Some((why, hint)) = no_file(&entry) {
                // One of them is no reason to keep the others.
                let error = unusable(endpoint, &path, why, hint);
                held.left_out.push((path, error));
                continue;
            }
            match entry.kind {
                Kind::Directory => {
                    let stamp = match entry.mode {
                        None if has_modes => match endpoint.stat(&path, false).await {
                            // Its listing tells whether it is left out.
                            Err(error) if is_of_one(&error) => None,
                            found => found?.as_ref().map(Stamp::of),
                        },
                        _ => Some(Stamp::of(&entry)),
                    };
                    open.push(path.clone());
                    held.directories.push((path, stamp.unwrap_or(Stamp::NONE)));
                }
                Kind::File => {
                    let size = entry.size;
                    held.files.push((File { path, size }, Stamp::of(&entry)));
                }
                Kind::Link | Kind::Special => {}
            }
        }
    }
    let unlisted: BTreeSet<&[u8]> = held.left_out.iter().map(|(path, _)| &path[..]).collect();
    (held.directories).retain(|(path, _)| !unlisted.contains(&path[..]));
    held.directories
        .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    held.files
        .sort_unstable_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    Ok(held)
}

/// Returns why an entry is left out, and what to do about it.
fn no_file(entry: &Entry) -> Option<(&'static str, &'static str)> {
    if is_unfinished(&entry.name) {
        return Some((
            UNFINISHED,
            "end the copy that writes it, or remove it there",
        ));
    }
    matches!(entry.kind, Kind::Link | Kind::Special).then_some((
        "it is no file and no directory",
        "remove it there, or bring it with `posthaste cp`, which keeps links",
    ))
}

fn unusable(endpoint: &Arc<dyn Endpoint>, path: &[u8], why: &str, hint: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "stage in", endpoint.show(path))
        .cause(why.to_owned())
        .hint(hint)
        .at(Locus::Source)
}

fn too_much(endpoint: &Arc<dyn Endpoint>, bound: Bound) -> Error {
    match bound {
        Bound::Others => Error::new(ErrorKind::Busy, "list", endpoint.show(b""))
            .cause(bound.to_string())
            .hint("submit it again later")
            .at(Locus::Source),
        Bound::Entries | Bound::Names | Bound::Memory | Bound::Unwanted => {
            unusable(endpoint, b"", &bound.to_string(), SMALLER)
        }
    }
}

/// Lists a directory, which may never end. Returns its path, too.
async fn list_one(
    endpoint: Arc<dyn Endpoint>,
    path: Vec<u8>,
    bounds: Arc<Bounds>,
) -> (Vec<u8>, Result<Vec<Entry>>) {
    let listed = list_all(&endpoint, &path, &bounds).await;
    (path, listed)
}

async fn list_all(
    endpoint: &Arc<dyn Endpoint>,
    path: &[u8],
    bounds: &Bounds,
) -> Result<Vec<Entry>> {
    let mut listing = endpoint.list(path, false).await?;
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok(entries);
        }
        for entry in &page {
            let version = entry.version.as_deref().map_or(0, str::len);
            let held = bounds.hold(path.len() + entry.name.len() + version);
            held.map_err(|bound| too_much(endpoint, bound))?;
        }
        entries.extend(page);
    }
}

fn join(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() {
        name.to_vec()
    } else {
        [below, b"/", name].concat()
    }
}
