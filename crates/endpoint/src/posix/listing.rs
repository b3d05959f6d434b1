//! Directories, listed page by page.

use std::{
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use super::{Place, entry_of, show};
use crate::{
    Actor, Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Entry, Listing},
};

/// Entries of one listing page: a directory of any size costs this much memory.
const PAGE_ENTRIES: usize = 512;

/// Listing of a directory, page by page.
pub struct PosixListing {
    /// `None` after a failure: the rest would seem to be the whole.
    pages: Option<fs::ReadDir>,
    /// First page, read at opening: most directories are small, and this saves a change of threads.
    first: Option<Vec<Entry>>,
    /// Set at the end of the listing.
    ended: bool,
    /// First name that can't be looked at, reported after the others, and the number of such names.
    unseen: Option<(Error, u64)>,
    path: PathBuf,
    follow: bool,
    actor: Actor,
}

impl PosixListing {
    /// Opens the directory and reads its first page. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn open(path: PathBuf, follow: bool) -> Result<Self> {
        Self::acting(Actor::oneself(), &Place::plain(path), follow)
    }

    /// Lists with the rights of `actor`, which reads further pages too.
    pub(super) fn acting(actor: Actor, place: &Place, follow: bool) -> Result<Self> {
        let path = place.shown().to_owned();
        let mut pages = fs::read_dir(&place.path)
            .map_err(|cause| Error::io("list", show(&path), cause).at(Locus::Source))?;
        let mut unseen = None;
        let first = Self::read_page(&path, follow, &mut pages, &mut unseen)?;
        Ok(Self {
            pages: Some(pages),
            ended: first.len() < PAGE_ENTRIES,
            first: Some(first),
            unseen,
            path,
            follow,
            actor,
        })
    }

    fn read_page(
        path: &Path,
        follow: bool,
        pages: &mut fs::ReadDir,
        unseen: &mut Option<(Error, u64)>,
    ) -> Result<Vec<Entry>> {
        let mut page = Vec::new();
        for found in pages.by_ref() {
            let found =
                found.map_err(|cause| Error::io("list", show(path), cause).at(Locus::Source))?;
            let name = found.file_name().into_vec();
            let metadata = match found.metadata() {
                Ok(metadata) if follow && metadata.is_symlink() => {
                    fs::metadata(found.path()).unwrap_or(metadata)
                }
                Ok(metadata) => metadata,
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
                Err(cause) => {
                    let shown = show(&path.join(found.file_name()));
                    let look = || Error::io("look at", shown, cause);
                    let (_, count) = unseen.get_or_insert_with(|| (look().at(Locus::Source), 0));
                    *count += 1;
                    continue;
                }
            };
            page.push(entry_of(name, &metadata));
            if page.len() == PAGE_ENTRIES {
                break;
            }
        }
        Ok(page)
    }
}

impl PosixListing {
    /// Ends the listing: reports names that can't be looked at.
    fn end(&self) -> Result<Vec<Entry>> {
        match &self.unseen {
            Some((error, 1)) => Err(error.retold()),
            Some((error, count)) => {
                Err(error.retold().hint(format!("and {} more there", count - 1)))
            }
            None => Ok(Vec::new()),
        }
    }
}

impl Listing for PosixListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            // An empty page would end the listing: names that can't be looked at come before it.
            if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
                return Ok(first);
            }
            if self.ended {
                return self.end();
            }
            let Some(mut pages) = self.pages.take() else {
                return Err(Error::new(ErrorKind::Other, "list", show(&self.path))
                    .cause("it failed before")
                    .at(Locus::Source));
            };
            let (path, follow) = (self.path.clone(), self.follow);
            let mut unseen = self.unseen.take();
            let reading = self.actor.blocking(move || {
                let page = Self::read_page(&path, follow, &mut pages, &mut unseen)?;
                Ok((pages, page, unseen))
            });
            let (pages, page, unseen) = reading.await?;
            (self.pages, self.unseen) = (Some(pages), unseen);
            self.ended = page.len() < PAGE_ENTRIES;
            match page.is_empty() {
                true => self.end(),
                false => Ok(page),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::geteuid;

    use super::*;
    use crate::actor::Account;

    #[tokio::test]
    async fn a_directory_of_which_nothing_can_be_looked_at_is_not_empty() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let listed = folder.path().join("listed");
        fs::create_dir(&listed).unwrap();
        fs::write(listed.join("f"), "f").unwrap();
        for (path, mode) in [(folder.path(), 0o755), (&listed, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let actor = Actor::account(Account::numbered(65534).unwrap());
        let open = || PosixListing::acting(actor.clone(), &Place::plain(listed.clone()), false);
        let mut listing = actor.run(open).unwrap();
        let error = listing.next_page().await.unwrap_err().to_string();
        assert!(error.contains("listed/f"), "{error}");
    }
}
