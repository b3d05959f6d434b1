//! Where at least one end is remote: streams, one small file or one segment at a time in each lane.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt;
use posthaste_endpoint::{
    ByteStream, Checksum, Entry, Error, ErrorKind, FileSpec, Kind, Locus, Reader, Result, Whole,
    Writer,
};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, mpsc},
    task::JoinSet,
    time::sleep,
};

use super::{
    Links, Notice,
    lane::{Shared, spec_of},
    progress::Moving,
    walk::{There, Work},
};

/// How often one request is made before its file is given up.
const ATTEMPTS_MAX: u32 = 5;

/// The first pause before trying again; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(200);

/// The longest pause before trying again.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Takes files until the queue ends.
pub(super) async fn run(shared: &Arc<Shared>, works: &Mutex<mpsc::Receiver<Vec<Work>>>) {
    loop {
        let next = works.lock().await.recv().await;
        let Some(batch) = next else {
            return;
        };
        for work in batch {
            // A stopped copy still empties the queue, so that the walker is never stuck.
            if shared.may_start()
                && let Err(error) = copy_one(shared, &work).await
            {
                shared.failed(error);
            }
        }
    }
}

async fn copy_one(shared: &Arc<Shared>, work: &Work) -> Result<()> {
    let destination = &shared.destination.endpoint;
    let shown = destination.show(&work.to);
    if work.entry.kind == Kind::Link {
        return copy_link(shared, work, &shown).await;
    }
    let Some(entry) = needs_copy(shared, work, &shown).await? else {
        return Ok(());
    };
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(&shown));
        return Ok(());
    }
    let moving = Arc::new(shared.progress.start(shown.clone(), entry.size));
    if entry.size > destination.capabilities().segment_size_min {
        copy_large(shared, work, &entry, &moving).await?;
    } else {
        let _memory = borrow_memory(shared, entry.size).await;
        retried(shared, || copy_small(shared, work, &entry, &moving)).await?;
    }
    moving.arrived();
    (shared.options.on_notice)(&Notice::Copied(&shown));
    Ok(())
}

/// The source entry, or `None` when the destination holds the file already.
async fn needs_copy(shared: &Arc<Shared>, work: &Work, shown: &str) -> Result<Option<Entry>> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    let there = match &work.there {
        There::Nothing => None,
        There::Found(entry) => Some(entry.clone()),
        There::Ask => retried(shared, || destination.stat(&work.to, false))
            .await
            .map_err(|error| error.at(Locus::Destination))?,
    };
    let Some(mut there) = there else {
        return Ok(Some(work.entry.clone()));
    };
    if there.kind == Kind::Directory && destination.capabilities().directory_attributes {
        return Err(Error::new(ErrorKind::Conflict, "write", shown)
            .cause("a directory has that name")
            .at(Locus::Destination));
    }
    let mut entry = work.entry.clone();
    if entry.size == there.size && there.kind == Kind::File {
        if there.mtime.is_none() {
            let asked = retried(shared, || destination.stat(&work.to, false)).await?;
            there = asked.unwrap_or(there);
        }
        if entry.mtime.is_none() {
            let asked = retried(shared, || source.stat(&work.from, false)).await?;
            entry = asked.unwrap_or(entry);
        }
    }
    if shared.is_unchanged(work, &entry, &there) {
        shared.progress.was_unchanged(work.entry.size);
        (shared.options.on_notice)(&Notice::Unchanged(shown));
        return Ok(None);
    }
    Ok(Some(entry))
}

async fn copy_link(shared: &Arc<Shared>, work: &Work, shown: &str) -> Result<()> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    match shared.options.links {
        Links::Skip => {
            (shared.options.on_notice)(&Notice::LeftOut(&source.show(&work.from)));
            return Ok(());
        }
        Links::Follow => {
            return Err(
                Error::new(ErrorKind::NotFound, "follow", source.show(&work.from))
                    .cause("the link points nowhere")
                    .at(Locus::Source),
            );
        }
        Links::Keep => {}
    }
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(shown));
        return Ok(());
    }
    let target = retried(shared, || source.read_link(&work.from)).await?;
    let is_link = match &work.there {
        There::Nothing => false,
        There::Found(entry) => entry.kind == Kind::Link,
        There::Ask => destination
            .stat(&work.to, false)
            .await?
            .is_some_and(|there| there.kind == Kind::Link),
    };
    if is_link
        && destination
            .read_link(&work.to)
            .await
            .is_ok_and(|there| there == target)
    {
        (shared.options.on_notice)(&Notice::Unchanged(shown));
        return Ok(());
    }
    let spec = spec_of(work, &work.entry);
    retried(shared, || destination.make_link(&work.to, &target, &spec))
        .await
        .map_err(|error| error.at(Locus::Destination))?;
    shared.progress.made_link();
    Ok(())
}

async fn copy_small(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Moving,
) -> Result<()> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    let Whole {
        entry,
        data,
        checksum,
    } = source.get(&work.from, entry).await?;
    pause(shared, entry.size).await;
    let spec = spec_of(work, &entry);
    destination
        .put(&work.to, &spec, data, checksum)
        .await
        .map_err(|error| error.at(Locus::Destination))?;
    moving.sent(entry.size);
    Ok(())
}

async fn copy_large(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Arc<Moving>,
) -> Result<()> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    let reader = retried(shared, || source.open(&work.from, entry)).await?;
    let spec = spec_of(work, reader.entry());
    let writer = retried(shared, || destination.create(&work.to, &spec))
        .await
        .map_err(|error| error.at(Locus::Destination))?;
    let copied = copy_segments(shared, &spec, &reader, &writer, moving).await;
    let whole = match copied {
        Ok(whole) => confirm(&reader, whole, &spec).await.map(|()| whole),
        Err(error) => Err(error),
    };
    match whole {
        Ok(whole) => retried(shared, || writer.finish(whole)).await,
        Err(error) => {
            if matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt) {
                writer.discard().await;
            }
            Err(error)
        }
    }
}

/// Compares what arrived with what the source still is and says it is.
async fn confirm(reader: &Arc<dyn Reader>, whole: Checksum, spec: &FileSpec) -> Result<()> {
    reader.confirm().await?;
    match reader.checksum() {
        Some(wanted) if wanted != whole => {
            Err(Error::new(ErrorKind::Corrupt, "copy", &*spec.origin)
                .cause("what was read has not the checksum the store keeps for it")
                .hint("copy it again; if it stays, the stored object is damaged")
                .with("wanted", wanted)
                .with("found", whole)
                .at(Locus::Source))
        }
        Some(_) | None => Ok(()),
    }
}

async fn copy_segments(
    shared: &Arc<Shared>,
    spec: &FileSpec,
    reader: &Arc<dyn Reader>,
    writer: &Arc<dyn Writer>,
    moving: &Arc<Moving>,
) -> Result<Checksum> {
    let segment_size = writer.segment_size();
    let count = spec.size.div_ceil(segment_size);
    let range = |index: u64| {
        let start = index * segment_size;
        start..(start + segment_size).min(spec.size)
    };
    let mut sums: BTreeMap<u64, Checksum> = writer.kept().into_iter().collect();
    for &index in sums.keys() {
        let range = range(index);
        moving.resumed(range.end - range.start);
    }
    let missing: Vec<u64> = (0..count)
        .filter(|index| !sums.contains_key(index))
        .collect();
    let mut flying = JoinSet::new();
    for index in missing {
        // Whoever ends early shows its error before the next segment starts.
        while let Some(ended) = flying.try_join_next() {
            note(&mut sums, ended)?;
        }
        if shared.is_stopped() {
            return Err(Error::new(ErrorKind::Cancelled, "copy", &*spec.origin));
        }
        let range = range(index);
        let memory = borrow_memory(shared, range.end - range.start).await;
        let slot = Arc::clone(&shared.segments).acquire_owned().await;
        let flight = Flight {
            shared: Arc::clone(shared),
            reader: Arc::clone(reader),
            writer: Arc::clone(writer),
            moving: Arc::clone(moving),
            _memory: memory,
            _slot: slot.ok(),
        };
        flying.spawn(async move { flight.fly(index, range).await });
    }
    while let Some(ended) = flying.join_next().await {
        note(&mut sums, ended)?;
    }
    Ok(sums.iter().fold(Checksum::EMPTY, |whole, (&index, &sum)| {
        let range = range(index);
        whole.then(sum, range.end - range.start)
    }))
}

fn note(
    sums: &mut BTreeMap<u64, Checksum>,
    ended: Result<Result<(u64, Checksum)>, tokio::task::JoinError>,
) -> Result<()> {
    let (index, sum) = ended.unwrap_or_else(|cause| {
        Err(Error::new(ErrorKind::Other, "run", "a segment's lane").cause(cause))
    })?;
    sums.insert(index, sum);
    Ok(())
}

/// One segment on its way.
struct Flight {
    shared: Arc<Shared>,
    reader: Arc<dyn Reader>,
    writer: Arc<dyn Writer>,
    moving: Arc<Moving>,
    _memory: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Flight {
    async fn fly(&self, index: u64, range: Range<u64>) -> Result<(u64, Checksum)> {
        let sum = retried(&self.shared, || self.attempt(index, range.clone())).await?;
        Ok((index, sum))
    }

    async fn attempt(&self, index: u64, range: Range<u64>) -> Result<Checksum> {
        let body = self.reader.read(range.clone()).await?;
        let meter = Arc::new(Meter {
            moving: Arc::clone(&self.moving),
            sent: 0.into(),
        });
        let body = metered(body, Arc::clone(&self.shared), Arc::clone(&meter));
        let sum = self.writer.write(index, range, body).await;
        if sum.is_err() {
            meter.take_back();
        }
        sum
    }
}

/// Counts the bytes of one attempt, so that a failed one is not counted.
struct Meter {
    moving: Arc<Moving>,
    sent: std::sync::atomic::AtomicU64,
}

impl Meter {
    fn sent(&self, bytes: u64) {
        self.sent
            .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        self.moving.sent(bytes);
    }

    fn take_back(&self) {
        self.moving
            .lost(self.sent.swap(0, std::sync::atomic::Ordering::Relaxed));
    }
}

fn metered(body: ByteStream, shared: Arc<Shared>, meter: Arc<Meter>) -> ByteStream {
    Box::pin(body.then(move |bytes| {
        let (shared, meter) = (Arc::clone(&shared), Arc::clone(&meter));
        async move {
            let bytes = bytes?;
            if shared.is_stopped() {
                return Err(Error::new(
                    ErrorKind::Cancelled,
                    "copy",
                    meter.moving.name(),
                ));
            }
            pause(&shared, bytes.len() as u64).await;
            meter.sent(bytes.len() as u64);
            Ok(bytes)
        }
    }))
}

async fn pause(shared: &Shared, bytes: u64) {
    let wait = shared.throttle.wait_for(bytes);
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

/// Takes memory for `bytes` out of the copy's budget; more than the whole budget counts as it.
async fn borrow_memory(shared: &Shared, bytes: u64) -> Option<OwnedSemaphorePermit> {
    let mebi = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX);
    let permits = mebi.clamp(1, super::lane::BUFFERED_MIB_MAX);
    Arc::clone(&shared.buffers)
        .acquire_many_owned(permits)
        .await
        .ok()
}

/// Makes a request again while its failure is temporary, with growing random pauses.
async fn retried<T, F: Future<Output = Result<T>>>(
    shared: &Shared,
    mut request: impl FnMut() -> F,
) -> Result<T> {
    let mut longest = PAUSE_FIRST;
    for _ in 1..ATTEMPTS_MAX {
        match request().await {
            Err(error) if error.is_temporary() && !shared.is_stopped() => {}
            done => return done,
        }
        let random = RandomState::new().hash_one(()) % 1000;
        sleep(longest / 2 + longest * u32::try_from(random).unwrap_or(0) / 2000).await;
        longest = (longest * 2).min(PAUSE_MAX);
    }
    request().await
}
