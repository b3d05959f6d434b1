//! Sends a range of a file.

use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result,
    peer::{
        frame::{FrameKind, HEAD_BYTES, head},
        wire::{Done, Read, Refusal, Seen},
    },
    posix::{Block, SourceFile},
};

use super::{
    ground::Ground,
    outflow::{Gone, Outlet},
};

/// Sends the file's entry, the range, its digest, and that the file still is what it was.
pub(super) fn read(ground: &Ground, read: &Read, outlet: &Outlet) -> Result<(), Gone> {
    let opened = open(ground, read);
    let answer = opened
        .as_ref()
        .map(|source| source.entry().clone())
        .map_err(Refusal::of);
    outlet.message(&answer)?;
    let Ok(source) = opened else {
        return Ok(());
    };
    let mut hasher = blake3::Hasher::new();
    let mut offset = read.start;
    while offset < read.end {
        let rest = usize::try_from(read.end - offset).unwrap_or(usize::MAX);
        let len = rest.min(Block::BYTES);
        let mut block = Block::new();
        block.bytes().extend_from_slice(&head(FrameKind::Data, len));
        if let Err(error) = source.append_to(block.bytes(), offset, len) {
            return outlet.message(&Err::<Done, _>(Refusal::of(&error)));
        }
        hasher.update(&block.bytes()[HEAD_BYTES..]);
        offset += len as u64;
        outlet.send(block.freeze())?;
    }
    outlet.digest(&hasher)?;
    let confirmed = source.confirm().map(|()| Done);
    outlet.message(&confirmed.map_err(|error| Refusal::of(&error)))
}

fn open(ground: &Ground, read: &Read) -> Result<SourceFile> {
    let place = ground.target(&read.path.0)?;
    let source = SourceFile::open(place.path.clone(), ground.may_be_link(&read.path.0))?;
    let now = Seen {
        size: source.entry().size,
        mtime: source.entry().mtime,
    };
    if read.seen.is_some_and(|seen| seen != now) {
        return Err(Error::new(ErrorKind::Changed, "copy", "")
            .cause("it changed while it was read")
            .hint("copy it again when nothing writes to it")
            .at(Locus::Source));
    }
    if read.start > read.end || read.end > now.size {
        return Err(
            Error::new(ErrorKind::Invalid, "read", "").cause("the range is not in the file")
        );
    }
    Ok(source)
}
