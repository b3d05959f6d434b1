//! Segments: records of a directory's listing, each with a checksum.

use super::super::{Facts, Kind};

/// Size in bytes at which a segment ends and the next begins: it bounds the memory for one
/// directory.
pub(super) const SEGMENT_BYTES: usize = 256 << 10;

/// Bytes of the checksum at the end of a segment.
const CHECKSUM_BYTES: usize = 8;

/// Attributes that show whether a directory changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub inode: u64,
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// Header of every segment of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub mark: Mark,
    /// Time at which every file of the directory was looked at, in seconds since 1970.
    pub listed_s: i64,
    /// True for the last segment of the directory.
    pub is_last: bool,
}

/// Entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Directory(&'a [u8]),
    File(&'a [u8], Facts),
}

/// Writer of a segment.
pub(super) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new(path: &[u8], head: &Head) -> Self {
        let mut writer = Self { bytes: Vec::new() };
        writer.bytes.push(u8::from(head.is_last));
        writer.number(head.mark.inode);
        for (seconds, nanoseconds) in [head.mark.modified, head.mark.changed] {
            writer.signed(seconds);
            writer.number(u64::from(nanoseconds));
        }
        writer.signed(head.listed_s);
        writer.text(path);
        writer
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() >= SEGMENT_BYTES
    }

    pub fn entry(&mut self, entry: Entry<'_>) {
        match entry {
            Entry::Directory(name) => {
                self.bytes.push(0);
                self.text(name);
            }
            Entry::File(name, facts) => {
                let kind = match facts.kind {
                    Kind::File => 1,
                    Kind::Link => 2,
                    Kind::Other => 3,
                };
                self.bytes
                    .push(kind | u8::from(facts.born_s.is_some()) << 2);
                self.text(name);
                self.number(facts.size);
                self.number(u64::from(facts.owner));
                self.signed(facts.accessed_s);
                self.signed(facts.modified_s);
                self.signed(facts.changed_s);
                if let Some(born_s) = facts.born_s {
                    self.signed(born_s);
                }
            }
        }
    }

    /// Returns the complete segment.
    pub fn finish(mut self, is_last: bool) -> Vec<u8> {
        self.bytes[0] = u8::from(is_last);
        let checksum = checksum(&self.bytes);
        self.bytes.extend(checksum);
        self.bytes
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push((number & 0x7f) as u8);
    }

    fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63).cast_unsigned());
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest = blake3::hash(bytes);
    std::array::from_fn(|place| digest.as_bytes()[place])
}

/// Reader of a segment; returns `None` from the first invalid entry on.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Opens a segment of this directory; `None` if its checksum is wrong.
    pub fn open(segment: &'a [u8], path: &[u8]) -> Option<(Self, Head)> {
        let (body, sum) = segment.split_at_checked(segment.len().checked_sub(CHECKSUM_BYTES)?)?;
        if checksum(body) != sum {
            return None;
        }
        let mut reader = Self { rest: body };
        let is_last = reader.byte()? != 0;
        let inode = reader.number()?;
        let mut time = || Some((reader.signed()?, u32::try_from(reader.number()?).ok()?));
        let (modified, changed) = (time()?, time()?);
        let head = Head {
            mark: Mark {
                inode,
                modified,
                changed,
            },
            listed_s: reader.signed()?,
            is_last,
        };
        (reader.text()? == path).then_some((reader, head))
    }

    pub fn entry(&mut self) -> Option<Entry<'a>> {
        let kind = self.byte()?;
        let name = self.text()?;
        if kind == 0 {
            return Some(Entry::Directory(name));
        }
        let facts = Facts {
            kind: match kind & 3 {
                1 => Kind::File,
                2 => Kind::Link,
                _ => Kind::Other,
            },
            size: self.number()?,
            owner: u32::try_from(self.number()?).ok()?,
            accessed_s: self.signed()?,
            modified_s: self.signed()?,
            changed_s: self.signed()?,
            born_s: match kind & 4 {
                0 => None,
                _ => Some(self.signed()?),
            },
        };
        Some(Entry::File(name, facts))
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_come_back_as_they_were_and_a_changed_byte_is_seen() {
        let head = Head {
            mark: Mark {
                inode: u64::MAX,
                modified: (i64::MIN, 999_999_999),
                changed: (i64::MAX, 0),
            },
            listed_s: -1,
            is_last: true,
        };
        let facts = Facts {
            kind: Kind::Link,
            size: 1 << 40,
            owner: u32::MAX,
            accessed_s: 1_800_000_000,
            modified_s: -5,
            changed_s: 0,
            born_s: Some(3),
        };
        let entries = [
            Entry::Directory(b"below"),
            Entry::File(b"a\xff", facts),
            Entry::File(b"", Facts::default()),
        ];
        let mut writer = Writer::new(b"x/y", &head);
        entries.iter().for_each(|entry| writer.entry(*entry));
        let mut segment = writer.finish(true);
        let (mut reader, read) = Reader::open(&segment, b"x/y").unwrap();
        assert_eq!(read, head);
        for entry in entries {
            assert_eq!(reader.entry(), Some(entry));
        }
        assert!(reader.entry().is_none());
        assert!(
            Reader::open(&segment, b"x/z").is_none(),
            "another directory"
        );
        for place in 0..segment.len() {
            segment[place] ^= 1;
            assert!(Reader::open(&segment, b"x/y").is_none(), "{place}");
            segment[place] ^= 1;
        }
    }
}
