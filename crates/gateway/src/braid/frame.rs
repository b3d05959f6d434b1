//! Frames on a connection of a braid: each a header of 16 bytes and its load.
//!
//! ```text
//! kind (1)  connections (1)  zero (2)  length (4)  offset (8)        big-endian, bytes in parentheses
//! ```
//!
//! The form is in `docs/reference/gateway-protocol.md`.

use std::io;

pub(super) const HEADER_BYTES: usize = 16;
/// Largest load of a frame sent: small, as a load given to a slow connection is late.
pub(super) const LOAD_BYTES: usize = 32 << 10;
/// Largest load of a frame accepted.
pub(super) const LOAD_BYTES_MAX: usize = 64 << 10;

const HELLO: u8 = 1;
const LOAD: u8 = 2;
const END: u8 = 3;

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// First frame on a further connection, from the gateway that opened it: the connection counts
    /// from now on.
    Hello,
    /// Load of so many bytes at this offset of the stream.
    Load { offset: u64, length: usize },
    /// Last frame on each connection, with the stream's length and the number of connections.
    End { total: u64, connections: u8 },
}

pub(super) fn nonsense(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Frame {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let (kind, connections, length, offset) = match self {
            Self::Hello => (HELLO, 0, 0, 0),
            Self::Load { offset, length } => (LOAD, 0, length, offset),
            Self::End { total, connections } => (END, connections, 0, total),
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = kind;
        bytes[1] = connections;
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        bytes[8..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    /// Parses a header.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a header that no gateway sends.
    pub(super) fn read(bytes: [u8; HEADER_BYTES]) -> io::Result<Self> {
        let [
            kind,
            connections,
            zero,
            other_zero,
            l0,
            l1,
            l2,
            l3,
            offset @ ..,
        ] = bytes;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let offset = u64::from_be_bytes(offset);
        match (kind, connections, length) {
            _ if zero != 0 || other_zero != 0 => {}
            (HELLO, 0, 0) if offset == 0 => return Ok(Self::Hello),
            (LOAD, 0, 1..=LOAD_BYTES_MAX) if offset.checked_add(length as u64).is_some() => {
                return Ok(Self::Load { offset, length });
            }
            (END, 1.., 0) => {
                return Ok(Self::End {
                    total: offset,
                    connections,
                });
            }
            _ => {}
        }
        Err(nonsense("this is no frame of a braid"))
    }
}

/// Reads frames one after the other, for [`crate::fuzzing`].
pub(crate) fn try_frames(data: &[u8]) {
    for bytes in data.as_chunks::<HEADER_BYTES>().0 {
        if let Ok(frame) = Frame::read(*bytes) {
            assert_eq!(frame.to_bytes(), *bytes, "a frame has one form");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_was_written(offset in 0..u64::MAX / 2, length in 1..=LOAD_BYTES_MAX, connections in 1u8..) {
            for frame in [
                Frame::Hello,
                Frame::Load { offset, length },
                Frame::End { total: offset, connections },
            ] {
                prop_assert_eq!(Frame::read(frame.to_bytes()).unwrap(), frame);
            }
        }

        #[test]
        fn what_reads_as_a_frame_is_its_one_form(bytes: [u8; HEADER_BYTES], kind in 0u8..5) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if let Ok(frame) = Frame::read(bytes) {
                prop_assert_eq!(frame.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn what_is_too_long_empty_or_endless_is_no_frame() {
        let load = |offset, length| Frame::Load { offset, length }.to_bytes();
        for bytes in [
            load(0, 0),
            load(0, LOAD_BYTES_MAX + 1),
            load(u64::MAX, 1),
            [0; HEADER_BYTES],
            [1; HEADER_BYTES],
            *b"GET / HTTP/1.1\r\n",
        ] {
            assert!(Frame::read(bytes).is_err(), "{bytes:?}");
        }
    }
}
