//! Stage-in under way: its list, its sources, its draft, and its chunks.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use posthaste_core::contract::Cut;
use posthaste_endpoint::{Endpoint, Error, ErrorKind, Locus, Reader, Result, StoredSum, Unkept};
use posthaste_engine::{
    dataset::DatasetId,
    draft::{Draft, Finish},
};
use posthaste_journal::{ChunkRecord, Scan, StageIn};
use posthaste_types::{ChunkIndex, Digest, RequestId, SourceId, Timestamp};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};
use tokio::sync::OnceCell;

use super::{
    left_out::Behind,
    list::{List, Piece, Stamp},
    look,
    mixed::{Mixed, is_watched},
    near,
    sums::Sums,
    told::Told,
};
use crate::store::Store;
use crate::{credentials::Behalf, jobs::stage_in::is_of_job};

/// Files held open at their sources, since chunks of a large file follow each other.
const READERS_MAX: usize = 512;

/// State of a chunk: its writer and its digest.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Number of the fetch that writes it; 0 for none.
    pub(super) writer: u64,
    pub(super) done: Option<Digest>,
    /// Digest of the chunk if it lies at a depot near the centre.
    pub(super) near: Option<Digest>,
    /// Checksum states of files that continue in other chunks.
    pub(super) sums: Vec<(usize, StoredSum)>,
}

type Readers = HashMap<(usize, usize), Arc<dyn Reader>>;

pub(super) struct Stage {
    pub(super) request: RequestId,
    pub(super) list: List,
    pub(super) draft: Draft,
    pub(super) store: Arc<Store>,
    pub(super) wanted: StageIn,
    /// Account that touches the files.
    pub(super) behalf: Behalf,
    /// Numbers of the sources, in order.
    numbers: Vec<SourceId>,
    /// Depots near the centre where it may wait, by their source number.
    near: Vec<(SourceId, String)>,
    /// Id of the dataset at the depots.
    pub(super) dataset: DatasetId,
    /// Deadline as it was requested.
    pub(super) deadline: Timestamp,
    endpoints: Vec<OnceCell<Arc<dyn Endpoint>>>,
    readers: Mutex<Readers>,
    starts: Vec<u64>,
    pub(super) cut: Cut,
    slots: Mutex<HashMap<ChunkIndex, Arc<Mutex<Slot>>>>,
    pub(super) sums: Sums,
    pub(super) mixed: Mixed,
    /// Prices of a byte and of a request at each source; empty if they can't be known now.
    pub(super) prices: Vec<(u64, u64)>,
    pub(super) told: Told,
    pub(super) behind: Behind,
    /// A job waits for all of it.
    pub(super) is_for_job: bool,
    fetches: AtomicU64,
    /// Set once nothing is written any more.
    is_over: RwLock<bool>,
}

impl Stage {
    /// Resumes a stage-in from its records.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if its list is missing, and the journal's.
    pub(super) async fn open(store: &Arc<Store>, request: RequestId) -> Result<Self> {
        let store = Arc::clone(store);
        let opening = tokio::task::spawn_blocking(move || Self::open_here(store, request));
        opening.await.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "open", request.to_string()).cause(cause.to_string())
        })?
    }

    fn open_here(store: Arc<Store>, request: RequestId) -> Result<Self> {
        let missing = |what: &str| {
            Error::new(ErrorKind::NotFound, "open", format!("{what} of {request}"))
                .at(Locus::Destination)
        };
        let record = store.request(request)?;
        let behalf = store.actors.of(&record)?;
        let is_for_job = is_of_job(&record);
        let wanted = record.stage_in.ok_or_else(|| missing("the sources"))?;
        let Some(Scan::Sealed { chunk_size, .. }) = record.scan else {
            return Err(missing("the list"));
        };
        let list = List::restore(&store.stage_in_list(request)?)
            .map_err(|cause| missing("a sound list").cause(cause))?;
        let cut = list.cut(chunk_size);
        let cut = cut.ok_or_else(|| missing("a list that can be cut"))?;
        let numbers = super::ways(&record.wishes.owner, &wanted.sources)
            .iter()
            .map(|way| store.journal(|journal| journal.source(way)))
            .collect::<Result<_>>()?;
        let known = store.journal(|journal| journal.chunks(request))?;
        let partly = partly(&list, &cut, &known);
        let slots = known.into_iter().filter_map(|known| {
            let digest = known.digests.first().copied()?;
            let is_here = near::is_here(&known);
            let slot = Slot {
                done: is_here.then_some(digest),
                near: (!is_here).then_some(digest),
                ..Slot::default()
            };
            Some((known.chunk, Arc::new(Mutex::new(slot))))
        });
        let near = record.via.iter().map(|name| {
            let number = store.journal(|journal| journal.source(&near::way(name)))?;
            Ok((number, name.clone()))
        });
        let near = near.collect::<Result<_>>()?;
        let terms = look::terms(&wanted, &behalf).unwrap_or_default();
        let price =
            |terms: &look::Terms| (terms.prices.egress_micro_usd, terms.prices.get_micro_usd);
        let destination = PathBuf::from(&record.destination);
        Ok(Self {
            request,
            near,
            dataset: store.dataset(request)?,
            deadline: record.deadline,
            starts: list.starts(),
            list,
            draft: Draft::new(&destination, &record.dataset).acting(behalf.actor().clone()),
            behalf,
            endpoints: wanted.sources.iter().map(|_| OnceCell::new()).collect(),
            slots: Mutex::new(slots.collect()),
            readers: Mutex::default(),
            sums: Sums::default(),
            mixed: Mixed::restore(&store.mixed(request), partly.into_iter()),
            told: Told::default(),
            behind: Behind::restore(&store.left_out(request)),
            is_for_job,
            prices: terms.iter().map(price).collect(),
            store,
            wanted,
            numbers,
            cut,
            fetches: AtomicU64::new(1),
            is_over: RwLock::new(false),
        })
    }

    /// Returns the index of a source.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the stage-in has no such source.
    pub(super) fn place(&self, source: SourceId) -> Result<usize> {
        let place = self.numbers.iter().position(|number| *number == source);
        place.ok_or_else(|| Error::new(ErrorKind::NotFound, "read", format!("source {source}")))
    }

    /// Returns the name of the depot near the centre behind a source.
    pub(super) fn near(&self, source: SourceId) -> Option<&str> {
        let mut near = self.near.iter();
        let found = near.find(|(number, _)| *number == source);
        found.map(|(_, name)| name.as_str())
    }

    async fn endpoint(&self, place: usize) -> Result<&Arc<dyn Endpoint>> {
        let profile = self.wanted.profile.as_ref();
        let open = || look::open(&self.wanted.sources[place], profile, &self.behalf);
        self.endpoints[place].get_or_try_init(open).await
    }

    /// Opens a file at a source as it was when listed.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it changed, and the endpoint's.
    pub(super) async fn reader(&self, place: usize, file: usize) -> Result<Arc<dyn Reader>> {
        let key = (place, file);
        if let Some(known) = self.readers().get(&key).cloned() {
            return Ok(known);
        }
        let endpoint = self.endpoint(place).await?;
        let path = self.list.path_there(place, file);
        let entry = self.list.entry(place, file).ok_or_else(|| {
            // No endpoint is asked for an operation it lacks.
            Error::new(ErrorKind::Other, "read", endpoint.show(path)).at(Locus::Source)
        })?;
        let reader = endpoint.open(path, &entry).await?;
        let now = reader.entry();
        let is_same = now.size == entry.size
            && (now.mtime.is_none() || entry.mtime.is_none() || now.mtime == entry.mtime)
            && (now.version.is_none() || entry.version.is_none() || now.version == entry.version);
        if !is_same {
            let shown = endpoint.show(path);
            return Err(Error::new(ErrorKind::Changed, "read", shown).at(Locus::Source));
        }
        self.told.note(file, &entry, now);
        let mut readers = self.readers();
        if readers.len() >= READERS_MAX {
            readers.clear();
        }
        readers.insert(key, Arc::clone(&reader));
        Ok(reader)
    }

    /// Closes a file, so that it is opened anew.
    pub(super) fn close_reader(&self, place: usize, file: usize) {
        self.readers().remove(&(place, file));
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pieces of a chunk.
    pub(super) fn pieces(&self, chunk: ChunkIndex) -> Vec<Piece> {
        self.list.pieces(&self.starts, self.range(chunk))
    }

    pub(super) fn range(&self, chunk: ChunkIndex) -> Range<u64> {
        self.cut.range(chunk.get())
    }

    pub(super) fn slot(&self, chunk: ChunkIndex) -> Arc<Mutex<Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(chunk).or_default())
    }

    /// Returns a unique number for a fetch.
    pub(super) fn next_fetch(&self) -> u64 {
        self.fetches.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a guard that allows writing to the draft and keeps it in place; none once the
    /// stage-in has ended.
    pub(super) fn leave(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let is_over = self.is_over.read().unwrap_or_else(PoisonError::into_inner);
        if *is_over { None } else { Some(is_over) }
    }

    /// Ends all writing: waits for current writers, and admits no more.
    fn end(&self) {
        let mut is_over = self.is_over.write().unwrap_or_else(PoisonError::into_inner);
        *is_over = true;
    }

    /// Returns the chunks that are recorded and whose files exist.
    ///
    /// # Errors
    /// The journal's.
    pub(super) async fn survey(self: &Arc<Self>) -> Result<Vec<ChunkIndex>> {
        self.blocking(|stage| {
            let known = stage
                .store
                .journal(|journal| journal.chunks(stage.request))?;
            let has_landed = stage.has_landed();
            let mut files: HashMap<usize, bool> = HashMap::new();
            let mut is_there = |file: usize| {
                *files.entry(file).or_insert_with(|| {
                    let about = &stage.list.files[file];
                    stage.behind.has(file) || stage.draft.has(&about.path, about.size)
                })
            };
            let is_doubted = !has_landed && stage.draft.has_lost();
            let here = known.iter().filter(|known| near::is_here(known));
            let here = here.filter(|known| !is_doubted || stage.is_as_noted(known));
            let chunks = here.map(|known| known.chunk);
            let here = chunks.filter(|chunk| {
                if stage.sums.is_damaged(*chunk) {
                    return false;
                }
                let pieces = stage.pieces(*chunk);
                has_landed || pieces.iter().all(|piece| is_there(piece.file))
            });
            let here: Vec<ChunkIndex> = here.collect();
            let mut slots = stage.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|chunk, slot| {
                let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let is_here = here.binary_search(chunk).is_ok();
                slot.done = slot.done.filter(|_| is_here);
                is_here || slot.near.is_some()
            });
            Ok(here)
        })
        .await
    }

    /// Returns whether the draft of a chunk matches the chunk's record.
    fn is_as_noted(&self, known: &ChunkRecord) -> bool {
        let mut hasher = blake3::Hasher::new();
        let mut take = |bytes: &[u8]| {
            hasher.update(bytes);
        };
        let mut pieces = self.pieces(known.chunk).into_iter();
        let read = pieces.try_for_each(|piece| {
            let path = &self.list.files[piece.file].path;
            self.draft.read(path, piece.range, &mut take)
        });
        let digest = Digest::new(*hasher.finalize().as_bytes());
        read.is_ok() && known.digests.first() == Some(&digest)
    }

    /// Fails if a draft that lost some files is no longer complete.
    fn refuse_lost(&self) -> Result<()> {
        if !self.draft.has_lost() {
            return Ok(());
        }
        let known = self.store.journal(|journal| journal.chunks(self.request))?;
        let mut here = known.iter().filter(|known| near::is_here(known));
        if here.all(|known| self.is_as_noted(known)) {
            return Ok(());
        }
        let shown = self.draft.folder().display().to_string();
        Err(Error::new(ErrorKind::Corrupt, "stage in to", shown)
            .cause("the file system lost some of what was written; that is fetched again")
            .at(Locus::Destination))
    }

    /// Returns whether the stage-in was published but not yet reported.
    fn has_landed(&self) -> bool {
        let noted = self.store.landing(self.request);
        noted.is_some_and(|noted| self.draft.has_landed(&noted))
    }

    /// Publishes all files at once under their names, and returns the attributes that could not be
    /// kept.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something appeared at the destination, [`ErrorKind::Corrupt`] if
    /// a file does not match its source's checksum, and the operating system's.
    pub(super) async fn land(self: &Arc<Self>) -> Result<Unkept> {
        if !self.blocking(|stage| Ok(stage.has_landed())).await? {
            self.compare_spread().await?;
            self.ask_rest().await;
        }
        self.blocking(|stage| {
            if stage.has_landed() {
                return Ok(Unkept::default());
            }
            stage.refuse_lost()?;
            stage.drop_behind()?;
            let files = stage.list.files.iter().enumerate();
            let files = files.filter(|(place, _)| !stage.behind.has(*place));
            let files = files.map(|(place, file)| {
                let about = stage.list.first_stamp(place);
                let (mode, mtime) = stage.told.of(place);
                Finish {
                    path: &file.path,
                    size: file.size,
                    mode: about.and_then(|about| about.mode).or(mode),
                    mtime: about.and_then(Stamp::mtime).or(mtime),
                }
            });
            let unkept = stage.draft.complete(&stage.list.folders(), files)?;
            let identity = stage.draft.identity().unwrap_or_default();
            stage.store.keep_landing(stage.request, &identity)?;
            stage.draft.rename()?;
            stage.end();
            Ok(unkept)
        })
        .await
    }

    /// Records which files came from several sources.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn keep_mixed(&self) -> Result<()> {
        self.mixed
            .keep(|kept| self.store.keep_mixed(self.request, kept))
    }

    /// Removes the draft.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) async fn discard(self: &Arc<Self>) -> Result<()> {
        self.blocking(|stage| {
            stage.end();
            let removed = stage.draft.remove();
            if removed.is_ok() {
                stage.store.forget_list(stage.request);
            }
            removed
        })
        .await
    }

    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let stage = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&stage)).await;
        done.map_err(|cause| {
            Error::new(ErrorKind::Cancelled, "write", self.request.to_string())
                .cause(cause.to_string())
        })?
    }
}

/// Checks that a stage-in can go to its destination: nothing is there, and the parent is a writable
/// directory.
///
/// # Errors
/// [`ErrorKind::Conflict`] if something is there, [`ErrorKind::NotFound`] if the parent isn't.
pub(super) fn check_destination(destination: &str) -> Result<()> {
    let path = Path::new(destination);
    let invalid = |why: &str, hint: &str| {
        Error::new(ErrorKind::Invalid, "stage in to", destination)
            .cause(why.to_owned())
            .hint(hint)
            .at(Locus::Destination)
    };
    let is_plain = path.file_name().is_some() && !path.as_os_str().as_bytes().contains(&0);
    if !path.is_absolute() || !is_plain {
        return Err(invalid(
            "it is no absolute path with a name",
            "give a directory that is not there yet, like /scratch/me/input",
        ));
    }
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Error::new(ErrorKind::Conflict, "stage in to", destination)
            .cause("something is there already")
            .hint("give a directory that is not there yet: nothing is ever replaced")
            .at(Locus::Destination));
    }
    let parent = path.parent().unwrap_or(path);
    let about = std::fs::metadata(parent);
    let about = about.map_err(|cause| {
        Error::io("stage in to", parent.display().to_string(), cause).at(Locus::Destination)
    })?;
    if !about.is_dir() {
        return Err(invalid(
            "its parent is no directory",
            "give a path in a directory that is there",
        ));
    }
    let may = accessat(
        CWD,
        parent,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    );
    // If the kernel can't check this, the first chunk shows it.
    match may {
        Err(cause @ (Errno::ACCESS | Errno::ROFS)) => {
            let shown = parent.display().to_string();
            let cause = cause.into();
            Err(Error::io("write to", shown, cause).at(Locus::Destination))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the files that should come from one source and have arrived only in part.
fn partly(list: &List, cut: &Cut, known: &[ChunkRecord]) -> BTreeSet<usize> {
    let starts = list.starts();
    let known: BTreeSet<u32> = known.iter().map(|known| known.chunk.get()).collect();
    // A chunk has parts of files only at its ends.
    let ends = |chunk: u32| {
        let pieces = list.pieces(&starts, cut.range(chunk));
        let ends = [pieces.first(), pieces.last()].map(|piece| piece.map(|piece| piece.file));
        ends.into_iter().flatten()
    };
    let here: BTreeSet<usize> = known.iter().copied().flat_map(ends).collect();
    let missing = (0..cut.chunks()).filter(|chunk| !here.is_empty() && !known.contains(chunk));
    let missing: BTreeSet<usize> = missing.flat_map(ends).collect();
    let watched = |file: &usize| is_watched(list, cut.chunk_size().get(), *file);
    here.intersection(&missing)
        .copied()
        .filter(watched)
        .collect()
}
