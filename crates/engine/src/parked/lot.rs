//! Stream at a parking place: its record, its writer's note and its pieces, all in one folder and
//! distinguished by their names. Each is stored whole or not at all.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, Error, ErrorKind, FileSpec, Kind, Locus, Result, Summer,
    is_unfinished,
};

use super::{ParkId, Piece, Record};
use crate::copy::persisted;

/// Largest piece, in bytes. The place's limit for one request bounds it too.
const PIECE_BYTES_MAX: u64 = 16 << 20;

/// Maximum of names read in one parking place: 16 TiB of parked data in the largest pieces.
const NAMES_MAX: usize = 1_000_000;

/// Maximum of bytes of a record, which bounds the cost of reading it.
const RECORD_BYTES_MAX: u64 = 4 << 20;

/// Share of one stream in a parking place.
pub(crate) struct Lot {
    place: Arc<dyn Endpoint>,
    id: ParkId,
}

/// Content of one stream at a parking place.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Pieces in the order of the stream, without overlaps.
    pub(super) pieces: Vec<Piece>,
    /// Names of all files, the record's last.
    names: Vec<Vec<u8>>,
}

/// Fails unless `place` can hold parked streams.
fn check(place: &dyn Endpoint) -> Result<()> {
    let can = place.capabilities();
    if can.writes && can.lists && can.removes {
        return Ok(());
    }
    Err(
        Error::new(ErrorKind::Unsupported, "park at", place.show(b""))
            .cause("it can't write, list and remove")
            .hint("park at a local directory, a relay, an S3 bucket or an SFTP server"),
    )
}

/// Returns the ids of the streams that have a record at `place`, in order.
///
/// # Errors
/// Errors of the place.
pub(super) async fn ids(place: &dyn Endpoint) -> Result<Vec<ParkId>> {
    let entries = names(place).await?;
    let mut ids: Vec<ParkId> = entries
        .iter()
        .filter_map(|entry| ParkId::of_record(&entry.name))
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

async fn names(place: &dyn Endpoint) -> Result<Vec<Entry>> {
    let listing = persisted(|| place.list(b"", true)).await;
    let mut listing = match listing {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing?,
    };
    let mut found = Vec::new();
    loop {
        // Tried again by itself: a page that was read is not read twice.
        let page = match listing.next_page().await {
            Err(error) if error.kind() == ErrorKind::NotFound && found.is_empty() => Vec::new(),
            Err(error) if error.is_temporary() => listing.next_page().await?,
            page => page?,
        };
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page.into_iter().filter(|entry| entry.kind == Kind::File));
        if found.len() > NAMES_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                "look for parked streams in",
                place.show(b""),
            )
            .cause(format!("more than {NAMES_MAX} files lie there"))
            .hint("park in a folder of its own"));
        }
    }
}

impl Lot {
    pub(crate) fn new(place: Arc<dyn Endpoint>, id: ParkId) -> Self {
        Self { place, id }
    }

    /// Makes the place, if it is a directory, and writes the first record. So an unsuitable place
    /// is known before a byte is read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`]; errors of the place.
    pub(crate) async fn open(&self, record: &Record) -> Result<()> {
        check(&*self.place)?;
        persisted(|| self.place.make_parents()).await?;
        persisted(|| self.place.make_directory(b"")).await?;
        self.keep_record(record).await
    }

    /// Returns the place for people.
    pub(crate) fn show(&self) -> String {
        self.place.show(b"")
    }

    fn spec(&self, size: u64) -> FileSpec {
        FileSpec {
            size,
            mtime: None,
            mode: Some(0o600),
            origin: self.id.origin().into(),
            version: None,
        }
    }

    async fn put(&self, name: &str, data: Vec<Bytes>, sum: Checksum) -> Result<()> {
        let size = data.iter().map(|bytes| bytes.len() as u64).sum();
        let spec = self.spec(size);
        let stored = persisted(|| self.place.put(name.as_bytes(), &spec, data.clone(), sum));
        stored.await
    }

    async fn keep_text(&self, name: &str, text: Vec<u8>) -> Result<()> {
        let sum = Checksum::of(&text);
        self.put(name, vec![text.into()], sum).await
    }

    /// Writes the record in place of the existing one.
    pub(crate) async fn keep_record(&self, record: &Record) -> Result<()> {
        self.keep_text(&self.id.record_name(), record.to_json())
            .await
    }

    /// Keeps what another machine must know to go on with the unfinished copy. A note longer than a
    /// piece is left out: then only this machine can go on.
    pub(crate) async fn keep_note(&self, note: String) -> Result<()> {
        if note.len() as u64 > self.piece_bytes() {
            return Ok(());
        }
        self.keep_text(&self.id.note_name(), note.into_bytes())
            .await
    }

    fn piece_bytes(&self) -> u64 {
        self.place
            .capabilities()
            .segment_size_min
            .clamp(1, PIECE_BYTES_MAX)
    }

    /// Keeps the bytes of the stream that start at `start`, in as many pieces as needed; returns
    /// their checksum.
    pub(crate) async fn keep(&self, start: u64, data: &[Bytes]) -> Result<Checksum> {
        let (mut at, mut whole) = (start, Checksum::EMPTY);
        for data in cut(data, self.piece_bytes()) {
            let mut summer = Summer::default();
            data.iter().for_each(|bytes| summer.add(bytes));
            let piece = Piece {
                start: at,
                len: data.iter().map(|bytes| bytes.len() as u64).sum(),
                sum: summer.sum(),
            };
            self.put(&self.id.piece_name(&piece), data, piece.sum)
                .await?;
            whole = whole.then(piece.sum, piece.len);
            at += piece.len;
        }
        Ok(whole)
    }

    async fn read(&self, name: &str, bytes_max: u64) -> Result<Option<(Vec<Bytes>, Checksum)>> {
        let Some(entry) = persisted(|| self.place.stat(name.as_bytes(), false)).await? else {
            return Ok(None);
        };
        if entry.size > bytes_max {
            return Err(self.damaged(name, "it is longer than it was written"));
        }
        let whole = persisted(|| self.place.get(name.as_bytes(), &entry)).await?;
        Ok(Some((whole.data, whole.checksum)))
    }

    fn damaged(&self, name: &str, why: &str) -> Error {
        Error::new(ErrorKind::Corrupt, "read", self.place.show(name.as_bytes()))
            .cause(why.to_owned())
            .at(Locus::Source)
    }

    /// Returns the record.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without a record, [`ErrorKind::Corrupt`] for one that can't be read.
    pub(super) async fn record(&self) -> Result<Record> {
        let name = self.id.record_name();
        let Some((data, _)) = self.read(&name, RECORD_BYTES_MAX).await? else {
            return Err(Error::new(
                ErrorKind::NotFound,
                "find",
                format!("the parked stream {}", self.id),
            )
            .cause(format!("nothing of it is at {}", self.show()))
            .hint("`posthaste parked list` shows those there are"));
        };
        Record::from_json(&self.id, &data.concat()).map_err(|why| self.damaged(&name, &why))
    }

    /// Returns the writer's note, if there is one.
    pub(super) async fn note(&self) -> Result<Option<String>> {
        let found = self.read(&self.id.note_name(), PIECE_BYTES_MAX).await?;
        Ok(found.map(|(data, _)| String::from_utf8_lossy(&data.concat()).into_owned()))
    }

    /// Returns what there is of the stream.
    pub(super) async fn content(&self) -> Result<Content> {
        let mut content = Content::default();
        for entry in names(&*self.place).await? {
            if !self.id.owns(&entry.name) {
                continue;
            }
            let piece = self
                .id
                .piece(&entry.name)
                .filter(|piece| piece.len == entry.size);
            content
                .pieces
                .extend(piece.filter(|_| !is_unfinished(&entry.name)));
            content.names.push(entry.name);
        }
        content.pieces.sort_by_key(|piece| (piece.start, piece.len));
        let mut end = 0;
        content.pieces.retain(|piece| {
            let is_next = piece.start >= end;
            end = if is_next { piece.range().end } else { end };
            is_next
        });
        let record = self.id.record_name();
        content.names.sort_by_key(|name| name == record.as_bytes());
        Ok(content)
    }

    /// Returns the bytes of a piece, compared with the checksum in its name.
    pub(super) async fn fetch(&self, piece: &Piece) -> Result<Vec<Bytes>> {
        let name = self.id.piece_name(piece);
        match self.read(&name, piece.len).await? {
            Some((data, sum)) if sum == piece.sum => Ok(data),
            Some(_) => Err(self.damaged(&name, "its bytes are not those that were parked")),
            None => Err(Error::new(
                ErrorKind::NotFound,
                "read",
                self.place.show(name.as_bytes()),
            )
            .cause("this piece is gone")
            .at(Locus::Source)),
        }
    }

    /// Removes everything of the stream, half-written pieces too, and the record last, so that an
    /// interrupted removal is found again. Returns the number of files removed.
    pub(crate) async fn clear(&self) -> Result<usize> {
        let content = self.content().await?;
        for name in &content.names {
            persisted(|| self.place.remove(name)).await?;
        }
        Ok(content.names.len())
    }
}

/// Cuts `data` into rows of `most` bytes each but the last, without copying any.
fn cut(data: &[Bytes], most: u64) -> Vec<Vec<Bytes>> {
    let (mut rows, mut row, mut room) = (Vec::new(), Vec::new(), most);
    for bytes in data {
        let mut rest = bytes.clone();
        while !rest.is_empty() {
            let len = rest.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            row.push(rest.split_to(len));
            room -= len as u64;
            if room == 0 {
                rows.push(std::mem::take(&mut row));
                room = most;
            }
        }
    }
    if !row.is_empty() {
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_all_there_in_order() {
        let data = [&b"abcde"[..], b"", b"fg", b"hijklmnop"].map(Bytes::from);
        let rows = cut(&data, 4);
        let rows: Vec<Vec<u8>> = rows.iter().map(|row| row.concat()).collect();
        assert_eq!(rows, [&b"abcd"[..], b"efgh", b"ijkl", b"mnop"]);
        assert!(cut(&[], 4).is_empty());
    }
}
