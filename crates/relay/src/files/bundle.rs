//! Bundles: many small files in one request.

use bytes::Bytes;
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result, Summer, Unkept,
    peer::{
        frame::{FrameKind, HEAD_BYTES, Pieces, head},
        wire::{BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX, Done, Fetched, Outcomes, Refusal, Stored},
    },
    posix::{self, Block, DraftRules, SourceFile},
};
use posthaste_types::Record;

use super::{
    ground::Ground,
    outflow::{Gone, Noted, Outlet},
    space::{Space, size_at},
};

/// Bytes of a record's length.
const LENGTH_BYTES: usize = 4;

/// Sends the files at `paths`.
pub(super) fn fetch(
    ground: &Ground,
    paths: &[posthaste_endpoint::peer::wire::Name],
    outlet: &Outlet,
) -> Result<(), Gone> {
    let mut sending = Sending::new(outlet);
    for path in paths {
        sending.send_file(ground, &path.0)?;
    }
    sending.flush()?;
    outlet.digest(&sending.hasher)
}

/// Files being gathered in blocks.
struct Sending<'a> {
    outlet: &'a Outlet,
    block: Block,
    hasher: blake3::Hasher,
}

impl<'a> Sending<'a> {
    fn new(outlet: &'a Outlet) -> Self {
        let mut sending = Self {
            outlet,
            block: Block::new(),
            hasher: blake3::Hasher::new(),
        };
        sending.begin();
        sending
    }

    /// Leaves room for the frame's head.
    fn begin(&mut self) {
        self.block.bytes().resize(HEAD_BYTES, 0);
    }

    fn room(&mut self) -> usize {
        (Block::BYTES + HEAD_BYTES).saturating_sub(self.block.bytes().len())
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let len = self.block.bytes().len() - HEAD_BYTES;
        if len == 0 {
            return Ok(());
        }
        self.block.bytes()[..HEAD_BYTES].copy_from_slice(&head(FrameKind::Data, len));
        self.hasher.update(&self.block.bytes()[HEAD_BYTES..]);
        let block = std::mem::take(&mut self.block);
        self.begin();
        self.outlet.send(block.freeze())
    }

    fn record(&mut self, record: &Fetched) -> Result<(), Gone> {
        let bytes = record.to_bytes();
        if self.room() < LENGTH_BYTES + bytes.len() {
            self.flush()?;
        }
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let block = self.block.bytes();
        block.extend_from_slice(&len.to_le_bytes());
        block.extend_from_slice(&bytes);
        Ok(())
    }

    fn send_file(&mut self, ground: &Ground, path: &[u8]) -> Result<(), Gone> {
        let opened = ground.target(path).and_then(|place| {
            let source = SourceFile::open(place.path.clone(), ground.may_be_link(path))?;
            if source.entry().size > BUNDLE_BYTES_MAX {
                return Err(Error::new(ErrorKind::Changed, "read", "")
                    .cause("it became too large for this while it was read"));
            }
            Ok((source, place))
        });
        let (source, _place) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let refusal = Refusal::of(&error);
                return self.record(&Fetched::Refused { refusal });
            }
        };
        let entry = source.entry().clone();
        let size = entry.size;
        self.record(&Fetched::Head { entry })?;
        let failed = self.content(&source, size)?;
        let confirmed = failed.map_or_else(|| source.confirm(), Err);
        self.record(&match confirmed {
            Ok(()) => Fetched::Confirmed,
            Err(error) => Fetched::Refused {
                refusal: Refusal::of(&error),
            },
        })
    }

    /// Sends as many bytes as were promised, whatever happens to the file.
    fn content(&mut self, source: &SourceFile, size: u64) -> Result<Option<Error>, Gone> {
        let (mut offset, mut failed) = (0, None);
        while offset < size {
            if self.room() == 0 {
                self.flush()?;
            }
            let rest = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let len = rest.min(self.room());
            let end = self.block.bytes().len() + len;
            if failed.is_none() {
                failed = source.append_to(self.block.bytes(), offset, len).err();
            }
            self.block.bytes().resize(end, 0);
            offset += len as u64;
        }
        Ok(failed)
    }
}

/// Stores the files in `pieces`, which were verified to be what was sent. Blocking.
///
/// # Errors
/// The body does not hold `count` files.
pub(super) fn store(
    ground: &Ground,
    space: &Space,
    count: u32,
    mut pieces: Pieces,
    (rules, noted): (DraftRules, &Noted),
) -> Result<Outcomes<Done>, Refusal> {
    let mut outcomes = Vec::new();
    for _ in 0..count.min(u32::try_from(BUNDLE_FILES_MAX).unwrap_or(u32::MAX)) {
        let (stored, data) = next_file(&mut pieces)
            .ok_or_else(|| Refusal::new(ErrorKind::Invalid, "the bundle is not what it says"))?;
        let outcome = store_one(ground, space, &stored, &data, rules);
        let outcome = outcome.map(|unkept| noted.add(unkept));
        outcomes.push(outcome.map(|()| Done).map_err(|error| Refusal::of(&error)));
    }
    if !pieces.is_empty() {
        return Err(Refusal::new(
            ErrorKind::Invalid,
            "the bundle holds more than it says",
        ));
    }
    Ok(Outcomes(outcomes))
}

fn next_file(pieces: &mut Pieces) -> Option<(Stored, Vec<Bytes>)> {
    let record = pieces.take_record().ok()??;
    let stored = Stored::from_bytes(&record).ok()?;
    let data = pieces.take(usize::try_from(stored.spec.size).ok()?)?;
    Some((stored, data))
}

fn store_one(
    ground: &Ground,
    space: &Space,
    stored: &Stored,
    data: &[Bytes],
    rules: DraftRules,
) -> Result<Unkept> {
    let mut summer = Summer::default();
    data.iter().for_each(|bytes| summer.add(bytes));
    if summer.sum() != stored.sum {
        return Err(Error::new(ErrorKind::Corrupt, "write", "")
            .cause("the bytes have another checksum than they should have")
            .at(Locus::Destination));
    }
    let put = |make| {
        let place = ground.place_to_write(&stored.path.0, make)?;
        let had = size_at(&place.path);
        space.change(had, stored.spec.size)?;
        posix::put(&place, &stored.spec, data, rules).inspect_err(|_| {
            // Space taken a moment ago can be given back.
            let _ = space.change(stored.spec.size, had);
        })
    };
    match put(false) {
        Err(error) if error.kind() == ErrorKind::NotFound => put(true),
        done => done,
    }
}
