//! Record of a stream at a parking place: a small file of JSON, and the names of the pieces.

use std::{fmt, ops::Range, str::FromStr};

use posthaste_endpoint::{Checksum, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Runs;

/// Version of the records written here; others are not read.
const FORMAT: u32 = 1;

/// Hexadecimal digits of an id: 48 random bits, few enough to type.
const ID_DIGITS: usize = 12;

/// Prefix of every name at a parking place.
const PREFIX: &str = "parked-";

/// Name of a parked stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkId(String);

impl ParkId {
    /// Returns a new id.
    ///
    /// # Errors
    /// The system's, if it has no randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; ID_DIGITS / 2];
        let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
        filled.map_err(|_| {
            Error::new(ErrorKind::Other, "draw", "a random number").cause("the system gave none")
        })?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// Returns the origin that the stream's unfinished copies name.
    pub(crate) fn origin(&self) -> String {
        format!("stream:{}", self.0)
    }

    pub(super) fn record_name(&self) -> String {
        format!("{PREFIX}{}.json", self.0)
    }

    pub(super) fn note_name(&self) -> String {
        format!("{PREFIX}{}.note", self.0)
    }

    /// Returns the stream whose record has this name.
    pub(super) fn of_record(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        let id = name.strip_prefix(PREFIX)?.strip_suffix(".json")?;
        id.parse().ok()
    }

    /// Returns whether a name belongs to this stream, finished or not.
    pub(super) fn owns(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        let start = format!("{PREFIX}{}.", self.0);
        let visible = name.strip_prefix('.').unwrap_or(&name);
        visible.starts_with(&start)
    }

    pub(super) fn piece_name(&self, piece: &Piece) -> String {
        let Piece { start, len, sum } = piece;
        format!("{PREFIX}{}.{start:016x}-{len:08x}-{sum}", self.0)
    }

    /// Returns the piece of this stream that has this name.
    pub(super) fn piece(&self, name: &[u8]) -> Option<Piece> {
        let name = std::str::from_utf8(name).ok()?;
        let rest = name.strip_prefix(PREFIX)?.strip_prefix(&self.0)?;
        let mut words = rest.strip_prefix('.')?.split('-');
        let number = |word: &str, digits: usize| {
            (word.len() == digits && word.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .then(|| u64::from_str_radix(word, 16).ok())?
        };
        let piece = Piece {
            start: number(words.next()?, 16)?,
            len: number(words.next()?, 8)?,
            sum: Checksum::from_hex(words.next()?)?,
        };
        let is_sound = words.next().is_none() && piece.start.checked_add(piece.len).is_some();
        is_sound.then_some(piece)
    }
}

impl fmt::Display for ParkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ParkId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        if text.len() == ID_DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "the id of a parked stream has {ID_DIGITS} hexadecimal digits, as `posthaste parked list` shows it"
        ))
    }
}

/// Piece of a stream at a parking place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Start of the piece in the stream.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// Checksum of its bytes.
    pub sum: Checksum,
}

impl Piece {
    /// Returns its range in the stream.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.len)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunRecord {
    start: u64,
    end: u64,
    crc64nvme: String,
}

/// Facts that a parking place knows of a stream. Never a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its id.
    pub id: ParkId,
    /// Destination of the stream, as it was written, absolute.
    pub destination: String,
    /// Profile that the user asked for.
    pub profile: Option<String>,
    /// Start of the stream, RFC 3339.
    pub began: String,
    /// Reason why it is here: the destination's failure. `None` while the stream goes on.
    pub why: Option<String>,
    /// Length and checksum of the stream, once its end was seen and all of it is at one place or
    /// the other.
    pub whole: Option<(u64, Checksum)>,
    /// Ranges that the destination confirmed.
    pub confirmed: Runs,
}

#[derive(Serialize, Deserialize)]
struct Written {
    format: u32,
    id: String,
    destination: String,
    profile: Option<String>,
    began: String,
    why: Option<String>,
    size_bytes: Option<u64>,
    crc64nvme: Option<String>,
    confirmed: Vec<RunRecord>,
}

impl Record {
    /// Returns the record as it is stored.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let confirmed = self.confirmed.iter().map(|(range, sum)| RunRecord {
            start: range.start,
            end: range.end,
            crc64nvme: sum.to_string(),
        });
        let written = Written {
            format: FORMAT,
            id: self.id.0.clone(),
            destination: self.destination.clone(),
            profile: self.profile.clone(),
            began: self.began.clone(),
            why: self.why.clone(),
            size_bytes: self.whole.map(|(size, _)| size),
            crc64nvme: self.whole.map(|(_, sum)| sum.to_string()),
            confirmed: confirmed.collect(),
        };
        serde_json::to_vec_pretty(&written).unwrap_or_default()
    }

    /// Reads what [`Record::to_json`] wrote.
    ///
    /// # Errors
    /// A line that says what is wrong with it.
    pub fn from_json(id: &ParkId, bytes: &[u8]) -> Result<Self, String> {
        let written: Written =
            serde_json::from_slice(bytes).map_err(|cause| format!("it is no record: {cause}"))?;
        if written.format != FORMAT {
            return Err(format!("its form {} is not known here", written.format));
        }
        if written.id != id.0 {
            return Err("it is the record of another stream".to_owned());
        }
        let sum = |text: &str| Checksum::from_hex(text).ok_or("a checksum is damaged");
        let mut confirmed = Runs::default();
        for run in &written.confirmed {
            if !confirmed.add(run.start..run.end.max(run.start), sum(&run.crc64nvme)?) {
                return Err("its ranges overlap".to_owned());
            }
        }
        let whole = match (written.size_bytes, &written.crc64nvme) {
            (Some(size), Some(text)) => Some((size, sum(text)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err("its length or its checksum is missing".to_owned());
            }
        };
        Ok(Self {
            id: id.clone(),
            destination: written.destination,
            profile: written.profile,
            began: written.began,
            why: written.why,
            whole,
            confirmed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(whole: Option<u64>) -> Record {
        let mut confirmed = Runs::default();
        confirmed.add(0..5, Checksum::of(b"first"));
        confirmed.add(9..11, Checksum::of(b"xx"));
        Record {
            id: ParkId::random().unwrap(),
            destination: "s3://bucket/key".into(),
            profile: Some("store".into()),
            began: "2026-11-20T18:00:00Z".into(),
            why: Some("can't write s3://bucket/key: refused".into()),
            whole: whole.map(|size| (size, Checksum::of(b"all"))),
            confirmed,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_never_half() {
        for whole in [None, Some(0), Some(u64::MAX)] {
            let record = record(whole);
            let text = record.to_json();
            assert_eq!(Record::from_json(&record.id, &text), Ok(record.clone()));
            for cut in 0..text.len() {
                assert!(
                    Record::from_json(&record.id, &text[..cut]).is_err(),
                    "{cut}"
                );
            }
            let other = ParkId::random().unwrap();
            assert!(Record::from_json(&other, &text).is_err());
        }
    }

    #[test]
    fn names_tell_whose_they_are() {
        let (mine, other) = (ParkId::random().unwrap(), ParkId::random().unwrap());
        let piece = Piece {
            start: 16 << 20,
            len: 8 << 20,
            sum: Checksum::of(b"piece"),
        };
        let name = mine.piece_name(&piece).into_bytes();
        assert_eq!(mine.piece(&name), Some(piece));
        assert_eq!(other.piece(&name), None);
        let half = [b".", &name[..], b".0123456789ab.posthaste-partial"].concat();
        for owned in [
            &name[..],
            &half,
            mine.record_name().as_bytes(),
            mine.note_name().as_bytes(),
        ] {
            assert!(mine.owns(owned) && !other.owns(owned));
        }
        assert_eq!(
            ParkId::of_record(mine.record_name().as_bytes()),
            Some(mine.clone())
        );
        for no_piece in [
            mine.record_name(),
            format!("parked-{mine}.+000000000000000-00000001-0000000000000000"),
        ] {
            assert_eq!(mine.piece(no_piece.as_bytes()), None);
        }
        for wrong in ["", "0123456789aB", "../../../etc", "0123456789abc"] {
            assert!(wrong.parse::<ParkId>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn whatever_lies_there_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
            let id = ParkId::random().unwrap();
            prop_assert!(Record::from_json(&id, &bytes).is_err());
            let name = format!("parked-{id}.{text}");
            if let Some(piece) = id.piece(name.as_bytes()) {
                prop_assert!(piece.range().end >= piece.start);
            }
        }
    }
}
