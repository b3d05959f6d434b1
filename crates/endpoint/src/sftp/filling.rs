//! Payloads of write requests, full regardless of the pieces in which their bytes come.

use std::collections::VecDeque;

use bytes::Bytes;

use super::session::Session;

/// Divider of bytes into the longest payloads that the server accepts.
pub(super) struct Filling {
    pieces: VecDeque<Bytes>,
    len: usize,
    step: usize,
}

impl Filling {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            pieces: VecDeque::new(),
            len: 0,
            step: usize::try_from(session.write_bytes_max).unwrap_or(usize::MAX),
        }
    }

    pub(super) fn add(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Returns the next payload: a full one, or the rest unless `only_full`.
    pub(super) fn next(&mut self, only_full: bool) -> Option<Vec<Bytes>> {
        if self.len == 0 || only_full && self.len < self.step {
            return None;
        }
        let (mut payload, mut room) = (Vec::new(), self.step);
        while room > 0
            && let Some(piece) = self.pieces.front_mut()
        {
            let cut = piece.split_to(room.min(piece.len()));
            room -= cut.len();
            self.len -= cut.len();
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            payload.push(cut);
        }
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_full_whatever_the_pieces() {
        let mut filling = Filling {
            pieces: VecDeque::new(),
            len: 0,
            step: 4,
        };
        assert!(filling.next(false).is_none());
        let mut sent = Vec::new();
        for piece in ["abc", "", "d", "efghijkl", "m"] {
            filling.add(Bytes::from_static(piece.as_bytes()));
            while let Some(payload) = filling.next(true) {
                sent.push(payload.concat());
            }
        }
        assert_eq!(sent, [b"abcd", b"efgh", b"ijkl"]);
        assert_eq!(filling.next(false).unwrap().concat(), b"m");
        assert!(filling.next(false).is_none());
    }
}
