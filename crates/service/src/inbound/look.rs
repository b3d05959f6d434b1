//! Looks at the sources of a stage-in: what they hold, and whether it is the same.

use std::sync::{Arc, LazyLock};

use futures_util::{StreamExt, stream::FuturesUnordered};
use posthaste_endpoint::{
    Access, Endpoint, Entry, Error, ErrorKind, Kind, Location, Locus, Result, posix::DraftRules,
};
use posthaste_journal::StageIn;
use tokio::task::JoinSet;

use super::list::{File, List, Stamp, is_within};

/// Directories listed at once at each source.
const LISTED_AT_ONCE: usize = 16;
/// Files of one stage-in: its list is kept in memory while it moves.
const FILES_MAX: usize = 4_000_000;
/// What is read of both ends of the data at each source, to see that they hold the same.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Everything is opened through one, so that the caps of a profile hold for all stage-ins together.
static ACCESS: LazyLock<Access> = LazyLock::new(|| Access::new(None, Vec::new()));

/// Opens a source.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an address that makes no sense, and what opening it brings.
pub(super) async fn open(address: &str, profile: Option<&String>) -> Result<Arc<dyn Endpoint>> {
    let access = match profile {
        Some(profile) => ACCESS.with_profile(profile.clone()),
        None => ACCESS.clone(),
    };
    let location = Location::parse(std::ffi::OsStr::new(address))?;
    let opened = access.open(location, DraftRules::default()).await;
    opened.map_err(|error| error.at(Locus::Source))
}

/// What one source holds.
struct Held {
    is_file: bool,
    directories: Vec<Vec<u8>>,
    files: Vec<(File, Stamp)>,
}

/// Looks at all sources. They must hold the same.
///
/// # Errors
/// [`ErrorKind::NotFound`] where there is nothing, [`ErrorKind::Conflict`] where two differ, and the
/// endpoints' own.
pub(super) async fn look(wanted: &StageIn) -> Result<List> {
    let mut looking = JoinSet::new();
    for (place, address) in wanted.sources.iter().enumerate() {
        let (address, profile) = (address.clone(), wanted.profile.clone());
        looking.spawn(async move { (place, look_at(&address, profile.as_ref()).await) });
    }
    let mut found: Vec<Option<(Held, blake3::Hash)>> = Vec::new();
    found.resize_with(wanted.sources.len(), || None);
    while let Some(looked) = looking.join_next().await {
        let (place, held) = looked.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "look at", "the sources").cause(cause.to_string())
        })?;
        found[place] = Some(held?);
    }
    let mut all = wanted.sources.iter().zip(found.into_iter().flatten());
    let Some((first_address, (first, sample))) = all.next() else {
        return Err(Error::new(
            ErrorKind::Invalid,
            "look at",
            "no source at all",
        ));
    };
    let (files, stamps): (Vec<File>, Vec<Stamp>) = first.files.into_iter().unzip();
    let mut list = List {
        is_file: first.is_file,
        directories: first.directories,
        files,
        stamps: vec![stamps],
    };
    for (address, (held, other)) in all {
        let (files, stamps): (Vec<File>, Vec<Stamp>) = held.files.into_iter().unzip();
        let differs = difference(&list, held.is_file, &files)
            .or_else(|| (sample != other).then(|| "the data itself differs".to_owned()));
        if let Some(what) = differs {
            return Err(
                Error::new(ErrorKind::Conflict, "stage in from", address.as_str())
                    .cause(format!(
                        "it does not hold what {first_address} holds: {what}"
                    ))
                    .hint("name sources that hold the same, or one of them alone")
                    .at(Locus::Source),
            );
        }
        list.stamps.push(stamps);
    }
    Ok(list)
}

/// In what a second source differs from the first.
fn difference(list: &List, is_file: bool, files: &[File]) -> Option<String> {
    if list.is_file && is_file {
        let (one, other) = (list.files[0].size, files[0].size);
        return (one != other).then(|| format!("{other} bytes rather than {one}"));
    }
    if list.is_file != is_file {
        return Some("one is a file and the other a directory".to_owned());
    }
    let show = |path: &[u8]| String::from_utf8_lossy(path).escape_debug().to_string();
    let differs = list
        .files
        .iter()
        .zip(files)
        .find(|(one, other)| one != other);
    if let Some((one, other)) = differs {
        return Some(if one.path == other.path {
            let path = show(&one.path);
            format!("{path} has {} bytes rather than {}", other.size, one.size)
        } else if one.path < other.path {
            format!("{} is missing", show(&one.path))
        } else {
            format!("{} is too much", show(&other.path))
        });
    }
    match list.files.len().cmp(&files.len()) {
        std::cmp::Ordering::Less => {
            let more = &files[list.files.len()];
            Some(format!("{} is too much", show(&more.path)))
        }
        std::cmp::Ordering::Greater => {
            let less = &list.files[files.len()];
            Some(format!("{} is missing", show(&less.path)))
        }
        std::cmp::Ordering::Equal => None,
    }
}

async fn look_at(address: &str, profile: Option<&String>) -> Result<(Held, blake3::Hash)> {
    let endpoint = open(address, profile).await?;
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
                is_file: true,
                directories: Vec::new(),
                files: vec![(file, Stamp::of(&entry))],
            }
        }
        Kind::Directory | Kind::Link | Kind::Special => list_tree(&endpoint).await?,
    };
    let sample = sample(&endpoint, &held).await;
    Ok((held, sample.map_err(|error| error.at(Locus::Source))?))
}

/// Lists a tree, many directories at once.
async fn list_tree(endpoint: &Arc<dyn Endpoint>) -> Result<Held> {
    let mut held = Held {
        is_file: false,
        directories: Vec::new(),
        files: Vec::new(),
    };
    let mut open = vec![Vec::new()];
    let mut listing = FuturesUnordered::new();
    loop {
        while listing.len() < LISTED_AT_ONCE
            && let Some(path) = open.pop()
        {
            listing.push(list_one(Arc::clone(endpoint), path));
        }
        let Some(listed) = listing.next().await else {
            break;
        };
        let (below, entries) = listed.map_err(|error| error.at(Locus::Source))?;
        for entry in entries {
            let path = join(&below, &entry.name);
            if !is_within(&path) {
                return Err(unusable(
                    endpoint,
                    &path,
                    "its name is none a file can have",
                ));
            }
            match entry.kind {
                Kind::Directory => {
                    open.push(path.clone());
                    held.directories.push(path);
                }
                Kind::File => {
                    let size = entry.size;
                    held.files.push((File { path, size }, Stamp::of(&entry)));
                }
                Kind::Link | Kind::Special => {
                    return Err(unusable(endpoint, &path, "it is no file and no directory"));
                }
            }
        }
        if held.files.len() > FILES_MAX {
            let many = format!("there are more than {FILES_MAX} files");
            return Err(unusable(endpoint, b"", &many));
        }
    }
    held.directories.sort_unstable();
    held.files
        .sort_unstable_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    Ok(held)
}

fn unusable(endpoint: &Arc<dyn Endpoint>, path: &[u8], why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "stage in", endpoint.show(path))
        .cause(why.to_owned())
        .at(Locus::Source)
}

async fn list_one(endpoint: Arc<dyn Endpoint>, path: Vec<u8>) -> Result<(Vec<u8>, Vec<Entry>)> {
    let mut listing = endpoint.list(&path, false).await?;
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok((path, entries));
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

/// The digest of the first bytes of the first file and of the last bytes of the last one that hold any.
async fn sample(endpoint: &Arc<dyn Endpoint>, held: &Held) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut full = held.files.iter().filter(|(file, _)| file.size > 0);
    let first = full.next();
    let last = full.next_back().or(first);
    let ends = [
        first.map(|held| (held, 0)),
        last.map(|held| (held, held.0.size.saturating_sub(SAMPLE_BYTES))),
    ];
    for ((file, stamp), from) in ends.into_iter().flatten() {
        let entry = Entry {
            size: file.size,
            mtime: stamp.mtime(),
            mode: stamp.mode,
            ..Entry::bare(file.path.clone(), Kind::File)
        };
        let path: &[u8] = if held.is_file { b"" } else { &file.path };
        let to = (from + SAMPLE_BYTES).min(file.size);
        let reader = endpoint.open(path, &entry).await?;
        let mut bytes = reader.read(from..to).await?;
        while let Some(some) = bytes.next().await {
            hasher.update(&some?);
        }
    }
    Ok(hasher.finalize())
}
