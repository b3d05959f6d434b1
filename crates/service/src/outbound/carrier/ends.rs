//! Both ends of an export: the source, the destination, and the movers that help.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use posthaste_endpoint::{Endpoint, Kind, Location, Locus, Result, posix::Posix};
use posthaste_engine::copy::{Filter, Help, Place, Source};

use super::{
    super::{
        ahead::check_free, by_mover::ByMover, listed::Listed, onward, own::refuse_own, submit,
    },
    Carrier,
};
use crate::inbound::look;

impl Carrier {
    /// Returns the movers that may help with the copy.
    pub(super) fn help(&self, destination: &dyn Endpoint) -> Option<Arc<dyn Help>> {
        if onward::of(&self.record).is_some() {
            // Movers don't read from depots.
            return None;
        }
        let movers = ByMover::of(&self.movers, &self.record, &self.behalf, destination)?;
        Some(Arc::new(movers))
    }

    /// Returns the source, and whether it goes into the destination under its own name.
    pub(super) async fn source(&self, listed: &Listed) -> Result<(Source, bool)> {
        if let Some(request) = onward::of(&self.record) {
            let files = onward::open(&self.store, &self.depots, request).await?;
            let source = Source {
                place: Place::remote(Arc::new(files)),
                name: Vec::new(),
                content: true,
            };
            return Ok((source, false));
        }
        let path = OsStr::from_bytes(&self.record.source);
        let place = match listed {
            Listed::Here(_) => self.files_at(PathBuf::from(path)),
            Listed::There(_) => {
                let profile = self.record.stage_in.as_ref();
                let profile = profile.and_then(|wanted| wanted.profile.as_ref());
                Place::remote(look::open(&path.to_string_lossy(), profile, &self.behalf).await?)
            }
        };
        let is_single = listed.is_single();
        let name = Location::parse(path)?.name().filter(|_| is_single);
        let source = Source {
            place,
            name: name.unwrap_or_default(),
            content: !is_single,
        };
        Ok((source, is_single && self.record.one_file.is_none()))
    }

    /// Returns the place of files on this machine. Another user's files are accessed as if remote:
    /// the fast local copy knows only the service's own rights.
    pub(super) fn files_at(&self, path: PathBuf) -> Place {
        let files = Posix::new(path, submit::rules(&self.record));
        if self.behalf.is_oneself() {
            return Place::local(files);
        }
        Place::remote(Arc::new(files.acting(self.behalf.actor().clone())))
    }

    /// Returns the filter for the named files alone, or those that patterns select.
    pub(super) fn filter(&self) -> Result<Filter> {
        let patterns = &self.record.patterns;
        if !(patterns.include.is_empty() && patterns.exclude.is_empty()) {
            return Filter::new(&patterns.include, &patterns.exclude);
        }
        let only = &self.record.only;
        let named: Vec<String> = only.iter().map(|name| globset::escape(name)).collect();
        let below: &[String] = if only.is_empty() {
            &[]
        } else {
            &["*/**".to_owned()]
        };
        Filter::new(&named, below)
    }

    /// Checks once, before anything is written, that it would replace nothing, and does not go to
    /// its own source by another name. Later files there are its own.
    pub(super) async fn claim(&self, destination: &dyn Endpoint, listed: &Listed) -> Result<()> {
        let id = self.record.id;
        if tokio::task::block_in_place(|| self.store.is_claimed(id)) {
            return Ok(());
        }
        check_free(&self.record, destination, listed).await?;
        let there = destination.stat(b"", true).await;
        let there = there.map_err(|error| error.at(Locus::Destination))?;
        let makes = there.is_none();
        let is_directory = there.is_some_and(|there| there.kind == Kind::Directory);
        // Where a directory was missing a moment ago, it is no other name of the source.
        if is_directory || !destination.capabilities().directories {
            self.refuse_own_source(destination).await?;
        }
        tokio::task::block_in_place(|| self.store.keep_claim(id, makes))
    }

    /// Checks that an address is not the source under another name, as far as that lies here. What
    /// comes from depots has the source that these got it from: what lies there would count as
    /// arrived, and then be removed.
    ///
    /// # Errors
    /// Errors of [`refuse_own`].
    pub(super) async fn refuse_own_source(&self, destination: &dyn Endpoint) -> Result<()> {
        let first = onward::of(&self.record).unwrap_or(self.record.id);
        let actor = self.behalf.actor();
        let source = tokio::task::block_in_place(|| self.store.request(first))?.source;
        let root = PathBuf::from(OsStr::from_bytes(&source));
        let is_here = || Ok(root.is_absolute() && root.symlink_metadata().is_ok());
        if !actor.run(is_here)? {
            return Ok(());
        }
        let list = tokio::task::block_in_place(|| self.store.list(first))?;
        refuse_own(destination, &self.record, actor, (&root, &list)).await
    }
}
