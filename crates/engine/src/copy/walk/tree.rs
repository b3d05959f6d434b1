//! Tree that its endpoint lists at once: paths instead of names, in any order, directories before
//! what they hold.

use std::{collections::HashMap, sync::Arc};

use posthaste_endpoint::{Entry, Kind, Listing, Locus, Result, join};
use tokio::{sync::Mutex, task::JoinSet};

use super::{
    super::retry::retried, LISTED_AT_ONCE, Walk, directory::Directory, inside, visit::check_depth,
};

/// Directories kept by path, twice: a megabyte. Listings go through a tree branch by branch, a few
/// branches at once. A directory far behind is not listed again, or is made once more.
const REMEMBERED_MAX: usize = 2_048;

/// Walks the tree at `root`.
pub(super) async fn walk(
    walk: &Arc<Walk>,
    root: &Arc<Directory>,
    listing: Box<dyn Listing>,
) -> Result<()> {
    let shared = &walk.shared;
    let listing = Mutex::new(listing);
    let mut placing = JoinSet::new();
    let mut known = Known {
        walk,
        root,
        young: HashMap::new(),
        old: HashMap::new(),
    };
    walk.place(root, Vec::new()).await;
    let outside = inside::refuse_root(shared, root).await;
    outside.inspect_err(|_| root.refuse())?;
    let told = loop {
        walk.seals.room().await;
        let page = retried(shared, || async { listing.lock().await.next_page().await }).await;
        let page = match page {
            Ok(page) if page.is_empty() || shared.is_stopped() => break Ok(()),
            Ok(page) => page,
            Err(error) => break Err(error.at(Locus::Source)),
        };
        shared.progress.saw(page.len() as u64);
        for Group { directory, files } in known.sort(page) {
            if placing.len() >= LISTED_AT_ONCE {
                settle(placing.join_next().await);
            }
            let walk = Arc::clone(walk);
            placing.spawn(async move {
                match inside::refuse_directory(&walk.shared, &directory).await {
                    Ok(()) => walk.place(&directory, files).await,
                    Err(error) => {
                        directory.refuse();
                        walk.shared.failed(error);
                    }
                }
            });
        }
    };
    while let ended @ Some(_) = placing.join_next().await {
        settle(ended);
    }
    told
}

/// Resumes here a panic of the ended work.
fn settle(ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(cause)) = ended
        && cause.is_panic()
    {
        std::panic::resume_unwind(cause.into_panic());
    }
}

/// Splits a path into its directory and the name in it. No directory has an empty name, so a path
/// with a leading slash or two slashes together lies in an impossible directory.
fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        None => (b"", path),
        Some(0) if path.len() > 1 => (b"/", &path[1..]),
        Some(cut) => (&path[..cut], &path[cut + 1..]),
    }
}

/// Files of one directory on a page.
struct Group {
    directory: Arc<Directory>,
    files: Vec<Entry>,
}

/// Recently listed directories. Those that are not copied are kept as `None`.
struct Known<'a> {
    walk: &'a Walk,
    root: &'a Arc<Directory>,
    young: HashMap<Vec<u8>, Option<Arc<Directory>>>,
    old: HashMap<Vec<u8>, Option<Arc<Directory>>>,
}

impl Known<'_> {
    /// Groups a page by directory.
    fn sort(&mut self, page: Vec<Entry>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        for mut entry in page {
            let path = std::mem::take(&mut entry.name);
            let (above, name) = parted(&path);
            name.clone_into(&mut entry.name);
            if entry.kind == Kind::Directory {
                if let Some(directory) = self.enter(&path, above, entry) {
                    places.insert(path, groups.len());
                    groups.push(Group {
                        directory,
                        files: Vec::new(),
                    });
                }
                continue;
            }
            let Some(directory) = self.find(above) else {
                continue;
            };
            if !self.walk.takes(&directory, &entry) {
                continue;
            }
            directory.is_used();
            let place = *places.entry(above.to_vec()).or_insert_with(|| {
                groups.push(Group {
                    directory,
                    files: Vec::new(),
                });
                groups.len() - 1
            });
            groups[place].files.push(entry);
        }
        groups
    }

    /// Notes a directory; returns it if it is copied.
    fn enter(&mut self, path: &[u8], above: &[u8], entry: Entry) -> Option<Arc<Directory>> {
        let parent = self.find(above)?;
        let below = self.below(&parent, entry, true);
        self.young.insert(path.to_vec(), below.clone());
        below
    }

    /// Returns a directory in `parent`; `None`, reported once, if it can't be copied.
    fn below(&self, parent: &Arc<Directory>, entry: Entry, told: bool) -> Option<Arc<Directory>> {
        if parent.is_refused() || !self.walk.takes(parent, &entry) {
            return None;
        }
        let from = join(&parent.from, &entry.name);
        let to = join(&parent.to, &entry.name);
        let below = parent.below(from, to, told.then_some(entry), told);
        if let Err(error) = check_depth(&below) {
            self.walk.shared.failed(error.at(Locus::Source));
            return None;
        }
        parent.is_used();
        Some(below)
    }

    /// Returns the directory at `path`. If no listing named it, or too long ago, it is made like
    /// any other.
    fn find(&mut self, path: &[u8]) -> Option<Arc<Directory>> {
        if self.young.len() >= REMEMBERED_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.recall(path)
    }

    fn recall(&mut self, path: &[u8]) -> Option<Arc<Directory>> {
        if path.is_empty() {
            return Some(Arc::clone(self.root));
        }
        if let Some(known) = self.young.get(path) {
            return known.clone();
        }
        let (above, name) = parted(path);
        // Directories above are as young as this one, so none is dropped before what it holds.
        let parent = self.recall(above);
        let known = self.old.remove(path).unwrap_or_else(|| {
            let entry = Entry {
                name: name.to_vec(),
                kind: Kind::Directory,
                size: 0,
                mtime: None,
                stored: None,
                mode: None,
                version: None,
            };
            self.below(&parent?, entry, false)
        });
        self.young.insert(path.to_vec(), known.clone());
        known
    }
}
