//! Head of a file: its recipients, and a code that protects it from changes.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use ring::hmac;

use super::{FILE_KEY_BYTES, Recipient, TAG_BYTES, keys};

const VERSION: &str = "age-encryption.org/v1";
/// Longest header: 64 recipients take 7 KiB.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Characters of a full line of a stanza's body; a shorter one ends it.
const LINE_CHARACTERS: usize = 64;
/// End of the header, before its code.
const END: &str = "---";

/// Stanza for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stanza {
    /// Share of the sender.
    pub(super) share: Recipient,
    /// Wrapped file key.
    pub(super) body: Vec<u8>,
}

/// Recipients of a file; those that are no X25519 keys are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) stanzas: Vec<Stanza>,
}

/// Text of a header up to its code, and the code.
pub(super) struct Signed<'a> {
    text: &'a [u8],
    code: Vec<u8>,
}

impl Signed<'_> {
    /// Returns whether the writer of the code had the file key.
    pub(super) fn is_by(&self, file_key: &[u8; FILE_KEY_BYTES]) -> bool {
        hmac::verify(&signing_key(file_key), self.text, &self.code).is_ok()
    }
}

fn signing_key(file_key: &[u8; FILE_KEY_BYTES]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &*keys::derive(b"", file_key, b"header"))
}

type Why = &'static str;

const MALFORMED: Why = "its header is malformed";

impl Header {
    pub(super) fn to_bytes(&self, file_key: &[u8; FILE_KEY_BYTES]) -> Vec<u8> {
        let mut text = format!("{VERSION}\n");
        for Stanza { share, body } in &self.stanzas {
            let (share, body) = (BASE64.encode(share.as_bytes()), BASE64.encode(body));
            // A wrapped file key is shorter than a line.
            text += &format!("-> X25519 {share}\n{body}\n");
        }
        text += END;
        let code = hmac::sign(&signing_key(file_key), text.as_bytes());
        text += &format!(" {}\n", BASE64.encode(code));
        text.into_bytes()
    }

    /// Returns the header, its signed text, and the payload.
    pub(super) fn parse(file: &[u8]) -> Result<(Self, Signed<'_>, &[u8]), Why> {
        let mut lines = Lines { file, at: 0 };
        if lines.next() != Ok(VERSION) {
            return Err("it is no file of age");
        }
        let mut stanzas = Vec::new();
        loop {
            let end = lines.at + END.len();
            let line = lines.next()?;
            if let Some(code) = line.strip_prefix("--- ") {
                let code = BASE64.decode(code).ok().filter(|code| code.len() == 32);
                let signed = Signed {
                    text: &file[..end],
                    code: code.ok_or(MALFORMED)?,
                };
                return Ok((Self { stanzas }, signed, &file[lines.at..]));
            }
            let words = line.strip_prefix("-> ").ok_or(MALFORMED)?;
            stanzas.extend(read_stanza(words, &mut lines)?);
        }
    }
}

/// Reads a stanza; `None` if it is of another kind.
fn read_stanza(words: &str, lines: &mut Lines<'_>) -> Result<Option<Stanza>, Why> {
    let words: Vec<&str> = words.split(' ').collect();
    if words.iter().any(|word| word.is_empty()) {
        return Err(MALFORMED);
    }
    let mut body = String::new();
    loop {
        let line = lines.next()?;
        body += line;
        match line.len() {
            LINE_CHARACTERS => {}
            ..LINE_CHARACTERS => break,
            _ => return Err(MALFORMED),
        }
    }
    let body = BASE64.decode(body).map_err(|_| MALFORMED)?;
    match words[..] {
        ["X25519", share] => {
            let share = BASE64.decode(share).ok();
            let share = share.and_then(|share| share.try_into().ok());
            if body.len() != FILE_KEY_BYTES + TAG_BYTES {
                return Err(MALFORMED);
            }
            let share = Recipient::new(share.ok_or(MALFORMED)?);
            Ok(Some(Stanza { share, body }))
        }
        ["X25519", ..] => Err(MALFORMED),
        _ => Ok(None),
    }
}

/// Lines of a header.
struct Lines<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a str, Why> {
        let end = self.file.len().min(HEADER_BYTES_MAX);
        let rest = self.file.get(self.at..end).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'\n');
        let line = &rest[..length.ok_or("its header is cut off or too long")?];
        self.at += line.len() + 1;
        if !line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(MALFORMED);
        }
        std::str::from_utf8(line).map_err(|_| MALFORMED)
    }
}
