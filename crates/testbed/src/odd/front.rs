//! A server before a real one that spoils what passes, as gateways and caches do.

use std::{
    fmt::Write as _,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use super::{Answer, Asked, Server};

/// Ways to misbehave. The test chooses the requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spoils {
    /// Answers a range with the whole, which is this.
    Ranges(Vec<u8>),
    /// Answers a range with other bytes of this.
    OtherRanges(Vec<u8>),
    /// Flips one bit of each body.
    Bits,
    /// Flips one bit of each body that is sent.
    Sent,
    /// Omits lengths.
    Lengths,
    /// Ends the connection half way, though a length was given.
    Ends,
    /// Does the request and loses the answer, so many times.
    Answers(u32),
    /// Rejects the last step with 500, and does not do it.
    Finishes,
    /// Answers with a page, like a login page, and does nothing.
    Pages,
    /// Answers 403.
    Rights,
    /// Reports no checksums but an MD5.
    Sums,
}

/// Starts a server before `real`, which spoils the requests that `is_meant` chooses.
pub async fn front(
    real: SocketAddr,
    spoils: Spoils,
    is_meant: impl Fn(&Asked) -> bool + Send + Sync + 'static,
) -> Server {
    let lost = AtomicU32::new(0);
    Server::start(move |asked| {
        if !is_meant(asked) {
            return pass(real, asked);
        }
        match (&spoils, asked.range) {
            (Spoils::Ranges(whole), Some(_)) => {
                let answer = without_length(pass(real, asked));
                Answer::sized(200, &answer.headers, &**whole)
            }
            (Spoils::OtherRanges(whole), Some((first, last))) => {
                let answer = without_length(pass(real, asked));
                let (first, last, all) = (first - 1, last - 1, whole.len());
                let range = format!("content-range: bytes {first}-{last}/{all}\r\n");
                let headers = answer.headers + &range;
                Answer::sized(206, &headers, &whole[first..=last])
            }
            (Spoils::Ranges(_) | Spoils::OtherRanges(_), None) => pass(real, asked),
            (Spoils::Bits, _) => {
                let mut answer = pass(real, asked);
                let middle = answer.body.len() / 2;
                if let Some(byte) = answer.body.get_mut(middle) {
                    *byte ^= 1;
                }
                answer
            }
            (Spoils::Sent, _) => {
                let mut asked = asked.clone();
                let middle = asked.body.len() / 2;
                if let Some(byte) = asked.body.get_mut(middle) {
                    *byte ^= 1;
                }
                pass(real, &asked)
            }
            (Spoils::Lengths, _) => chunked(without_length(pass(real, asked))),
            (Spoils::Ends, _) => {
                let mut answer = pass(real, asked);
                answer.body.truncate(answer.body.len() / 2);
                answer
            }
            (Spoils::Answers(times), _) => {
                let answer = pass(real, asked);
                match lost.fetch_add(1, SeqCst) < *times {
                    true => Answer::lost(),
                    false => answer,
                }
            }
            (Spoils::Finishes, _) => Answer::sized(500, "", ""),
            (Spoils::Pages, _) => {
                Answer::sized(200, "content-type: text/html\r\n", "<p>Please log in</p>")
            }
            (Spoils::Rights, _) => Answer::sized(403, "", ""),
            (Spoils::Sums, _) => {
                let answer = pass(real, asked);
                let lines = answer.headers.split_inclusive("\r\n");
                let is_sum = |line: &&str| line.to_ascii_lowercase().starts_with("x-amz-checksum");
                let headers = lines.filter(|line| !is_sum(line)).collect();
                Answer { headers, ..answer }
            }
        }
    })
    .await
}

/// Forwards the request to the real server and returns its answer unchanged.
fn pass(real: SocketAddr, asked: &Asked) -> Answer {
    tokio::task::block_in_place(|| {
        let mut head = format!("{} {} HTTP/1.1\r\n", asked.method, asked.target);
        for (name, value) in &asked.headers {
            if !["connection", "expect"].contains(&&**name) {
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        head.push_str("connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(real).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&asked.body).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        answer_in(&bytes, &asked.method)
    })
}

fn answer_in(bytes: &[u8], method: &str) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.expect("the server answers");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let (mut kept, mut is_chunked) = (String::new(), false);
    for line in headers.split("\r\n") {
        let lower = line.to_ascii_lowercase();
        if lower.starts_with("transfer-encoding:") {
            is_chunked = true;
        } else if !lower.starts_with("connection:") {
            let _ = write!(kept, "{line}\r\n");
        }
    }
    let mut body = bytes[end + 4..].to_vec();
    if is_chunked && method != "HEAD" {
        body = whole_of(&body);
        let _ = write!(kept, "content-length: {}\r\n", body.len());
    }
    Answer::new(status, &kept, body)
}

/// Returns a body sent in chunks.
fn whole_of(mut chunks: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = chunks.windows(2).position(|window| window == b"\r\n");
        let line = line.expect("a chunk has a length");
        let length = std::str::from_utf8(&chunks[..line]).unwrap();
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        let start = line + 2;
        whole.extend_from_slice(&chunks[start..start + length]);
        chunks = &chunks[start + length + 2..];
    }
}

/// Returns the answer without its length.
fn without_length(answer: Answer) -> Answer {
    let mut headers = String::new();
    for line in answer.headers.split_inclusive("\r\n") {
        let lower = line.to_ascii_lowercase();
        if !["content-length:", "content-range:"]
            .iter()
            .any(|name| lower.starts_with(name))
        {
            headers.push_str(line);
        }
    }
    Answer { headers, ..answer }
}

/// Returns the answer in one chunk.
fn chunked(answer: Answer) -> Answer {
    let mut body = Vec::new();
    if !answer.body.is_empty() {
        body.extend(format!("{:x}\r\n", answer.body.len()).into_bytes());
        body.extend(answer.body);
        body.extend(b"\r\n");
    }
    body.extend(b"0\r\n\r\n");
    let headers = answer.headers + "transfer-encoding: chunked\r\n";
    Answer::new(answer.status, &headers, body)
}
