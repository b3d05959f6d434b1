//! Fetches a chunk from a source into the files of a draft.

use std::{
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Component, Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use futures_util::StreamExt;
use posthaste_api as api;
use posthaste_endpoint::{
    Actor, Compared, Error, ErrorKind, Locus, Result,
    posix::{Beneath, close},
};
use posthaste_engine::draft::note_loss;
use posthaste_types::Digest;
use rustix::fs::OFlags;

use crate::{Tools, ledger::Progress, sources::Place};

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Most files of one chunk that are open at once.
const OPEN_MAX: usize = 64;

/// Reads the pieces of a chunk and writes them to their files. The chunk is durable when this
/// returns; the result is its digest.
///
/// # Errors
/// Errors of the source at [`Locus::Source`], and of writing at [`Locus::Destination`].
pub(crate) async fn fetch(
    tools: &Arc<Tools>,
    chore: &api::FetchChore,
    progress: &Progress,
) -> Result<Vec<Digest>> {
    let actor = tools.actors.of(chore.owner.as_deref()).await?;
    let mut hasher = blake3::Hasher::new();
    let mut written: Vec<Arc<Written>> = Vec::new();
    for piece in &chore.pieces {
        let file = Arc::new(open(chore, piece, &actor)?);
        let (digested, reading) = ((&mut hasher, progress), (chore, piece, &actor));
        if let Err(error) = read(tools, reading, &file, digested).await {
            let place = Place::of(&chore.source, chore.owner.as_deref());
            tools.sources.close(&place, piece);
            return Err(error);
        }
        written.push(file);
        if written.len() >= OPEN_MAX {
            sync(std::mem::take(&mut written)).await?;
        }
    }
    sync(written).await?;
    tools.leases.check()?;
    Ok(vec![Digest::new(*hasher.finalize().as_bytes())])
}

/// Makes written files durable.
async fn sync(written: Vec<Arc<Written>>) -> Result<()> {
    let synced = tokio::task::spawn_blocking(move || {
        let mut files = written.into_iter();
        files.try_for_each(|file| {
            file.sync()?;
            Arc::into_inner(file).map_or(Ok(()), |mut file| file.close())
        })
    });
    let synced = synced.await.map_err(|cause| stopped(cause.to_string()))?;
    synced.map_err(|cause| Error::io("flush", "a draft", cause).at(Locus::Destination))
}

/// File of the draft that is being written. The kernel reports lost data only to the first caller
/// that closes the file, so every close is checked.
struct Written {
    /// File; `None` once it is closed.
    file: Option<File>,
    folder: PathBuf,
    /// Path below `folder`.
    path: Vec<u8>,
    actor: Actor,
}

impl Written {
    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("closed"))
    }

    fn sync(&self) -> io::Result<()> {
        self.hear(self.file()?.sync_data())
    }

    fn close(&mut self) -> io::Result<()> {
        let closed = self.file.take().map_or(Ok(()), close);
        self.hear(closed)
    }

    fn hear(&self, said: io::Result<()>) -> io::Result<()> {
        said.inspect_err(|_| {
            let note = || {
                note_loss(&self.folder, &self.path);
                Ok(())
            };
            let _ = self.actor.run(note);
        })
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// Opens a file of the draft, which the service created. A missing file is not created here: its
/// draft was given up.
fn open(chore: &api::FetchChore, piece: &api::FetchPiece, actor: &Actor) -> Result<Written> {
    let below = Path::new(&piece.path);
    let is_plain = |path: &Path| {
        let mut components = path.components();
        components.all(|component| matches!(component, Component::Normal(_)))
    };
    if !Path::new(&chore.draft).is_absolute() || !is_plain(below) {
        return Err(Error::new(ErrorKind::Invalid, "write", &piece.path).at(Locus::Destination));
    }
    let folder = PathBuf::from(&chore.draft);
    let path = below.as_os_str().as_bytes().to_vec();
    let opened = actor.run(|| {
        let opened = Beneath::open_exactly(&folder)
            .and_then(|folder| Ok(File::from(folder.open(&path, OFlags::WRONLY)?)));
        opened.map_err(|cause| {
            let shown = folder.join(below).display().to_string();
            Error::io("write", shown, cause).at(Locus::Destination)
        })
    });
    Ok(Written {
        file: Some(opened?),
        folder,
        path,
        actor: actor.clone(),
    })
}

async fn read(
    tools: &Arc<Tools>,
    (chore, piece, actor): (&api::FetchChore, &api::FetchPiece, &Actor),
    file: &Arc<Written>,
    (hasher, progress): (&mut blake3::Hasher, &Progress),
) -> Result<()> {
    let at_source = |error: Error| error.at(Locus::Source);
    let place = Place::of(&chore.source, chore.owner.as_deref());
    let reader = tools.sources.open(actor, place, piece).await?;
    let mut bytes = reader.read(piece.from..piece.to).await.map_err(at_source)?;
    let mut compared = Compared::begin(&*reader, &(piece.from..piece.to));
    let mut at = piece.from;
    let mut strip = bytes::BytesMut::new();
    while let Some(some) = bytes.next().await {
        let some = some.map_err(at_source)?;
        progress.fetch_add(some.len() as u64, Ordering::Relaxed);
        tools.sources.add(some.len() as u64);
        hasher.update(&some);
        if let Some(compared) = &mut compared {
            compared.add(&some);
        }
        strip.extend_from_slice(&some);
        if strip.len() >= WRITE_BYTES {
            at = write(tools, file, at, strip.split().freeze()).await?;
        }
    }
    let end = write(tools, file, at, strip.freeze()).await?;
    if end != piece.to {
        let cause = format!(
            "{} bytes came, not {}",
            end - piece.from,
            piece.to - piece.from
        );
        return Err(Error::new(ErrorKind::Changed, "read", "a source")
            .cause(cause)
            .at(Locus::Source));
    }
    reader.confirm().await.map_err(at_source)?;
    // The service compares a file that continues in other chunks as a whole.
    compared.map_or(Ok(()), |compared| {
        let compared = compared.end(&(piece.from..piece.to), &piece.source_path);
        compared.map(|_| ())
    })
}

/// Writes a strip while the lease holds, and returns the offset of the next one.
async fn write(
    tools: &Arc<Tools>,
    file: &Arc<Written>,
    at: u64,
    strip: bytes::Bytes,
) -> Result<u64> {
    let (tools, file) = (Arc::clone(tools), Arc::clone(file));
    let written = tokio::task::spawn_blocking(move || {
        tools.leases.check()?;
        let written = file.file().and_then(|file| file.write_all_at(&strip, at));
        written.map_err(|cause| Error::io("write", "a draft", cause).at(Locus::Destination))?;
        Ok(at + strip.len() as u64)
    });
    written.await.map_err(|cause| stopped(cause.to_string()))?
}

fn stopped(cause: String) -> Error {
    Error::new(ErrorKind::Cancelled, "write", "a chunk").cause(cause)
}
