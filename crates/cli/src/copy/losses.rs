//! Losses of `-a`: owners, hard links, extended attributes and access lists, which posthaste does
//! not keep, as far as sources have any.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fmt,
    fs::{self, Metadata},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Access, Location, Protocol, Result, join};
use posthaste_engine::copy::Filter;
use rustix::process::{getegid, geteuid};

use crate::output::counted;

/// Files with several names to remember, so that the second name is recognized: 16 bytes each, plus
/// overhead.
const LINKED_MAX: usize = 1 << 20;

/// Longest list of names of extended attributes, in bytes: Linux has no longer one.
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Text for a source whose owners, links and attributes can't be seen from here.
const UNSEEN: &str = "owners, hard links, extended attributes and access lists of other hosts";

/// Counts of what is lost, by kind.
#[derive(Debug, Default)]
pub(super) struct Losses {
    owners: u64,
    hard_links: u64,
    attributes: u64,
    access_lists: u64,
    /// Set-user-ID and set-group-ID bits, which are never passed on.
    lent_rights: u64,
    /// True for sources whose metadata can't be seen from here.
    unseen: bool,
}

/// Tree to examine, and its copy's place if that is on this machine.
struct Tree {
    from: PathBuf,
    to: Option<PathBuf>,
}

/// Facts of all trees so far.
struct Seen {
    /// Inodes of files with several names.
    linked: HashSet<(u64, u64)>,
    /// Buffer into which the system writes names of attributes.
    names: Vec<u8>,
}

/// Destination of each source, known before it is copied.
pub(super) struct Places {
    trees: Vec<Tree>,
    unseen: bool,
}

impl Places {
    /// Notes the sources of which something could be lost.
    ///
    /// # Errors
    /// Fails if an address can't be parsed.
    pub(super) fn note(
        (sources, access): (&[OsString], &Access),
        destination: &OsString,
        into: bool,
    ) -> Result<Self> {
        let there = match Location::parse(destination)? {
            Location::Local(path) => Some(path),
            Location::S3 { .. }
            | Location::Sftp { .. }
            | Location::Bucket { .. }
            | Location::Server(_)
            | Location::Host { .. }
            | Location::Plugin { .. } => None,
        };
        let is_inside =
            into || sources.len() > 1 || there.as_ref().is_some_and(|there| there.is_dir());
        let mut places = Self {
            trees: Vec::new(),
            unseen: false,
        };
        for source in sources {
            let location = access.resolve(Location::parse(source)?)?;
            let is_content = source.as_bytes().ends_with(b"/");
            let name = location.name().filter(|_| is_inside && !is_content);
            match location {
                Location::Local(from) => places.trees.push(Tree {
                    from,
                    to: there
                        .as_ref()
                        .map(|there| below(there, &name.unwrap_or_default())),
                }),
                Location::Sftp { .. } | Location::Host { .. } | Location::Plugin { .. } => {
                    places.unseen = true;
                }
                Location::Server(server) => places.unseen |= server.protocol == Protocol::Posthaste,
                // None of them has any of it.
                Location::S3 { .. } | Location::Bucket { .. } => {}
            }
        }
        Ok(places)
    }

    /// Examines the copied trees for losses. Blocks.
    pub(super) fn losses(&self, filter: &Filter) -> Losses {
        let mut losses = Losses {
            unseen: self.unseen,
            ..Losses::default()
        };
        let mut seen = Seen {
            linked: HashSet::new(),
            names: vec![0; NAMES_BYTES_MAX],
        };
        for tree in &self.trees {
            let mut open = vec![Vec::new()];
            while let Some(path) = open.pop() {
                let from = below(&tree.from, &path);
                // Missing and unreadable files were reported when they were copied.
                let Ok(found) = fs::symlink_metadata(&from) else {
                    continue;
                };
                let is_wanted = match found.is_dir() {
                    true => filter.passes_directory(&path),
                    false => filter.passes_file(&path),
                };
                if !is_wanted {
                    continue;
                }
                let to = tree.to.as_ref().map(|to| below(to, &path));
                losses.add((&from, &found), to.as_deref(), &mut seen);
                if found.is_dir() {
                    let names = fs::read_dir(&from).into_iter().flatten().flatten();
                    open.extend(names.map(|entry| join(&path, entry.file_name().as_bytes())));
                }
            }
        }
        losses
    }
}

impl Losses {
    fn add(&mut self, (from, found): (&Path, &Metadata), to: Option<&Path>, seen: &mut Seen) {
        let there = to.and_then(|to| fs::symlink_metadata(to).ok());
        let given = match there {
            Some(there) => (there.uid(), there.gid()),
            None => (geteuid().as_raw(), getegid().as_raw()),
        };
        self.owners += u64::from((found.uid(), found.gid()) != given);
        if found.is_file() && found.nlink() > 1 {
            let name = (found.dev(), found.ino());
            if seen.linked.contains(&name) {
                self.hard_links += 1;
            } else if seen.linked.len() < LINKED_MAX {
                seen.linked.insert(name);
            }
        }
        self.lent_rights += u64::from(found.is_file() && found.mode() & 0o6000 != 0);
        let len = rustix::fs::llistxattr(from, &mut seen.names[..]).unwrap_or(0);
        let names = || seen.names[..len].split(|byte| *byte == 0);
        self.attributes += u64::from(names().any(is_own_attribute));
        self.access_lists += u64::from(names().any(|name| name.starts_with(b"system.posix_acl_")));
    }

    /// Returns whether nothing is lost.
    pub(super) fn is_nothing(&self) -> bool {
        self.list().is_empty()
    }

    fn list(&self) -> Vec<String> {
        let kinds = [
            (self.owners, "owners and groups of ", "file"),
            (self.hard_links, "", "hard link"),
            (self.attributes, "extended attributes of ", "file"),
            (self.access_lists, "access lists of ", "file"),
            (
                self.lent_rights,
                "set-user-ID and set-group-ID bits of ",
                "file",
            ),
        ];
        let lost = kinds.into_iter().filter(|(count, ..)| *count > 0);
        let lost = lost.map(|(count, what, noun)| format!("{what}{}", counted(count, noun)));
        let unseen = self.unseen.then(|| UNSEEN.to_owned());
        lost.chain(unseen).collect()
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list().join(", "))
    }
}

/// Returns whether an attribute was set by somebody. Others describe the file system itself, as
/// Lustre's and NFS's do, or are set on each file.
fn is_own_attribute(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"security.capability"
}

/// Joins a path below another; an empty one is the other itself.
fn below(root: &Path, path: &[u8]) -> PathBuf {
    match path.is_empty() {
        true => root.to_owned(),
        false => root.join(OsStr::from_bytes(path)),
    }
}
