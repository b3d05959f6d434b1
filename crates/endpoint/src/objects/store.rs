//! Endpoint over any object store: a raw store below, paths and conventions above.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;

use super::{
    KeysListing, LINK_SUFFIX, Length, RawStore, Record, Upload, as_listed,
    doubt::{self, Doubt, Doubtful},
    prefix_of, take_link,
};
use crate::{
    Capabilities, Checksum, Condition, Errand, Error, ErrorKind, Locus, Pass, Result,
    endpoint::{
        Boxed, ByteStream, Endpoint, Entry, FileSpec, Kind, LentSegment, Listing, Reader, Whole,
        Writer, join, unsupported,
    },
    limits::Limits,
    posix::DraftRules,
    unfinished::trial_name,
};

/// Bucket, and a key or prefix in it.
pub(crate) struct Objects<S> {
    pub(super) store: Arc<S>,
    root: String,
    limits: Option<Limits>,
    pub(super) rules: DraftRules,
    /// True if nothing was at the root or below it when it was examined.
    pub(super) was_empty: AtomicBool,
    /// True if an object or a link has the name of the directory at the root.
    pub(super) has_namesake: AtomicBool,
}

impl<S: RawStore> Objects<S> {
    /// Opens `root` and everything below it. Listings, which make several requests at once, apply
    /// the caps themselves.
    pub(crate) fn open(
        store: S,
        root: &str,
        (limits, rules): (Option<Limits>, DraftRules),
    ) -> Arc<dyn Endpoint> {
        Arc::new(Self {
            store: Arc::new(store),
            root: root.to_owned(),
            limits,
            rules,
            was_empty: AtomicBool::new(false),
            has_namesake: AtomicBool::new(false),
        })
    }

    pub(super) fn key(&self, path: &[u8]) -> Result<String> {
        let unsupported = |cause: &'static str| unsupported_name(path).cause(cause);
        let key = String::from_utf8(join(self.root.as_bytes(), path))
            .map_err(|_| unsupported("its name is not UTF-8, which the store needs"))?;
        match self.store.refuses(&key) {
            Some(cause) => Err(unsupported(cause)),
            None => Ok(key),
        }
    }

    /// Returns the key of a file being written.
    pub(super) fn file_key(&self, path: &[u8]) -> Result<String> {
        let key = self.key(path)?;
        if take_link(&mut key.clone().into_bytes()) {
            return Err(unsupported_name(path).cause(format!(
                "a name that ends in {LINK_SUFFIX} stands for a symbolic link there"
            )));
        }
        Ok(key)
    }

    fn link_key(&self, path: &[u8]) -> Result<String> {
        Ok(format!("{}{LINK_SUFFIX}", self.key(path)?))
    }

    /// Returns whether a name that stands for a link also stands for a file or a directory.
    async fn has_other(&self, path: &[u8]) -> Result<bool> {
        let key = self.key(path)?;
        let prefix = prefix_of(&key);
        let (file, below) = tokio::join!(
            self.find(&key, "", Kind::File),
            self.store.has_below(&prefix)
        );
        // Without permission to look, a missing object gives the same refusal.
        let or_unseen = |asked: Result<bool>| match asked {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(false),
            Err(error) if S::is_about_listing(&error) => Ok(false),
            asked => asked,
        };
        Ok(or_unseen(file.map(|found| found.is_some()))? || or_unseen(below)?)
    }

    fn list_below(&self, prefix: String, flat: bool) -> Box<dyn Listing> {
        let listing = S::Listing::new(Arc::clone(&self.store), prefix.clone(), flat);
        self.doubted(prefix, Box::new(listing.held_to(self.limits.clone())))
    }

    /// Returns a listing in which wrong objects are like no files.
    fn doubted(&self, prefix: String, inner: Box<dyn Listing>) -> Box<dyn Listing> {
        if !doubt::are_there() {
            return inner;
        }
        let store = Arc::clone(&self.store);
        let apply = move |entry: Entry| {
            let name = String::from_utf8_lossy(&entry.name);
            let doubt = Doubt::of(&*store, &format!("{prefix}{name}"));
            doubt.apply(entry)
        };
        Box::new(Doubtful { inner, apply })
    }

    async fn begin(&self, path: &[u8], spec: &FileSpec, length: Length) -> Result<Arc<dyn Writer>> {
        let key = self.file_key(path)?;
        let upload = Upload::<S::Segments>::start(&self.store, &key, spec, length).await?;
        Ok(Arc::new(upload.replacing(self.rules.replaces)))
    }
}

fn unsupported_name(path: &[u8]) -> Error {
    let shown = String::from_utf8_lossy(path);
    Error::new(ErrorKind::Unsupported, "name", shown).hint("rename it")
}

/// Returns the entry of a directory about which only its existence is known.
pub(crate) fn directory_entry() -> Entry {
    Entry::bare(Vec::new(), Kind::Directory)
}

impl<S: RawStore> Endpoint for Objects<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.store.round_trip()
    }

    fn show(&self, path: &[u8]) -> String {
        let key = join(self.root.as_bytes(), path);
        self.store.show(&String::from_utf8_lossy(&key))
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(self.look_at(path))
    }

    fn namesake(&self) -> Option<Error> {
        self.namesake_left_out()
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async {
            let prefix = prefix_of(&self.key(path)?);
            Ok(self.list_below(prefix, true))
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async {
            let prefix = prefix_of(&self.key(path)?);
            Ok(Some(self.list_below(prefix, false)))
        })
    }

    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let prefix = prefix_of(&self.key(path)?);
            let listing = S::Listing::resumed(Arc::clone(&self.store), prefix.clone(), mark)?;
            Ok(self.doubted(prefix, Box::new(listing.held_to(self.limits.clone()))))
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async {
            let key = self.key(path)?;
            let whole = self.store.get(&key, entry, "read").await?;
            as_listed(whole, entry, || self.store.show(&key))
        })
    }

    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let key = self.key(path)?;
            let fail = |kind| Error::new(kind, "read", self.store.show(&key)).at(Locus::Source);
            let head = self.store.head(&key, "read").await?;
            let head = head.ok_or_else(|| fail(ErrorKind::NotFound))?;
            if S::entry(&head, Kind::File).size != entry.size {
                return Err(fail(ErrorKind::Changed)
                    .cause("it has another size than was listed")
                    .hint("copy it again when nothing writes to it"));
            }
            Ok(self.store.reader(key, &head))
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let (key, any) = (self.link_key(path)?, Entry::bare(Vec::new(), Kind::File));
            let reading = self.store.get(&key, &any, "read link");
            let (read, has_other) = tokio::join!(reading, self.has_other(path));
            if has_other? {
                let error = Error::new(ErrorKind::Conflict, "read link", self.store.show(&key));
                return Err(error
                    .cause("something else has the name that this link stands for")
                    .hint("remove one of the two there")
                    .at(Locus::Source));
            }
            Ok(read?.data.concat())
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.write(path, spec, (data, sum), None))
    }

    fn refuses_damage(&self) -> Boxed<'_, bool> {
        Box::pin(async {
            let Ok(key) = self.key(&trial_name(b"sum")) else {
                return false;
            };
            match self.store.put_damaged(&key).await {
                Err(error) => error.kind() == ErrorKind::Corrupt,
                Ok(()) => {
                    // It is hidden, and its name says whose it is.
                    let _ = self.store.delete(&key).await;
                    false
                }
            }
        })
    }

    fn put_if<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        condition: &'a Condition,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.write(path, spec, (data, sum), Some(condition)))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(self.begin(path, spec, Length::Known))
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(self.begin(path, spec, Length::Open))
    }

    fn forget_unfinished<'a>(&'a self, path: &'a [u8], origin: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            if let Ok(key) = self.file_key(path) {
                Upload::<S::Segments>::forget(&self.store, &key, origin).await;
            }
        })
    }

    fn write_lent<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        segment: &'a LentSegment,
        body: ByteStream,
    ) -> Boxed<'a, Result<(Checksum, String)>> {
        Box::pin(async move {
            let key = self.file_key(path)?;
            Upload::<S::Segments>::send_lent(&self.store, &key, spec, segment, body).await
        })
    }

    fn adopt<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = self.key(path)?;
            Record::of(&*self.store, &key, &spec.origin).adopt(spec, note)
        })
    }

    /// Removes an object, or the link of that name.
    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            for key in [self.key(path)?, self.link_key(path)?] {
                match self.store.delete(&key).await {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let key = self.link_key(path)?;
            // An object of that name would remain, and be read instead.
            if !self.was_empty.load(Relaxed) && self.has_other(path).await? {
                let error = Error::new(ErrorKind::Conflict, "make link", self.store.show(&key));
                return Err(error
                    .cause("something else has that name")
                    .hint("remove it there first")
                    .at(Locus::Destination));
            }
            let content = (vec![Bytes::copy_from_slice(target)], Checksum::of(target));
            self.store
                .put(&key, (spec, Kind::Link), content, None)
                .await
        })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Prefixes need no creation; "new" means that nothing is there to compare with.
    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            if self.was_empty.load(Relaxed) {
                return Ok(true);
            }
            let prefix = prefix_of(&self.key(path)?);
            match self.store.has_below(&prefix).await {
                Err(refused) if S::is_about_listing(&refused) => Ok(true),
                is_there => Ok(!is_there?),
            }
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            if !empty {
                return Ok(());
            }
            let key = format!("{}/", self.key(path)?);
            let spec = FileSpec {
                size: 0,
                mtime: entry.mtime,
                mode: entry.mode,
                origin: "".into(),
                version: None,
            };
            let (what, nothing) = ((&spec, Kind::Directory), (Vec::new(), Checksum::EMPTY));
            self.store.put(&key, what, nothing, None).await
        })
    }

    fn pass<'a>(
        &'a self,
        path: &'a [u8],
        errand: &'a Errand,
        lifetime: Duration,
    ) -> Boxed<'a, Result<Pass>> {
        Box::pin(async move { self.store.pass(&self.key(path)?, errand, lifetime).await })
    }

    fn realm(&self) -> Option<String> {
        Some(self.store.realm())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let key = join(self.root.as_bytes(), path);
        join(self.store.bucket().as_bytes(), &key)
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let from = std::str::from_utf8(from)
                .map_err(|_| unsupported("copy on the server to", self.show(path)))?;
            let key = self.file_key(path)?;
            self.store.copy(from, &key, spec).await
        })
    }
}
