//! Packets of SFTP version 3 (draft-ietf-secsh-filexfer-02) and OpenSSH's extensions to it
//! (`PROTOCOL`, section 4). Strings are bytes: names need not be UTF-8.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::attributes::secs_of;
use crate::{FileTime, Kind, clock};

pub(super) const INIT: u8 = 1;
pub(super) const VERSION: u8 = 2;
pub(super) const OPEN: u8 = 3;
pub(super) const CLOSE: u8 = 4;
pub(super) const READ: u8 = 5;
pub(super) const WRITE: u8 = 6;
pub(super) const LSTAT: u8 = 7;
pub(super) const FSTAT: u8 = 8;
pub(super) const SETSTAT: u8 = 9;
pub(super) const FSETSTAT: u8 = 10;
pub(super) const OPENDIR: u8 = 11;
pub(super) const READDIR: u8 = 12;
pub(super) const REMOVE: u8 = 13;
pub(super) const MKDIR: u8 = 14;
pub(super) const REALPATH: u8 = 16;
pub(super) const STAT: u8 = 17;
pub(super) const RENAME: u8 = 18;
pub(super) const READLINK: u8 = 19;
pub(super) const SYMLINK: u8 = 20;
pub(super) const EXTENDED: u8 = 200;

const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

pub(super) const OPEN_READ: u32 = 1;
pub(super) const OPEN_WRITE: u32 = 2;
pub(super) const OPEN_CREATE: u32 = 8;
/// Flag to fail if the file exists.
pub(super) const OPEN_NEW: u32 = 0x20;

const ATTR_SIZE: u32 = 1;
const ATTR_OWNER: u32 = 2;
const ATTR_MODE: u32 = 4;
const ATTR_TIMES: u32 = 8;
const ATTR_EXTENDED: u32 = 0x8000_0000;

/// Most names accepted of one directory packet.
const NAMES_MAX: u32 = 100_000;

/// Request being written: everything but the length and the id.
pub(super) struct Request {
    kind: u8,
    body: BytesMut,
    payload: Vec<Bytes>,
}

impl Request {
    pub(super) fn new(kind: u8) -> Self {
        Self {
            kind,
            body: BytesMut::with_capacity(64),
            payload: Vec::new(),
        }
    }

    pub(super) fn string(mut self, text: &[u8]) -> Self {
        self.body
            .put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.body.put_slice(text);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.body.put_u32(value);
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.body.put_u64(value);
        self
    }

    pub(super) fn attributes(mut self, attributes: &Attributes) -> Self {
        attributes.write(&mut self.body);
        self
    }

    /// Adds a last string, in pieces that are sent unchanged, without a copy.
    pub(super) fn payload(self, pieces: Vec<Bytes>) -> Self {
        let len: usize = pieces.iter().map(Bytes::len).sum();
        let mut request = self.u32(u32::try_from(len).unwrap_or(u32::MAX));
        request.payload = pieces;
        request
    }

    /// Appends the packet, in pieces, to the output.
    pub(super) fn send_to(self, id: u32, out: &mut Vec<Bytes>) {
        let payload: usize = self.payload.iter().map(Bytes::len).sum();
        let len = u32::try_from(1 + 4 + self.body.len() + payload).unwrap_or(u32::MAX);
        let mut head = BytesMut::with_capacity(9 + self.body.len());
        head.put_u32(len);
        head.put_u8(self.kind);
        head.put_u32(id);
        head.put_slice(&self.body);
        out.push(head.freeze());
        out.extend(self.payload);
    }
}

/// Attributes of a file, as an SFTP server reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub size: Option<u64>,
    pub mode: Option<u32>,
    pub mtime: Option<u32>,
}

impl Attributes {
    fn write(&self, out: &mut BytesMut) {
        let mut flags = 0;
        flags |= if self.size.is_some() { ATTR_SIZE } else { 0 };
        flags |= if self.mode.is_some() { ATTR_MODE } else { 0 };
        flags |= if self.mtime.is_some() { ATTR_TIMES } else { 0 };
        out.put_u32(flags);
        if let Some(size) = self.size {
            out.put_u64(size);
        }
        if let Some(mode) = self.mode {
            out.put_u32(mode);
        }
        if let Some(mtime) = self.mtime {
            // The protocol requires both times or none. The access time becomes now, since purges
            // go by that.
            out.put_u32(u32::try_from(clock::unix_secs()).unwrap_or(mtime));
            out.put_u32(mtime);
        }
    }

    fn read(input: &mut Bytes) -> Option<Self> {
        let flags = get_u32(input)?;
        let mut found = Self::default();
        if flags & ATTR_SIZE != 0 {
            found.size = Some(input.try_get_u64().ok()?);
        }
        if flags & ATTR_OWNER != 0 {
            get_u32(input)?;
            get_u32(input)?;
        }
        if flags & ATTR_MODE != 0 {
            found.mode = Some(get_u32(input)?);
        }
        if flags & ATTR_TIMES != 0 {
            get_u32(input)?;
            found.mtime = Some(get_u32(input)?);
        }
        if flags & ATTR_EXTENDED != 0 {
            for _ in 0..get_u32(input)? {
                get_string(input)?;
                get_string(input)?;
            }
        }
        Some(found)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.mode.map(|mode| mode & 0o170_000) {
            Some(0o100_000) | None => Kind::File,
            Some(0o040_000) => Kind::Directory,
            Some(0o120_000) => Kind::Link,
            Some(_) => Kind::Special,
        }
    }

    pub(super) fn file_time(&self) -> Option<FileTime> {
        self.mtime.map(|field| FileTime {
            secs: secs_of(field),
            nanos: 0,
        })
    }
}

/// Answer of a server.
#[derive(Debug)]
pub(super) enum Reply {
    Status { code: u32, message: String },
    Handle(Bytes),
    Data(Bytes),
    Names(Vec<(Bytes, Attributes)>),
    Attributes(Attributes),
    Extended(Bytes),
}

/// Reads a packet without its length: the id and the reply; `None` if it is malformed.
pub(super) fn read_reply(mut packet: Bytes) -> Option<(u32, Reply)> {
    let kind = packet.try_get_u8().ok()?;
    let id = get_u32(&mut packet)?;
    let reply = match kind {
        STATUS => Reply::Status {
            code: get_u32(&mut packet)?,
            message: get_string(&mut packet)
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .unwrap_or_default(),
        },
        HANDLE => Reply::Handle(get_string(&mut packet)?),
        DATA => Reply::Data(get_string(&mut packet)?),
        NAME => {
            let count = get_u32(&mut packet)?.min(NAMES_MAX);
            let mut names = Vec::new();
            for _ in 0..count {
                let name = get_string(&mut packet)?;
                get_string(&mut packet)?;
                names.push((name, Attributes::read(&mut packet)?));
            }
            Reply::Names(names)
        }
        ATTRS => Reply::Attributes(Attributes::read(&mut packet)?),
        EXTENDED_REPLY => Reply::Extended(packet),
        _ => return None,
    };
    Some((id, reply))
}

pub(super) fn get_u32(input: &mut Bytes) -> Option<u32> {
    input.try_get_u32().ok()
}

pub(super) fn get_string(input: &mut Bytes) -> Option<Bytes> {
    let len = usize::try_from(get_u32(input)?).ok()?;
    (len <= input.len()).then(|| input.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf8_are_read() {
        let mut packet = BytesMut::new();
        packet.put_u8(NAME);
        packet.put_u32(7);
        packet.put_u32(1);
        packet.put_u32(4);
        packet.put_slice(b"a\xff\nb");
        packet.put_u32(0);
        Attributes {
            size: Some(5),
            mode: Some(0o100_644),
            mtime: Some(9),
        }
        .write(&mut packet);
        let Some((7, Reply::Names(names))) = read_reply(packet.freeze()) else {
            panic!("not read");
        };
        assert_eq!(&names[0].0[..], b"a\xff\nb");
        assert_eq!(names[0].1.size, Some(5));
        assert_eq!(names[0].1.kind(), Kind::File);
    }

    #[test]
    fn garbage_is_refused_not_trusted() {
        for packet in [
            &[][..],
            &[NAME, 0, 0, 0, 1],
            &[NAME, 0, 0, 0, 1, 255, 255, 255, 255],
            &[DATA, 0, 0, 0, 1, 255, 255, 255, 255, 1],
            &[99, 0, 0, 0, 1],
        ] {
            assert!(
                read_reply(Bytes::copy_from_slice(packet)).is_none(),
                "{packet:?}"
            );
        }
    }
}
