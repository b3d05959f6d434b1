//! Messages of the plug-in protocol (`docs/reference/plugin-protocol.md`): one JSON object a line;
//! after a line that announces data, its raw bytes.
//!
//! [`Decoder`] accepts any bytes that a process writes and believes none of them: it is pure, so
//! that a fuzzer can play the process.

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::Refusal;

/// Longest line in either direction, including its end, in bytes: a page of a thousand entries
/// whose names are as long as file systems allow.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one message: large enough that its line does not count, small enough that several
/// streams share a pipe fairly.
pub(super) const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// A plug-in's breach of the protocol, in words that follow "the plug-in".
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault(pub String);

impl Fault {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Message of a plug-in.
#[derive(Debug)]
pub(super) enum Answer {
    /// The first message: the plug-in's description and abilities.
    Hello(Value),
    /// Refusal instead of a hello: it can't serve this address.
    Refused(Refusal),
    /// Announcement of `len` bytes of a range.
    Data { id: u64, len: usize },
    /// The plug-in accepts so many more bytes of a write.
    Credit { id: u64, bytes: u64 },
    /// The plug-in still works on the request.
    Alive { id: u64 },
    /// The plug-in carried out the request.
    Done { id: u64, result: Map<String, Value> },
    /// The plug-in could not do it.
    Failed { id: u64, refusal: Refusal },
}

/// A piece that a [`Decoder`] makes of the bytes so far.
#[derive(Debug)]
pub(super) enum Piece {
    /// Whole line.
    Answer(Answer),
    /// Some of the bytes that the last line announced.
    Payload { id: u64, bytes: Bytes },
}

/// A line as it is written. Unknown members are ignored: a later version may add some.
#[derive(Deserialize)]
struct Line {
    id: Option<u64>,
    hello: Option<Value>,
    data: Option<u64>,
    credit: Option<u64>,
    alive: Option<bool>,
    done: Option<Map<String, Value>>,
    error: Option<Refusal>,
}

fn read_line(line: &[u8]) -> Result<Answer, Fault> {
    let unknown = |what: &str| {
        let start = line.len().min(80);
        let shown = String::from_utf8_lossy(&line[..start]).into_owned();
        Fault::new(format!("wrote {what}: {shown:?}"))
    };
    let line: Line = serde_json::from_slice(line)
        .map_err(|cause| unknown(&format!("a line that is no message ({cause})")))?;
    let said = [
        line.hello.is_some(),
        line.data.is_some(),
        line.credit.is_some(),
        line.alive.is_some(),
        line.done.is_some(),
        line.error.is_some(),
    ];
    if said.iter().filter(|said| **said).count() != 1 {
        return Err(unknown("a line that is not one message"));
    }
    if let Some(hello) = line.hello {
        return Ok(Answer::Hello(hello));
    }
    let Some(id) = line.id else {
        return match line.error {
            Some(refusal) => Ok(Answer::Refused(refusal)),
            None => Err(unknown("an answer without an id")),
        };
    };
    if let Some(len) = line.data {
        return match usize::try_from(len) {
            Ok(len @ 1..=PAYLOAD_BYTES_MAX) => Ok(Answer::Data { id, len }),
            Ok(_) | Err(_) => Err(Fault::new(format!(
                "announced {len} bytes where 1 to {PAYLOAD_BYTES_MAX} are allowed"
            ))),
        };
    }
    if let Some(bytes) = line.credit {
        return Ok(Answer::Credit { id, bytes });
    }
    if let Some(refusal) = line.error {
        return Ok(Answer::Failed { id, refusal });
    }
    match line.done {
        Some(result) => Ok(Answer::Done { id, result }),
        None => Ok(Answer::Alive { id }),
    }
}

/// Decoder of a plug-in's output.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// Bytes at the start of the buffer known to hold no line end.
    scanned: usize,
    /// Request of the current payload, and the bytes still missing.
    payload: Option<(u64, usize)>,
}

impl Decoder {
    /// Takes the next piece off the front of `buffer`; `None` if it needs more bytes.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, Fault> {
        if let Some((id, missing)) = self.payload {
            if buffer.is_empty() {
                return Ok(None);
            }
            let bytes = buffer.split_to(missing.min(buffer.len())).freeze();
            let missing = missing - bytes.len();
            self.payload = (missing > 0).then_some((id, missing));
            return Ok(Some(Piece::Payload { id, bytes }));
        }
        let end = buffer[self.scanned..]
            .iter()
            .position(|&byte| byte == b'\n')
            .map(|place| self.scanned + place);
        let len = end.map_or(buffer.len(), |end| end + 1);
        if len > LINE_BYTES_MAX {
            return Err(Fault::new(format!(
                "wrote a line of more than {LINE_BYTES_MAX} bytes"
            )));
        }
        let Some(end) = end else {
            self.scanned = buffer.len();
            return Ok(None);
        };
        self.scanned = 0;
        let line = buffer.split_to(end);
        buffer.advance(1);
        let answer = read_line(&line)?;
        if let Answer::Data { id, len } = answer {
            self.payload = Some((id, len));
        }
        Ok(Some(Piece::Answer(answer)))
    }

    /// Returns whether the output may end here.
    pub(super) fn is_between_messages(&self, buffer: &BytesMut) -> bool {
        self.payload.is_none() && buffer.is_empty()
    }
}

/// Message to a plug-in: a line, and the bytes it announces.
#[derive(Debug)]
pub(super) struct Message {
    pub line: String,
    pub payload: Option<Bytes>,
}

impl Message {
    pub(super) fn of(value: &Value) -> Self {
        Self {
            line: format!("{value}\n"),
            payload: None,
        }
    }

    pub(super) fn data(id: u64, bytes: Bytes) -> Self {
        Self {
            line: format!("{{\"id\":{id},\"data\":{}}}\n", bytes.len()),
            payload: Some(bytes),
        }
    }
}

/// Encodes a name or path as text: bytes that are not UTF-8, and `%` itself, as `%` and two
/// hexadecimal digits.
pub(super) fn encode_name(name: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (place, plain) in chunk.valid().split('%').enumerate() {
            if place > 0 {
                text.push_str("%25");
            }
            text.push_str(plain);
        }
        for byte in chunk.invalid() {
            // Writing to a string can't fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Reads the output of [`encode_name`]; any byte may be written with `%`.
pub(super) fn decode_name(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        name.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(input: &[u8], step: usize) -> Result<Vec<String>, Fault> {
        let mut decoder = Decoder::default();
        let mut buffer = BytesMut::new();
        let mut found: Vec<String> = Vec::new();
        for bytes in input.chunks(step) {
            buffer.extend_from_slice(bytes);
            while let Some(piece) = decoder.next(&mut buffer)? {
                match piece {
                    Piece::Answer(answer) => found.push(format!("{answer:?}")),
                    Piece::Payload { id, bytes } => match found.last_mut() {
                        Some(last) if last.starts_with("payload") => {
                            last.push_str(&String::from_utf8_lossy(&bytes));
                        }
                        _ => {
                            found.push(format!("payload {id}: {}", String::from_utf8_lossy(&bytes)))
                        }
                    },
                }
            }
        }
        assert!(decoder.is_between_messages(&buffer), "{buffer:?} is left");
        Ok(found)
    }

    #[test]
    fn output_means_the_same_however_it_is_cut() {
        let input =
            b"{\"id\":1,\"data\":5}\nab\ncd{\"id\":1,\"done\":{}}\n{\"id\":2,\"alive\":true}\n";
        let whole = pieces(input, input.len()).unwrap();
        assert_eq!(whole.len(), 4, "{whole:?}");
        assert_eq!(whole[1], "payload 1: ab\ncd");
        for step in 1..input.len() {
            assert_eq!(pieces(input, step).unwrap(), whole, "in steps of {step}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for input in [
            "hello?\n",
            "[]\n",
            "{}\n",
            "{\"id\":1}\n",
            "{\"id\":-1,\"alive\":true}\n",
            "{\"id\":1,\"alive\":true,\"credit\":1}\n",
            "{\"id\":1,\"data\":0}\n",
            "{\"id\":1,\"data\":262145}\n",
            "{\"done\":{}}\n",
            "{\"id\":1,\"done\":7}\n",
            "\n",
        ] {
            assert!(pieces(input.as_bytes(), 3).is_err(), "{input}");
        }
        let long = [vec![b' '; LINE_BYTES_MAX], b"{}\n".to_vec()].concat();
        assert!(
            pieces(&long, 4096)
                .unwrap_err()
                .0
                .contains("a line of more")
        );
    }

    #[test]
    fn members_of_a_later_version_are_passed_over() {
        let line = b"{\"id\":1,\"done\":{\"x\":[1]},\"cost\":{\"eur\":3}}\n";
        assert_eq!(pieces(line, 9).unwrap().len(), 1);
    }

    #[test]
    fn names_of_any_bytes_come_back() {
        for name in [
            b"plain/name".as_slice(),
            "\u{e9}\u{20ac}".as_bytes(),
            b"caf\xe9",
            b"100%",
            b"%41",
            b"new\nline",
            b"\xff\xfe\xf0\x9f",
            b"",
        ] {
            let text = encode_name(name);
            assert_eq!(decode_name(&text).as_deref(), Some(name), "{text}");
        }
        assert_eq!(encode_name(b"caf\xe9 5%"), "caf%E9 5%25");
        assert_eq!(decode_name("%4a%4A").as_deref(), Some(b"JJ".as_slice()));
        for bad in ["%", "%4", "%+4", "%zz", "%\u{20ac}"] {
            assert_eq!(decode_name(bad), None, "{bad}");
        }
    }
}
