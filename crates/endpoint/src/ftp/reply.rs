//! Answers of servers (RFC 959, section 4.2) and their meaning: the one place that reads codes.

use crate::{Error, ErrorKind, Locus, Status};

/// Most bytes of an answer: FEAT and HELP fill a page.
pub(super) const REPLY_BYTES_MAX: usize = 64 << 10;

/// Longest reported excerpt of an answer, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// Answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// Lines, without the code.
    pub(super) lines: Vec<Vec<u8>>,
    /// Subject of the command that it answers.
    pub(super) about: Vec<u8>,
}

/// Reader of an answer, line by line.
#[derive(Debug, Default)]
pub(super) struct Reading {
    code: Option<u16>,
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

/// Error for an invalid answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense;

impl Reading {
    /// Accepts a line without its end; returns the answer when it is complete.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, Nonsense> {
        self.bytes += line.len();
        if self.bytes > REPLY_BYTES_MAX {
            return Err(Nonsense);
        }
        let code = code_of(line);
        let ends = match (self.code, code) {
            (None, None) => return Err(Nonsense),
            (None, Some(code)) => {
                self.code = Some(code);
                line.get(3) != Some(&b'-')
            }
            (Some(first), code) => code == Some(first) && line.get(3) == Some(&b' '),
        };
        let is_marked =
            code.is_some() && code == self.code && matches!(line.get(3), Some(b' ' | b'-'));
        let text = if is_marked {
            &line[4..]
        } else if code.is_some() && line.len() == 3 {
            b""
        } else {
            line
        };
        self.lines.push(text.to_vec());
        Ok(ends.then(|| Reply {
            code: self.code.take().unwrap_or_default(),
            lines: std::mem::take(&mut self.lines),
            about: Vec::new(),
        }))
    }
}

fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3)?;
    let is_code = digits.iter().all(u8::is_ascii_digit)
        && (b'1'..=b'6').contains(&digits[0])
        && matches!(line.get(3), None | Some(b' ' | b'-'));
    is_code.then(|| {
        digits
            .iter()
            .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'))
    })
}

impl Reply {
    /// Returns whether the server did what was asked.
    pub(super) fn is_done(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns whether the server waits for the next command of a pair, or for data.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.code / 100, 1 | 3)
    }

    /// Returns whether the server refuses for good.
    pub(super) fn is_final_refusal(&self) -> bool {
        self.code / 100 == 5
    }

    /// Returns whether the server does not know the command. 501 is about the argument instead.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.code, 500 | 502 | 504)
    }

    /// Returns the text as one line.
    pub(super) fn text(&self) -> String {
        let last = self.lines.last().map(Vec::as_slice).unwrap_or_default();
        let text = String::from_utf8_lossy(last);
        text.trim().chars().take(EXCERPT_CHARS_MAX).collect()
    }

    /// Returns whether the text has one of those words; the words of a repeated path don't count.
    fn says(&self, words: &[&str]) -> bool {
        let about = String::from_utf8_lossy(&self.about).to_ascii_lowercase();
        let last = self.lines.last().map(Vec::as_slice).unwrap_or_default();
        let mut text = String::from_utf8_lossy(last).to_ascii_lowercase();
        // Before the path, a command may have a mode or a time.
        let cuts = about.match_indices(' ').map(|(at, _)| at + 1);
        let mut paths = [0].into_iter().chain(cuts).take(3).map(|at| &about[at..]);
        if let Some(path) = paths.find(|path| !path.is_empty() && text.contains(path)) {
            text = text.replace(path, "");
        }
        words.iter().any(|word| text.contains(word))
    }

    /// Returns whether the server refuses one more session rather than us.
    pub(super) fn is_too_many(&self) -> bool {
        self.code == 421
            || matches!(self.code, 530 | 550)
                && self.says(&[
                    "too many",
                    "maximum number",
                    "connection limit",
                    "already connected",
                ])
    }

    /// Returns whether nothing is at the path, as far as a server reports: one code serves for that
    /// and for what it does not let us see.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.code, 550 | 501) && !self.is_denied() && self.kind() == ErrorKind::NotFound
    }

    fn is_denied(&self) -> bool {
        self.says(&[
            "permission",
            "denied",
            "not permitted",
            "not allowed",
            "forbidden",
        ])
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            421 => ErrorKind::Busy,
            425 | 426 => ErrorKind::Unreachable,
            450 => ErrorKind::Busy,
            452 | 552 => ErrorKind::Full,
            430 | 530 | 532 | 534 | 535 if self.is_too_many() => ErrorKind::Busy,
            430 | 530 | 532 | 534 | 535 => ErrorKind::Unauthenticated,
            451 | 550 | 553 if self.says(&["no space", "quota", "disk full"]) => ErrorKind::Full,
            550 | 553 if self.is_too_many() => ErrorKind::Busy,
            550 | 553 if self.is_denied() => ErrorKind::PermissionDenied,
            550 | 521 | 553 if self.says(&["exist"]) && !self.says(&["not exist", "n't exist"]) => {
                ErrorKind::Conflict
            }
            550 => ErrorKind::NotFound,
            553 => ErrorKind::PermissionDenied,
            500..=504 | 522 | 536 | 551 => ErrorKind::Unsupported,
            _ => ErrorKind::Other,
        }
    }

    /// Returns the error that this answer is, of `operation` on `subject`.
    pub(super) fn refusal(&self, operation: &'static str, subject: String, locus: Locus) -> Error {
        let kind = self.kind();
        let error = Error::new(kind, operation, subject)
            .cause(format!("the server says \"{}\"", self.text()))
            .with("code", self.code)
            .at(locus);
        match (kind, self.code / 100) {
            (ErrorKind::Full, _) => error,
            (ErrorKind::Unauthenticated, _) => {
                error.hint("put user and password into a profile or ~/.netrc")
            }
            (_, 4) => error.status_is(Status::Temporary),
            _ => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Reply> {
        let mut reading = Reading::default();
        text.lines()
            .find_map(|line| reading.line(line.as_bytes()).unwrap())
    }

    fn reply(code: u16, text: &str) -> Reply {
        Reply {
            code,
            lines: vec![text.as_bytes().to_vec()],
            about: Vec::new(),
        }
    }

    #[test]
    fn answers_end_where_their_code_comes_back() {
        assert_eq!(read("200 ok"), Some(reply(200, "ok")));
        assert_eq!(read("200"), Some(reply(200, "")));
        let several = read("211-Features:\n MDTM\n211-x\n2110 y\n211 End").unwrap();
        assert_eq!(several.code, 211);
        assert_eq!(several.lines[1], b" MDTM");
        assert_eq!(several.lines.len(), 5);
        assert_eq!(read("211-Features:\n MDTM"), None);
        assert_eq!(Reading::default().line(b"hello"), Err(Nonsense));
        let mut endless = Reading::default();
        assert_eq!(endless.line(b"220-"), Ok(None));
        let long = vec![b'x'; REPLY_BYTES_MAX];
        assert_eq!(endless.line(&long), Err(Nonsense));
    }

    #[test]
    fn codes_and_words_say_what_went_wrong() {
        use ErrorKind::{
            Busy, Conflict, Full, NotFound, Other, PermissionDenied, Unauthenticated, Unreachable,
            Unsupported,
        };
        for (code, text, kind) in [
            (421, "Too many users, try later", Busy),
            (425, "Unable to build data connection", Unreachable),
            (426, "Transfer aborted", Unreachable),
            (450, "x: file busy", Busy),
            (451, "Local error", Other),
            (452, "No space left on device", Full),
            (530, "Login incorrect.", Unauthenticated),
            (
                530,
                "Sorry, the maximum number of clients (3) for this user are already connected.",
                Busy,
            ),
            (550, "x: No such file or directory", NotFound),
            (550, "x: Permission denied", PermissionDenied),
            (550, "d: File exists", Conflict),
            (550, "x does not exist", NotFound),
            (552, "Exceeded storage allocation", Full),
            (553, "File name not allowed", PermissionDenied),
            (502, "Command not implemented", Unsupported),
        ] {
            let error = reply(code, text).refusal("try", "x".to_owned(), Locus::Source);
            assert_eq!(error.kind(), kind, "{code} {text}");
            assert_eq!(
                error.is_temporary(),
                code / 100 == 4 && kind != Full || kind == Busy
            );
        }
        assert!(reply(550, "'x' cannot be listed").is_missing());
        let knows =
            [501, 550].map(|code| !reply(code, "19600101000000: Invalid argument").is_unknown());
        assert!(knows == [true; 2] && reply(500, "MFMT not understood").is_unknown());
        assert!(!reply(550, "x: Permission denied").is_missing());
        let named = |about: &str, text| Reply {
            about: about.as_bytes().to_vec(),
            ..reply(550, text)
        };
        assert!(named("/d/quota 26/x", "'/d/quota 26/x' cannot be listed").is_missing());
        let chmod = named("CHMOD 644 denied.txt", "denied.txt: Permission denied");
        assert_eq!(chmod.kind(), PermissionDenied);
        let full = named("/d/quota", "/d/quota: Disk quota exceeded");
        assert_eq!(full.kind(), Full);
    }
}
