//! Reads bodies of JSON lines as they arrive.

use axum::{
    body::{Body, BodyDataStream},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use posthaste_endpoint::{Error, ErrorKind, Result};

use super::BODY_BYTES_MAX;

/// Content type of JSON lines.
pub(super) const LINES: &str = "application/x-ndjson";

/// Checks the content type of JSON lines; `what` names them.
///
/// # Errors
/// [`ErrorKind::Invalid`] if it is another.
pub(super) fn check_kind(headers: &HeaderMap, what: &str) -> Result<()> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) == Some(LINES) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "read", what)
        .cause(format!("their content type is `{}`", kind.escape_debug()))
        .hint(format!("send {LINES}")))
}

/// Line of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(Bytes),
    /// The line was too long and not kept.
    TooLong,
    /// Limit of lines: nothing is read after it.
    TooMany,
}

/// Lines of a body as it arrives. Memory holds one line, and the bytes that came with its end.
pub(super) struct Lines {
    body: BodyDataStream,
    came: BytesMut,
    /// Bytes already searched for a line's end.
    looked: usize,
    number: u64,
    most: u64,
    is_broken: bool,
    is_skipping: bool,
    is_over: bool,
}

impl Lines {
    /// Returns the lines of a body with this limit.
    pub(super) fn new(body: Body, most: u64) -> Self {
        Self {
            body: body.into_data_stream(),
            came: BytesMut::new(),
            looked: 0,
            number: 0,
            most,
            is_broken: false,
            is_skipping: false,
            is_over: false,
        }
    }

    /// Returns the next non-empty line with its number; none after the last, and if the connection
    /// broke.
    pub(super) async fn next(&mut self) -> Option<(u64, Line)> {
        loop {
            let end = self.came[self.looked..]
                .iter()
                .position(|&byte| byte == b'\n');
            let end = end.map(|end| self.looked + end + 1);
            if let Some(end) = end.or(self.is_over.then_some(self.came.len())) {
                if end == 0 && !self.is_skipping {
                    return None;
                }
                let text = self.came.split_to(end).freeze();
                self.looked = 0;
                if let Some(line) = self.line(text) {
                    return Some((self.number, line));
                }
                continue;
            }
            self.looked = self.came.len();
            if self.looked > BODY_BYTES_MAX {
                self.is_skipping = true;
                self.came.clear();
                self.looked = 0;
            }
            match self.body.next().await {
                Some(Ok(data)) => self.came.extend_from_slice(&data),
                // A body cut short may be half of what was meant.
                Some(Err(_)) => {
                    self.is_broken = true;
                    return None;
                }
                None => self.is_over = true,
            }
        }
    }

    /// Returns whether the connection broke before the last line.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns a line from the bytes up to its end; none for an empty line.
    fn line(&mut self, text: Bytes) -> Option<Line> {
        self.number += 1;
        if self.number > self.most {
            (self.is_over, self.is_skipping) = (true, false);
            self.came.clear();
            return Some(Line::TooMany);
        }
        let was_skipping = std::mem::take(&mut self.is_skipping);
        if was_skipping || text.len() > BODY_BYTES_MAX {
            return Some(Line::TooLong);
        }
        let is_empty = text.iter().all(u8::is_ascii_whitespace);
        (!is_empty).then_some(Line::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    const MOST: u64 = 1000;

    async fn read(pieces: &[&str]) -> Vec<(u64, Line)> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, Infallible>(piece.to_string()))
            .collect();
        let mut lines = Lines::new(Body::from_stream(stream::iter(pieces)), MOST);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        all
    }

    fn text(number: u64, text: &'static str) -> (u64, Line) {
        (number, Line::Text(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn lines_are_read_wherever_they_are_cut() {
        let whole = [text(1, "one\n"), text(3, "two\n"), text(4, "three")];
        assert_eq!(read(&["one\n\ntwo\nthree"]).await, whole);
        assert_eq!(
            read(&["o", "ne\n \n", "two", "\n", "thr", "ee"]).await[0],
            whole[0]
        );
        assert_eq!(read(&["one", "\n", "\n", "two\n", "three"]).await, whole);
        assert_eq!(read(&[]).await, []);
        assert_eq!(read(&["\n\n"]).await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_left_out_and_not_kept() {
        let half = "x".repeat(BODY_BYTES_MAX / 2 + 10);
        let pieces = ["a\n", &half, &half, &half, "\nb\n"];
        let expected = [text(1, "a\n"), (2, Line::TooLong), text(3, "b\n")];
        assert_eq!(read(&pieces).await, expected);
        let pieces = [&half[..], &half];
        assert_eq!(read(&pieces).await, [(1, Line::TooLong)]);
        let whole = format!("{half}{half}\nb");
        assert_eq!(read(&[&whole]).await, [(1, Line::TooLong), text(2, "b")]);
    }

    #[tokio::test]
    async fn what_is_one_more_than_the_most_ends_it() {
        let many = "{}\n".repeat(usize::try_from(MOST).unwrap() + 5);
        let lines = read(&[&many]).await;
        assert_eq!(lines.len() as u64, MOST + 1);
        assert_eq!(lines.last().unwrap().1, Line::TooMany);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_is_no_end() {
        let pieces = [
            Ok(Bytes::from_static(b"one\ntw")),
            Err(std::io::Error::other("it broke")),
        ];
        let mut lines = Lines::new(Body::from_stream(stream::iter(pieces)), MOST);
        assert_eq!(lines.next().await, Some(text(1, "one\n")));
        assert_eq!((lines.next().await, lines.is_broken()), (None, true));
    }
}
