//! Export under way: its allowance, its progress, and the copy that moves it.

mod ends;

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use posthaste_core::contract::{Fault, Input, LeftOut};
use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Result, Unkept};
use posthaste_engine::copy::{
    self, Figures, Links, Notice, Options, Place, Progress, Throttle, Written,
};
use posthaste_journal::{ChunkRecord, RequestRecord, Scan};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, RequestId, SourceId};
use tokio::{
    sync::{Notify, mpsc},
    task::AbortHandle,
};

use super::{
    expected::Wanted,
    goes_out, left_out,
    listed::{Item, Listed},
    locked, onward,
    own::refuse_own,
    pace::{LOOK_EVERY, Pace},
    submit,
    verdict::{Losses, judge},
    verify::{look_for, verify},
    whole_chunks,
};
use crate::{
    credentials::Behalf, depots::Depots, driver::Arrival, inbound::Flow, movers::Movers,
    store::Store,
};

/// Looks without allowance after which a copy ends; it resumes later.
const IDLE_LOOKS: u32 = 15;
/// Rate of a paused copy: practically zero.
const PAUSED: ByteRate = ByteRate::new(1);

/// Allowance to move a chunk's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Granted {
    pub(super) chunk: ChunkIndex,
    pub(super) source: SourceId,
}

#[derive(Debug, Default)]
struct State {
    /// Unused allowances.
    granted: VecDeque<Granted>,
    /// Number of arrived chunks.
    arrived: u32,
    runs: bool,
    /// Rate limit of the copy.
    rate_max: Option<ByteRate>,
    copy: Option<AbortHandle>,
    /// Set once all of it is there, except for omitted files.
    is_complete: bool,
    left_out: LeftOut,
    /// Attributes that could not be kept at the destination.
    unkept: Unkept,
}

/// Export under way.
pub(super) struct Carrier {
    store: Arc<Store>,
    movers: Arc<Movers>,
    depots: Arc<Depots>,
    record: RequestRecord,
    behalf: Behalf,
    bytes: u64,
    chunk_size: Bytes,
    state: Mutex<State>,
    /// Notified of a new allowance.
    more: Notify,
    /// Record of written files, opened by the first copy.
    written: Mutex<Option<Arc<Written>>>,
    /// Held by the running copy.
    turn: tokio::sync::Mutex<()>,
}

impl Carrier {
    /// Resumes an export from its records; none if the request is no export.
    ///
    /// # Errors
    /// The journal's.
    pub(super) fn open(
        store: &Arc<Store>,
        movers: &Arc<Movers>,
        depots: &Arc<Depots>,
        request: RequestId,
    ) -> Result<Option<Self>> {
        let record = store.request(request)?;
        let Some(Scan::Sealed {
            bytes, chunk_size, ..
        }) = record.scan
        else {
            return Ok(None);
        };
        if !goes_out(&record) {
            return Ok(None);
        }
        let known = store.journal(|journal| journal.chunks(request))?;
        let arrived = u32::try_from(known.len()).unwrap_or(u32::MAX);
        Ok(Some(Self {
            store: Arc::clone(store),
            movers: Arc::clone(movers),
            depots: Arc::clone(depots),
            behalf: store.actors.of(&record)?,
            record,
            bytes: bytes.get(),
            chunk_size,
            state: Mutex::new(State {
                arrived,
                ..State::default()
            }),
            more: Notify::new(),
            written: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    pub(super) fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// Returns the fault for the mind to decide by. Depots may deliver later what they don't
    /// deliver now.
    pub(super) fn fault_of(&self, error: &Error) -> Fault {
        let is_of_depots = onward::of(&self.record).is_some();
        if is_of_depots && error.locus() == Locus::Source {
            return Fault::SourceUnreadable;
        }
        super::fault_of(error)
    }

    /// Returns whether the source is removed at the end.
    pub(super) fn releases(&self) -> bool {
        self.record.release
    }

    /// Allows another chunk to move. Returns whether a copy is to begin.
    pub(super) fn grant(&self, chunk: ChunkIndex, source: SourceId) -> bool {
        let mut state = locked(&self.state);
        state.granted.push_back(Granted { chunk, source });
        self.more.notify_one();
        !std::mem::replace(&mut state.runs, true)
    }

    /// Sets the rate limit, which applies from the next look on.
    pub(super) fn limit(&self, rate_max: Option<ByteRate>) {
        locked(&self.state).rate_max = rate_max;
    }

    fn rate_max(&self) -> Option<ByteRate> {
        locked(&self.state).rate_max
    }

    /// Notes the started copy with its handle for stopping it.
    pub(super) fn runs_as(&self, copy: AbortHandle) {
        locked(&self.state).copy = Some(copy);
    }

    /// Takes back all unused allowances.
    pub(super) fn take_back(&self) -> Vec<Granted> {
        let mut state = locked(&self.state);
        state.runs = false;
        state.granted.drain(..).collect()
    }

    /// Stops the copy; a resumed copy finds the sent bytes of unfinished files.
    pub(super) fn stop(&self) {
        let mut state = locked(&self.state);
        if let Some(copy) = state.copy.take() {
            copy.abort();
        }
        state.runs = false;
        state.granted.clear();
    }

    /// Moves data up to the allowance and reports arrivals, until everything arrived or the
    /// allowance is used up.
    ///
    /// # Errors
    /// The reason why the copy ended early.
    pub(super) async fn carry(&self, flow: &Flow, inputs: &mpsc::Sender<Arrival>) -> Result<()> {
        let _turn = self.turn.lock().await;
        if locked(&self.state).is_complete {
            self.tell_rest(inputs).await;
            return Ok(());
        }
        let (throttle, progress) = (Throttle::new(self.rate_max()), Arc::default());
        let copying = self.copy(throttle.clone(), Arc::clone(&progress));
        tokio::pin!(copying);
        let (mut seen, mut idle, mut pace) = (0, 0, Pace::default());
        let mut fetching = Some(flow.begin());
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            let (ended, is_look) = tokio::select! {
                ended = &mut copying => (Some(ended), false),
                () = self.more.notified() => (None, false),
                _ = looks.tick() => (None, true),
            };
            let figures = progress.figures();
            let moved = figures.bytes.saturating_sub(seen);
            flow.add(usize::try_from(moved).unwrap_or(usize::MAX));
            pace.moved += moved;
            seen = figures.bytes;
            if let Some(ended) = ended {
                tracing::Span::current().record("bytes", figures.bytes);
                ended?;
                self.is_there();
                self.tell_rest(inputs).await;
                return Ok(());
            }
            let done = self.done(&figures);
            self.tell_arrived(done, inputs).await;
            if !is_look {
                continue;
            }
            let (has_leave, is_ahead) = self.standing(done.saturating_sub(pace.look()));
            if pace.is_held(throttle.is_in_debt()) {
                flow.hold_back();
            }
            throttle.set(is_ahead.then_some(PAUSED).or_else(|| self.rate_max()));
            if has_leave && !is_ahead && !pace.is_quiet() {
                fetching.get_or_insert_with(|| flow.begin());
            } else {
                fetching = None;
            }
            // A copy that has sent everything is awaited to its end.
            let waits = has_leave || done >= self.bytes;
            idle = if waits { 0 } else { idle + 1 };
            if idle >= IDLE_LOOKS && self.ends_idle() {
                return Ok(());
            }
        }
    }

    /// Reports all allowed chunks as arrived, when everything is there.
    async fn tell_rest(&self, inputs: &mpsc::Sender<Arrival>) {
        while !self.ends_idle() {
            self.tell_arrived(self.bytes, inputs).await;
        }
    }

    /// Returns whether the copy may move more, and whether it exceeds its allowance.
    fn standing(&self, done: u64) -> (bool, bool) {
        let state = locked(&self.state);
        let granted = u64::try_from(state.granted.len()).unwrap_or(u64::MAX);
        let may = (u64::from(state.arrived) + granted).saturating_mul(self.chunk_size.get());
        (granted > 0, done > may)
    }

    /// Ends the copy unless an allowance was given just now.
    fn ends_idle(&self) -> bool {
        let mut state = locked(&self.state);
        state.runs = !state.granted.is_empty();
        !state.runs
    }

    /// Returns the bytes at the destination.
    fn done(&self, figures: &Figures) -> u64 {
        let sent = figures.bytes + figures.resumed_bytes;
        if figures.walked {
            // Bytes excluded from the total were already there.
            return self
                .bytes
                .saturating_sub(figures.total_bytes.saturating_sub(sent));
        }
        sent
    }

    /// Notes that a copy succeeded.
    fn is_there(&self) {
        locked(&self.state).is_complete = true;
    }

    /// Reports arrived chunks.
    async fn tell_arrived(&self, done: u64, inputs: &mpsc::Sender<Arrival>) {
        loop {
            let granted = {
                let mut state = locked(&self.state);
                let is_there = whole_chunks(done, self.chunk_size) > state.arrived;
                if !is_there && done < self.bytes {
                    return;
                }
                let Some(granted) = state.granted.pop_front() else {
                    return;
                };
                state.arrived += 1;
                granted
            };
            let request = self.record.id;
            let Granted { chunk, source } = granted;
            let arrival = Arrival {
                chunk: Some(ChunkRecord {
                    request,
                    chunk,
                    digests: Vec::new(),
                }),
                ..Arrival::bare(Input::ChunkArrived {
                    request,
                    source,
                    chunk,
                })
            };
            let _ = inputs.send(arrival).await;
        }
    }

    /// Checks that everything is at the destination, and copies the rest. Returns the omitted
    /// files, and the attributes that could not be kept.
    ///
    /// # Errors
    /// The reason why it is not there.
    pub(super) async fn complete(&self) -> Result<(LeftOut, Unkept)> {
        let _turn = self.turn.lock().await;
        if !locked(&self.state).is_complete {
            let throttle = Throttle::new(self.rate_max());
            self.copy(throttle, Arc::default()).await?;
            self.is_there();
        }
        if onward::of(&self.record).is_some() {
            self.look_again().await?;
        }
        let expected = self.record.one_file.as_ref();
        let expected = expected.and_then(|one| one.checksum.as_deref());
        if let Some(expected) = expected.map(Wanted::restore).transpose()? {
            let destination = submit::open(&self.record, &self.behalf).await?;
            let compared = expected.compare(destination.as_ref()).await;
            let is_wrong = |error: &Error| error.kind() == ErrorKind::Corrupt;
            if compared.as_ref().err().is_some_and(is_wrong) {
                // Nobody must take it for the complete file.
                destination.remove(b"").await?;
            }
            compared?;
        }
        let state = locked(&self.state);
        Ok((state.left_out.clone(), state.unkept))
    }

    /// Looks for each file from depots once more: they remove theirs next, and nobody else has it.
    ///
    /// # Errors
    /// Errors of [`look_for`].
    async fn look_again(&self) -> Result<()> {
        let destination = submit::open(&self.record, &self.behalf).await?;
        // It may have become another name of the source since it was begun.
        self.refuse_own_source(destination.as_ref()).await?;
        let listed = tokio::task::block_in_place(|| Listed::kept(&self.store, &self.record))?;
        let written = self.written()?;
        let files = listed.in_order().filter_map(|(path, item)| match item {
            Item::File(size) if written.has(path) => Some((path.to_vec(), size)),
            Item::File(_) | Item::Directory | Item::Other => None,
        });
        let files: Vec<(Vec<u8>, u64)> = files.collect();
        look_for(destination.as_ref(), &files).await
    }

    /// Compares the destination with the files that scratch is to release: others may have replaced
    /// it since.
    ///
    /// # Errors
    /// Errors of [`refuse_own`] and [`verify`].
    pub(super) async fn verify(&self) -> Result<()> {
        let destination = submit::open(&self.record, &self.behalf).await?;
        let list = tokio::task::block_in_place(|| self.store.list(self.record.id))?;
        let root = PathBuf::from(OsStr::from_bytes(&self.record.source));
        refuse_own(
            destination.as_ref(),
            &self.record,
            &self.behalf,
            (&root, &list),
        )
        .await?;
        verify(destination.as_ref(), &self.behalf, &root, &list).await
    }

    /// Copies what is missing at the destination.
    async fn copy(&self, throttle: Throttle, progress: Arc<Progress>) -> Result<Figures> {
        let destination = submit::open(&self.record, &self.behalf).await?;
        let listed = tokio::task::block_in_place(|| Listed::kept(&self.store, &self.record))?;
        self.claim(destination.as_ref(), &listed).await?;
        let (source, into) = self.source(&listed).await?;
        let losses: Arc<Mutex<Losses>> = Arc::default();
        let is_of_depots = onward::of(&self.record).is_some();
        let (written, from) = (self.written()?, source.place.clone());
        let one = self.record.one_file.as_ref();
        let options = Options {
            filter: self.filter()?,
            method: self.record.optimizer,
            history: BTreeMap::new(),
            throttle,
            links: Links::Keep,
            rules: submit::rules(&self.record),
            again: one.is_some_and(|one| one.replaces),
            update: false,
            modes: false,
            // Depots remove what has arrived, and its source is gone: nobody could compare later.
            verify: is_of_depots || one.is_some_and(|one| one.verify),
            dry_run: false,
            continues: true,
            has_begun: self.store.makes_directory(self.record.id),
            written: Some(Arc::clone(&written)),
            transfer_max: None,
            duration_max: None,
            help: self.help(destination.as_ref()),
            on_notice: Arc::new({
                let (losses, to) = (Arc::clone(&losses), self.record.destination.clone());
                move |notice| {
                    if let Notice::Failed(error) = notice {
                        locked(&losses).note(error, &to, is_of_depots);
                    } else if let Notice::LeftOut(shown) = notice {
                        locked(&losses).refused(shown);
                    }
                }
            }),
        };
        let location = Location::parse(OsStr::new(&self.record.destination))?;
        let place = if let Location::Local(path) = location {
            self.files_at(path)
        } else {
            Place::remote(destination)
        };
        let to = place.clone();
        let ending = copy::copy(vec![source], place, into, options, progress).await;
        let mut losses = std::mem::take(&mut *locked(&losses));
        let mut unkept = ending.unkept;
        if self.record.release || is_of_depots {
            // No other copy has them then.
            unkept += ending.directories_unkept;
        }
        locked(&self.state).unkept = unkept;
        let figures = judge(ending, &mut losses, &self.record)?;
        if !listed.is_single() && self.record.one_file.is_none() {
            let shown = left_out::Shown {
                source: &|path| from.show(path),
                destination: &|path| to.show(path),
            };
            let found = || left_out::find(&listed, &written, &shown, &losses.reasons);
            let (left_out, places) = tokio::task::block_in_place(found);
            self.leave_out(left_out, &places)?;
        }
        Ok(figures)
    }

    /// Records the omitted files, which stay at the source.
    fn leave_out(&self, left_out: LeftOut, places: &[u64]) -> Result<()> {
        let request = self.record.id;
        for line in &left_out.named {
            tracing::warn!(%request, "left out: {line}");
        }
        locked(&self.state).left_out = left_out;
        if self.record.release && !places.is_empty() {
            let keep = || (self.store).journal(|journal| journal.leave_out(request, places));
            tokio::task::block_in_place(keep)?;
        }
        Ok(())
    }

    /// Returns the files it wrote, also before this service started.
    fn written(&self) -> Result<Arc<Written>> {
        let mut written = locked(&self.written);
        if let Some(written) = &*written {
            return Ok(Arc::clone(written));
        }
        let path = self.store.written_path(self.record.id);
        let opened = tokio::task::block_in_place(|| Written::open(&path))?;
        Ok(Arc::clone(written.insert(Arc::new(opened))))
    }
}
