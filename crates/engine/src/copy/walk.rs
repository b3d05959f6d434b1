//! Lists the sources, makes the directories and hands files to the lanes.

use std::collections::HashMap;
use std::sync::Arc;

use posthaste_endpoint::{Entry, Error, ErrorKind, Kind, Locus, Result, is_unfinished, join};
use tokio::sync::mpsc;

use super::{Links, Notice, Placed, Source, lane::Shared};

/// Files of one hand-over, so that a lane takes the queue's lock once for many small files.
const BATCH_FILES: usize = 64;

/// Bytes of one hand-over, so that large files spread over all lanes.
const BATCH_BYTES: u64 = 8 << 20;

/// Directories deep a tree may be: a symbolic link to its own parent ends here when followed.
const DEPTH_MAX: usize = 256;

/// Entries of a destination directory remembered at once; beyond it each file is asked for.
const REMEMBERED_ENTRIES_MAX: usize = 200_000;

/// What lies at a file's destination.
#[derive(Debug, Clone)]
pub(super) enum There {
    /// Nothing: its directory is new.
    Nothing,
    /// This.
    Found(Entry),
    /// Nobody looked yet.
    Ask,
}

/// A file or link to copy.
#[derive(Debug)]
pub(super) struct Work {
    pub source: Arc<Source>,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub entry: Entry,
    pub there: There,
}

/// A directory being copied.
struct Directory {
    source: Arc<Source>,
    from: Vec<u8>,
    to: Vec<u8>,
    entry: Entry,
    parent: Option<usize>,
    depth: usize,
    made: Option<Made>,
    empty: bool,
    /// It was the user's before: its own attributes stay.
    existed: bool,
}

#[derive(Clone, Copy)]
struct Made {
    new: bool,
}

/// Directories to give their attributes once everything in them arrived.
pub(super) struct Walked {
    directories: Vec<Directory>,
}

pub(super) struct Walker<'a> {
    shared: &'a Arc<Shared>,
    queue: mpsc::Sender<Vec<Work>>,
    batch: Vec<Work>,
    batch_bytes: u64,
    directories: Vec<Directory>,
    /// Directories still to list: indices into `directories`.
    open: Vec<usize>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, queue: mpsc::Sender<Vec<Work>>) -> Self {
        Self {
            shared,
            queue,
            batch: Vec::new(),
            batch_bytes: 0,
            directories: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Walks all sources.
    pub(super) async fn walk(mut self, placed: Vec<Placed>) -> Walked {
        for placed in placed {
            if let Err(error) = self.walk_source(placed).await {
                self.shared.failed(error);
            }
        }
        self.flush().await;
        self.shared.progress.walk_ended();
        Walked {
            directories: self.directories,
        }
    }

    async fn walk_source(&mut self, placed: Placed) -> Result<()> {
        let Placed {
            source,
            entry,
            to,
            existed,
        } = placed;
        if !self.shared.options.dry_run {
            self.shared.destination.endpoint.make_parents().await?;
        }
        if entry.kind != Kind::Directory {
            let named = if to.is_empty() { &source.name } else { &to };
            if !self.shared.options.filter.passes_file(named) {
                return Ok(());
            }
            if let Some((parent, _)) = split_last(&to)
                && !self.shared.options.dry_run
            {
                self.shared
                    .destination
                    .endpoint
                    .make_directory(parent)
                    .await?;
            } else if !to.is_empty() && !self.shared.options.dry_run {
                self.shared.destination.endpoint.make_directory(b"").await?;
            }
            let work = Work {
                source,
                from: Vec::new(),
                to,
                entry,
                there: There::Ask,
            };
            self.hand_over(work).await;
            return Ok(());
        }
        self.directories.push(Directory {
            source,
            from: Vec::new(),
            to,
            entry,
            parent: None,
            depth: 0,
            made: None,
            empty: true,
            existed,
        });
        self.open.push(self.directories.len() - 1);
        while let Some(index) = self.open.pop() {
            if self.shared.is_stopped() {
                break;
            }
            if let Err(error) = self.walk_directory(index).await {
                self.shared.failed(error);
            }
        }
        Ok(())
    }

    async fn walk_directory(&mut self, index: usize) -> Result<()> {
        let follow = self.shared.options.links == Links::Follow;
        let source = Arc::clone(&self.directories[index].source);
        let from = self.directories[index].from.clone();
        if self.directories[index].depth > DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "list",
                source.place.endpoint.show(&from),
            )
            .cause(format!("more than {DEPTH_MAX} directories deep"))
            .hint("a followed link may lead back to its own parent")
            .at(Locus::Source));
        }
        let mut listing = source
            .place
            .endpoint
            .list(&from, follow)
            .await
            .map_err(|error| error.at(Locus::Source))?;
        if self.shared.options.filter.is_open() {
            self.make(index).await?;
        }
        let mut there = None;
        loop {
            let page = listing
                .next_page()
                .await
                .map_err(|error| error.at(Locus::Source))?;
            if page.is_empty() || self.shared.is_stopped() {
                break;
            }
            self.shared.progress.saw(page.len() as u64);
            for entry in page {
                self.see(index, entry, &mut there).await?;
            }
        }
        Ok(())
    }

    async fn see(
        &mut self,
        index: usize,
        entry: Entry,
        there: &mut Option<HashMap<Vec<u8>, Entry>>,
    ) -> Result<()> {
        if is_unfinished(&entry.name) {
            return Ok(());
        }
        let directory = &self.directories[index];
        let source = Arc::clone(&directory.source);
        let from = join(&directory.from, &entry.name);
        let to = join(&directory.to, &entry.name);
        let byte_names = self.shared.destination.endpoint.capabilities().byte_names;
        if let Err(reason) = check_name(&entry.name, byte_names) {
            let shown = source.place.endpoint.show(&from);
            self.shared.failed(
                Error::new(ErrorKind::Unsupported, "copy", shown)
                    .cause(reason)
                    .hint("rename it")
                    .at(Locus::Source),
            );
            return Ok(());
        }
        match entry.kind {
            Kind::Directory => {
                if self.shared.options.filter.passes_directory(&from) {
                    let (parent, depth) = (Some(index), directory.depth + 1);
                    self.directories[index].empty = false;
                    self.directories.push(Directory {
                        source,
                        from,
                        to,
                        entry,
                        parent,
                        depth,
                        made: None,
                        empty: true,
                        existed: false,
                    });
                    self.open.push(self.directories.len() - 1);
                }
                return Ok(());
            }
            Kind::File | Kind::Link => {}
            Kind::Special => {
                let shown = source.place.endpoint.show(&from);
                (self.shared.options.on_notice)(&Notice::LeftOut(&shown));
                return Ok(());
            }
        }
        if !self.shared.options.filter.passes_file(&from) {
            return Ok(());
        }
        self.directories[index].empty = false;
        let there = match self.make(index).await? {
            Made { new: true } => There::Nothing,
            Made { new: false } => self.look_up(index, &entry, there).await?,
        };
        self.hand_over(Work {
            source,
            from,
            to,
            entry,
            there,
        })
        .await;
        Ok(())
    }

    /// Looks a name up in the destination directory, listing it once.
    async fn look_up(
        &self,
        index: usize,
        entry: &Entry,
        there: &mut Option<HashMap<Vec<u8>, Entry>>,
    ) -> Result<There> {
        let destination = &self.shared.destination;
        if destination.local.is_some() {
            return Ok(There::Ask);
        }
        if there.is_none() {
            let mut known = HashMap::new();
            let mut listing = destination
                .endpoint
                .list(&self.directories[index].to, false)
                .await?;
            loop {
                let page = listing.next_page().await?;
                if page.is_empty() || known.len() > REMEMBERED_ENTRIES_MAX {
                    break;
                }
                known.extend(page.into_iter().map(|entry| (entry.name.clone(), entry)));
            }
            *there = Some(known);
        }
        let known = there.as_ref().map_or(0, HashMap::len);
        Ok(
            match there.as_ref().and_then(|there| there.get(&entry.name)) {
                Some(found) => There::Found(found.clone()),
                None if known > REMEMBERED_ENTRIES_MAX => There::Ask,
                None => There::Nothing,
            },
        )
    }

    /// Makes the destination directory, those above it first.
    async fn make(&mut self, index: usize) -> Result<Made> {
        if let Some(made) = self.directories[index].made {
            return Ok(made);
        }
        let mut missing = vec![index];
        while let Some(parent) = self.directories[missing[missing.len() - 1]].parent {
            if self.directories[parent].made.is_some() {
                break;
            }
            missing.push(parent);
        }
        let mut last = Made { new: false };
        for index in missing.into_iter().rev() {
            last = self.make_one(index).await?;
            self.directories[index].made = Some(last);
        }
        Ok(last)
    }

    async fn make_one(&self, index: usize) -> Result<Made> {
        let directory = &self.directories[index];
        let endpoint = &self.shared.destination.endpoint;
        let above = directory
            .parent
            .and_then(|parent| self.directories[parent].made);
        let is_below_new = above.is_some_and(|above| above.new);
        if self.shared.options.dry_run {
            if is_below_new {
                return Ok(Made { new: true });
            }
            return Ok(Made {
                new: endpoint.stat(&directory.to, true).await?.is_none(),
            });
        }
        if is_below_new && !endpoint.capabilities().directory_attributes {
            return Ok(Made { new: true });
        }
        let new = endpoint
            .make_directory(&directory.to)
            .await
            .map_err(|error| error.at(Locus::Destination))?;
        if new {
            self.shared.progress.made_directory();
        }
        Ok(Made { new })
    }

    async fn hand_over(&mut self, work: Work) {
        if work.entry.kind == Kind::File {
            self.shared.progress.found_file(work.entry.size);
        }
        self.batch_bytes += work.entry.size;
        self.batch.push(work);
        let single = !self.shared.is_local();
        if single || self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        self.batch_bytes = 0;
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            // The queue closes only when every lane has ended, which a stop causes.
            let _ = self.queue.send(batch).await;
        }
    }
}

impl Walked {
    /// Gives every directory its attributes, the deepest first.
    pub(super) async fn seal(self, shared: &Shared) {
        let endpoint = &shared.destination.endpoint;
        let kept = endpoint.capabilities().directory_attributes;
        for directory in self.directories.iter().rev() {
            let has_marker = directory.empty && !directory.to.is_empty();
            if directory.made.is_none() || directory.existed || !(kept || has_marker) {
                continue;
            }
            let mut entry = directory.entry.clone();
            if entry.mtime.is_none()
                && let Ok(Some(asked)) = directory
                    .source
                    .place
                    .endpoint
                    .stat(&directory.from, true)
                    .await
            {
                entry = asked;
            }
            if let Err(error) = endpoint
                .seal_directory(&directory.to, &entry, directory.empty)
                .await
            {
                shared.failed(error.at(Locus::Destination));
            }
        }
    }
}

fn check_name(name: &[u8], byte_names: bool) -> Result<(), &'static str> {
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err("this can't be a file's name at the destination");
    }
    if !byte_names && std::str::from_utf8(name).is_err() {
        return Err("its name is not UTF-8, which the destination needs");
    }
    Ok(())
}

fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = path.iter().rposition(|&byte| byte == b'/')?;
    Some((&path[..cut], &path[cut + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0"] {
            assert!(check_name(name, true).is_err(), "{name:?}");
        }
        assert!(check_name(b"caf\xe9\n", true).is_ok());
        assert!(check_name(b"caf\xe9", false).is_err());
    }
}
