//! A stream that can be read once: standard input, a named pipe.
//!
//! The stream is cut into segments. Each stays in memory until the destination holds it so that a
//! crash there can't lose it. If the destination fails for good, the segments in memory and the
//! rest of the stream go to a parking place, if there is one ([`crate::parked`]).

mod flight;
mod loss;
mod spout;

use std::sync::Arc;

use bytes::Bytes;
use posthaste_endpoint::{
    Checksum, Endpoint, Error, ErrorKind, FileSpec, Kind, Locus, Result, Writer,
};
use tokio::{sync::OwnedSemaphorePermit, task::JoinSet};

use super::{
    Ending, Notice, Options, Place, Progress,
    cargo::Cargo,
    lane::{Shared, seen},
    progress::Moving,
    remote::check_copy,
    retry::{reached, retried},
};
use flight::{Landed, Segment, fly, next_segment, park};

use crate::parked::{Lot, ParkId, Record, Runs};

pub use spout::Spout;

/// Bytes of a segment on its way to a parking place.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Parking place of a stream, with its record.
pub struct Parking {
    /// Folder with the rights to write, list and remove.
    pub place: Arc<dyn Endpoint>,
    /// Destination of the stream, as it was written, absolute.
    pub destination: String,
    /// Profile that the user asked for.
    pub profile: Option<String>,
    /// Start of the stream, RFC 3339.
    pub began: String,
}

/// End of a stream.
pub struct Poured {
    /// Ending, like that of any copy.
    pub ending: Ending,
    /// Record of the parked stream, with the place for people, if it was parked.
    pub parked: Option<(Record, String)>,
}

/// Copies a stream to `destination`, whose root is the file itself. If the destination can't be
/// opened, the stream is parked as after a later failure. If parking fails too, the bytes read are
/// lost and the ending says so.
///
/// # Errors
/// The destination could not be opened and there is no parking place either, or nothing can ever be
/// written there.
pub async fn pour(
    spout: Spout,
    destination: Result<Place>,
    parking: Option<Parking>,
    options: Options,
    progress: Arc<Progress>,
) -> Result<Poured> {
    if let Ok(place) = &destination {
        place.endpoint.check_writes()?;
    }
    let (place, closed) = match (destination, &parking) {
        (Ok(place), _) => (place, None),
        (Err(error), Some(parking)) => (Place::remote(Arc::clone(&parking.place)), Some(error)),
        (Err(error), None) => return Err(error),
    };
    let shared = Arc::new(Shared::new(place, options, progress));
    let poured = match Pouring::begin(&shared, spout, closed, parking).await {
        Ok(mut pouring) => match pouring.run().await {
            Ok(()) => Ok(pouring.parked()),
            Err(error) => Err(pouring.lost(error).await),
        },
        Err(error) => Err(error),
    };
    let parked = poured.unwrap_or_else(|error| {
        shared.stop(error);
        None
    });
    Ok(Poured {
        ending: shared.ending(),
        parked,
    })
}

/// Target of the segments.
enum Target {
    /// To a file of unknown length.
    File(Arc<dyn Writer>),
    /// Nothing was started yet.
    Unbegun,
    /// To the parking place.
    Parking,
}

struct Pouring {
    shared: Arc<Shared>,
    spout: Spout,
    moving: Arc<Moving>,
    id: ParkId,
    target: Target,
    lot: Option<Arc<Lot>>,
    record: Option<Record>,
    /// Ranges that the destination holds for good.
    confirmed: Runs,
    parked: Runs,
    flying: JoinSet<Landed>,
    /// Segments that the destination refused.
    unplaced: Vec<Segment>,
    next_index: u64,
    next_start: u64,
    in_order: bool,
}

impl Pouring {
    async fn begin(
        shared: &Arc<Shared>,
        spout: Spout,
        closed: Option<Error>,
        parking: Option<Parking>,
    ) -> Result<Self> {
        let destination = &shared.destination.endpoint;
        let can = destination.capabilities();
        if closed.is_none() && !can.open_ended {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "write a stream to",
                destination.show(b""),
            )
            .cause(format!(
                "{} needs to know a file's length before it begins",
                can.scheme
            ))
            .hint("write it to a file first"));
        }
        let id = ParkId::random()?;
        let shown = match &parking {
            Some(parking) if closed.is_some() => parking.destination.clone(),
            Some(_) | None => destination.show(b""),
        };
        let mut pouring = Self {
            moving: Arc::new(shared.progress.start(shown, 0)),
            shared: Arc::clone(shared),
            spout,
            target: Target::Unbegun,
            lot: None,
            record: None,
            confirmed: Runs::default(),
            parked: Runs::default(),
            flying: JoinSet::new(),
            unplaced: Vec::new(),
            next_index: 0,
            next_start: 0,
            in_order: !can.segments_in_any_order,
            id,
        };
        shared.progress.found_file(0);
        if let Some(parking) = parking {
            pouring.prepare(parking).await?;
        }
        match closed {
            Some(error) => pouring.turn(error).await?,
            None => {
                if let Err(error) = pouring.look().await {
                    if is_misuse(&error) {
                        pouring.clear().await;
                        return Err(error);
                    }
                    pouring.turn(error).await?;
                }
            }
        }
        Ok(pouring)
    }

    /// Writes the first record, so that whatever happens from here on is found again.
    async fn prepare(&mut self, parking: Parking) -> Result<()> {
        let lot = Lot::new(parking.place, self.id.clone());
        let record = Record {
            id: self.id.clone(),
            destination: parking.destination,
            profile: parking.profile,
            began: parking.began,
            why: None,
            whole: None,
            confirmed: Runs::default(),
        };
        lot.open(&record).await?;
        self.lot = Some(Arc::new(lot));
        self.record = Some(record);
        Ok(())
    }

    /// Checks whether the destination can become a file.
    async fn look(&self) -> Result<()> {
        let destination = &self.shared.destination.endpoint;
        let there = reached(&self.shared, || destination.stat(b"", true)).await;
        let there = seen(&**destination, there)?;
        if there.is_some_and(|there| there.kind == Kind::Directory) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "write a stream to",
                destination.show(b""),
            )
            .cause("it is a directory")
            .hint("give the file a name")
            .at(Locus::Destination));
        }
        retried(&self.shared, || destination.make_parents()).await
    }

    fn spec(&self, size: u64) -> FileSpec {
        FileSpec {
            size,
            mtime: None,
            mode: None,
            origin: self.id.origin().into(),
            version: None,
        }
    }

    fn is_parking(&self) -> bool {
        matches!(self.target, Target::Parking)
    }

    async fn run(&mut self) -> Result<()> {
        if !self.is_parking() && self.start().await? {
            return self.end().await;
        }
        loop {
            let len = self.next_len();
            let has_room = !self.in_order || self.flying.is_empty();
            tokio::select! {
                biased;
                Some(landed) = self.flying.join_next() => self.on_landed(landed).await?,
                more = next_segment(&self.shared, &mut self.spout, len), if has_room && !self.spout.is_dry() => {
                    let (data, memory) = more?;
                    self.launch_next(data, memory);
                }
                else => break,
            }
        }
        self.end().await
    }

    /// Begins the file. Returns whether that was all: a short stream goes in one piece.
    async fn start(&mut self) -> Result<bool> {
        let destination = Arc::clone(&self.shared.destination.endpoint);
        let small = destination.capabilities().segment_size_min;
        self.spout.gather(small + 1).await?;
        if self.spout.gathered() <= small {
            let data = self.spout.take(small);
            self.put(&*destination, data).await?;
            return Ok(true);
        }
        let spec = self.spec(0);
        let begun = retried(&self.shared, || destination.create_open_ended(b"", &spec)).await;
        match begun {
            Ok(writer) => self.target = Target::File(writer),
            Err(error) => self.turn(error.at(Locus::Destination)).await?,
        }
        Ok(false)
    }

    async fn put(&mut self, destination: &dyn Endpoint, data: Vec<Bytes>) -> Result<()> {
        let (size, sum) = (self.spout.read_so_far(), self.spout.sum());
        let spec = self.spec(size);
        self.shared.progress.grew(size);
        let stored = retried(&self.shared, || {
            let cargo = Cargo::of(&self.moving, size);
            let (spec, data) = (&spec, data.clone());
            async move {
                let putting = destination.put(b"", spec, data, sum);
                cargo.carry_all(putting).await
            }
        });
        match stored.await {
            Ok(()) => {
                self.confirmed.add(0..size, sum);
            }
            Err(error) => {
                self.unplaced.push(Segment {
                    index: 0,
                    start: 0,
                    data,
                    _memory: None,
                });
                self.turn(error.at(Locus::Destination)).await?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of the next segment, if the stream has as many.
    fn next_len(&self) -> u64 {
        match &self.target {
            Target::File(writer) => writer.segment_start(self.next_index + 1) - self.next_start,
            Target::Unbegun | Target::Parking => SEGMENT_BYTES,
        }
    }

    fn launch_next(&mut self, data: Vec<Bytes>, memory: Option<OwnedSemaphorePermit>) {
        let segment = Segment {
            index: self.next_index,
            start: self.next_start,
            data,
            _memory: memory,
        };
        if segment.data.is_empty() {
            return;
        }
        self.next_index += 1;
        self.next_start = segment.range().end;
        self.shared.progress.grew(self.next_start - segment.start);
        self.launch(segment);
    }

    fn launch(&mut self, segment: Segment) {
        let (shared, moving, lot) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.moving),
            self.lot.clone(),
        );
        match &self.target {
            Target::File(writer) => {
                let writer = Arc::clone(writer);
                self.flying.spawn(async move {
                    let outcome = fly(&shared, &moving, &*writer, lot.as_deref(), &segment).await;
                    Landed {
                        segment,
                        to_parking: false,
                        outcome: outcome.map_err(|error| error.at(Locus::Destination)),
                    }
                });
            }
            Target::Unbegun | Target::Parking => {
                self.flying.spawn(async move {
                    let outcome = park(&shared, &moving, lot.as_deref(), &segment).await;
                    Landed {
                        segment,
                        to_parking: true,
                        outcome,
                    }
                });
            }
        }
    }

    async fn on_landed(&mut self, landed: Result<Landed, tokio::task::JoinError>) -> Result<()> {
        let failure = self.note(landed)?;
        match failure {
            Some(error) => self.turn(error).await,
            None => Ok(()),
        }
    }

    /// Notes where a segment was written; returns why the destination refused it.
    fn note(&mut self, landed: Result<Landed, tokio::task::JoinError>) -> Result<Option<Error>> {
        let landed = landed.map_err(|cause| {
            Error::new(ErrorKind::Other, "run", "a segment's lane").cause(cause)
        })?;
        let range = landed.segment.range();
        match landed.outcome {
            Ok(sum) if landed.to_parking => {
                self.parked.add(range, sum);
                Ok(None)
            }
            Ok(sum) => {
                self.confirmed.add(range, sum);
                Ok(None)
            }
            Err(error) if landed.to_parking => Err(error),
            Err(error) => {
                self.unplaced.push(landed.segment);
                Ok(Some(error))
            }
        }
    }

    /// Turns to the parking place for everything from here on: the destination failed for good.
    async fn turn(&mut self, error: Error) -> Result<()> {
        let Some(lot) = self.lot.clone() else {
            return Err(error);
        };
        let note = match &self.target {
            Target::File(writer) => writer.note(),
            Target::Unbegun | Target::Parking => None,
        };
        self.target = Target::Parking;
        let mut why = error;
        (self.shared.options.on_notice)(&Notice::Parking(&why, &lot.show()));
        while let Some(landed) = self.flying.join_next().await {
            if let Some(error) = self.note(landed)? {
                why = error;
            }
        }
        if let Some(record) = &mut self.record {
            record.why = Some(why.to_string());
            record.confirmed.clone_from(&self.confirmed);
            lot.keep_record(record).await?;
        }
        if let Some(note) = note {
            lot.keep_note(note).await?;
        }
        self.unplaced.sort_by_key(|segment| segment.start);
        for segment in std::mem::take(&mut self.unplaced) {
            self.next_start = self.next_start.max(segment.range().end);
            self.launch(segment);
        }
        Ok(())
    }

    /// Ends the stream when nothing is under way.
    async fn end(&mut self) -> Result<()> {
        while let Some(landed) = self.flying.join_next().await {
            self.on_landed(landed).await?;
        }
        let (size, sum) = (self.spout.read_so_far(), self.spout.sum());
        if let Target::File(writer) = &self.target {
            let writer = Arc::clone(writer);
            if self.confirmed.whole(size) != Some(sum) {
                return Err(Error::new(ErrorKind::Corrupt, "copy", self.moving.name())
                    .cause("what arrived is not what was read"));
            }
            let finished = retried(&self.shared, || writer.finish_at(size, sum)).await;
            if let Err(error) = finished {
                self.turn(error.at(Locus::Destination)).await?;
            }
        }
        if self.is_parking() {
            return self.close(size, sum).await;
        }
        check_copy(&self.shared, b"", (size, sum), None).await?;
        self.moving.arrived();
        (self.shared.options.on_notice)(&Notice::Copied(self.moving.name()));
        self.clear().await;
        Ok(())
    }

    /// Records that everything missing at the destination is parked.
    async fn close(&mut self, size: u64, sum: Checksum) -> Result<()> {
        while let Some(landed) = self.flying.join_next().await {
            self.note(landed)?;
        }
        if let (Some(record), Some(lot)) = (&mut self.record, &self.lot) {
            record.whole = Some((size, sum));
            record.confirmed.clone_from(&self.confirmed);
            lot.keep_record(record).await?;
        }
        Ok(())
    }

    /// Removes what was kept in case of need.
    async fn clear(&self) {
        if let Some(lot) = &self.lot
            && let Err(error) = lot.clear().await
        {
            (self.shared.options.on_notice)(&Notice::Failed(&error));
        }
    }

    /// Returns the record and the place, if the stream was parked.
    fn parked(&self) -> Option<(Record, String)> {
        let lot = self.lot.as_ref().filter(|_| self.is_parking())?;
        Some((self.record.clone()?, lot.show()))
    }
}

/// Returns whether only the command was wrong: an error serves better than parking.
fn is_misuse(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Conflict | ErrorKind::Invalid | ErrorKind::Unsupported
    )
}
