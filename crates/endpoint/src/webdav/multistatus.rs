//! Answers to PROPFIND (RFC 4918, section 14), read while they arrive: a folder of any size costs
//! no more memory than one page of it.

use http::StatusCode;
use serde::Deserialize;

use crate::{Kind, dates, endpoint::Entry, web::decode};

/// Body of a PROPFIND request: the properties asked for.
pub(super) const QUESTION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\
    <propfind xmlns=\"DAV:\"><prop><resourcetype/><getcontentlength/><getlastmodified/><getetag/>\
    </prop></propfind>";

/// Longest description of one file accepted, in bytes: a name of 4 KiB, escaped, and a margin.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Deserialize)]
struct Response {
    href: String,
    /// Status of the element, if nothing is reported about it.
    status: Option<String>,
    #[serde(default, rename = "propstat")]
    propstats: Vec<PropStat>,
}

/// Facts in one element.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub path: Vec<u8>,
    pub entry: Entry,
    /// Set if the file's size was reported: an unreported size is not zero.
    pub has_size: bool,
    /// Status of an element that reports nothing else: it is gone, or nobody may look at it.
    pub refusal: Option<StatusCode>,
}

#[derive(Debug, Deserialize)]
struct PropStat {
    prop: Properties,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Properties {
    resourcetype: Option<ResourceType>,
    getcontentlength: Option<String>,
    getlastmodified: Option<String>,
    getetag: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ResourceType {
    collection: Option<serde::de::IgnoredAny>,
}

/// Divider of an XML stream into its `response` elements.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    buffer: Vec<u8>,
    /// Offset before which nothing ends.
    searched: usize,
}

impl Cutter {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next whole element: an entry and its path.
    ///
    /// # Errors
    /// The fault in the element.
    pub(super) fn next(&mut self) -> Option<Result<Told, String>> {
        let Some((start, end)) = self.find() else {
            if self.buffer.len() > RESPONSE_BYTES_MAX {
                return Some(Err("the description of a file has no end".to_owned()));
            }
            return None;
        };
        let read = read_response(&self.buffer[start..end]);
        self.buffer.drain(..end);
        self.searched = 0;
        Some(read)
    }

    /// Returns whether the document has ended, once nothing more arrives.
    pub(super) fn has_ended(&self) -> bool {
        const NAME: &[u8] = b"multistatus";
        let mut from = 0;
        while let Some(found) = find(&self.buffer[from..], NAME) {
            let place = from + found;
            from = place + NAME.len();
            let start = place - tag_prefix(&self.buffer[..place]);
            let is_empty = || {
                let mut rest = self.buffer[from..].iter();
                let end = rest.position(|&byte| byte == b'>');
                end.is_some_and(|end| end > 0 && self.buffer[from + end - 1] == b'/')
            };
            if self.buffer[..start].ends_with(b"</") || is_empty() {
                return true;
            }
        }
        false
    }

    /// Finds the first whole element.
    fn find(&mut self) -> Option<(usize, usize)> {
        const NAME: &[u8] = b"response>";
        let mut from = self.searched;
        while let Some(found) = find(&self.buffer[from..], NAME) {
            let place = from + found;
            let end = place + NAME.len();
            let head = &self.buffer[..place];
            let prefix = head.len() - tag_prefix(head);
            if head[..prefix].ends_with(b"</") {
                return Some((self.start_of(&head[..prefix - 2]), end));
            }
            from = end;
        }
        // The name may be cut by the end of the buffer.
        self.searched = self.buffer.len().saturating_sub(NAME.len());
        None
    }

    /// Finds where the element's own tag begins; the head of the document may precede it.
    fn start_of(&self, head: &[u8]) -> usize {
        let mut from = 0;
        while let Some(found) = find(&head[from..], b"response") {
            let place = from + found;
            let prefix = place - tag_prefix(&head[..place]);
            let ends = head
                .get(place + 8)
                .is_none_or(|byte| b"> \t\r\n/".contains(byte));
            if head[..prefix].ends_with(b"<") && ends {
                return prefix - 1;
            }
            from = place + 8;
        }
        0
    }
}

/// Returns the length of the namespace's prefix at the end of `head`, with its colon.
fn tag_prefix(head: &[u8]) -> usize {
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    head.iter().rev().take_while(is_name).count()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

fn read_response(xml: &[u8]) -> Result<Told, String> {
    let text = std::str::from_utf8(xml).map_err(|_| "its answer is not UTF-8".to_owned())?;
    let response: Response = quick_xml::de::from_str(text).map_err(|cause| cause.to_string())?;
    let mut entry = Entry::bare(Vec::new(), Kind::File);
    let mut has_size = false;
    for propstat in response.propstats {
        if propstat
            .status
            .is_some_and(|status| !status.contains(" 200"))
        {
            continue;
        }
        let told = propstat.prop;
        if told
            .resourcetype
            .is_some_and(|kind| kind.collection.is_some())
        {
            entry.kind = Kind::Directory;
        }
        if let Some(size) = told
            .getcontentlength
            .and_then(|text| text.trim().parse().ok())
        {
            entry.size = size;
            has_size = true;
        }
        if let Some(text) = told.getlastmodified {
            entry.mtime = dates::parse_http(text.trim());
        }
        if let Some(text) = told.getetag {
            entry.version = Some(text.trim().into());
        }
    }
    if entry.kind == Kind::Directory {
        entry = Entry::bare(Vec::new(), Kind::Directory);
    }
    let status = response.status.as_deref().and_then(code_of);
    Ok(Told {
        path: path_of(response.href.trim()),
        entry,
        has_size,
        refusal: status.filter(|status| !status.is_success()),
    })
}

/// Returns the code of a line such as `HTTP/1.1 403 Forbidden`.
fn code_of(line: &str) -> Option<StatusCode> {
    let code = line.split_whitespace().nth(1)?;
    StatusCode::from_bytes(code.as_bytes()).ok()
}

/// Returns the path and the status of a refused change, in an answer about several resources (RFC
/// 4918, section 13).
pub(super) fn refused_member(answer: &[u8]) -> Option<(Vec<u8>, StatusCode)> {
    let mut cutter = Cutter::default();
    cutter.add(answer);
    while let Some(told) = cutter.next() {
        match told {
            Ok(Told {
                path,
                refusal: Some(status),
                ..
            }) => return Some((path, status)),
            Ok(_) => {}
            Err(_) => return None,
        }
    }
    None
}

/// Returns the path that an `href` names, without a slash at its end. Broken escapes stay as they
/// are: some servers escape nothing.
fn path_of(href: &str) -> Vec<u8> {
    let path = match href.split_once("://") {
        Some((_, rest)) if !href.starts_with('/') => &rest[rest.find('/').unwrap_or(rest.len())..],
        Some(_) | None => href,
    };
    let mut path = decode(path).unwrap_or_else(|| path.as_bytes().to_vec());
    while path.last() == Some(&b'/') {
        path.pop();
    }
    path
}

/// Parses an answer in steps, for [`crate::fuzzing`].
pub(crate) fn try_listing(data: &[u8]) {
    let Some((&step, body)) = data.split_first() else {
        return;
    };
    let mut cutter = Cutter::default();
    let mut found = 0;
    for piece in body.chunks(usize::from(step).max(1)) {
        cutter.add(piece);
        while let Some(next) = cutter.next() {
            if next.is_err() {
                return;
            }
            found += 1;
            assert!(found <= body.len(), "more was read than was there");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "<?xml version=\"1.0\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n\
        <D:response><D:href>/a/response%3E/</D:href><D:propstat><D:prop><D:resourcetype>\
        <D:collection/></D:resourcetype><D:getlastmodified>Thu, 29 Feb 2024 00:00:00 GMT\
        </D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
        <D:propstat><D:prop><D:getcontentlength/></D:prop><D:status>HTTP/1.1 404 Not Found\
        </D:status></D:propstat></D:response>\
        <response xmlns=\"DAV:\"><href>http://h:1/a/b&amp;c%20d</href><propstat><prop>\
        <resourcetype/><getcontentlength>12</getcontentlength><getetag>\"e\"</getetag></prop>\
        <status>HTTP/1.1 200 OK</status></propstat></response></D:multistatus>";

    fn read(pieces: &[&[u8]]) -> Vec<Told> {
        let mut cutter = Cutter::default();
        let mut found = Vec::new();
        for piece in pieces {
            cutter.add(piece);
            while let Some(next) = cutter.next() {
                found.push(next.unwrap());
            }
        }
        assert!(cutter.has_ended());
        found
    }

    #[test]
    fn answers_are_read_wherever_they_are_torn() {
        let whole = read(&[ANSWER.as_bytes()]);
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0].path, b"/a/response>");
        assert_eq!(whole[0].entry.kind, Kind::Directory);
        assert_eq!(whole[1].path, b"/a/b&c d");
        let entry = &whole[1].entry;
        assert_eq!((entry.kind, entry.size), (Kind::File, 12));
        assert_eq!(entry.version.as_deref(), Some("\"e\""));
        for cut in 0..ANSWER.len() {
            let (head, tail) = ANSWER.as_bytes().split_at(cut);
            assert_eq!(read(&[head, tail]), whole, "torn at {cut}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_has_not_ended() {
        let end = ANSWER.len() - "</D:multistatus>".len();
        for cut in [0, 80, end, end + 3] {
            let mut cutter = Cutter::default();
            cutter.add(&ANSWER.as_bytes()[..cut]);
            while cutter.next().is_some() {}
            assert!(!cutter.has_ended(), "cut at {cut}");
        }
        let mut empty = Cutter::default();
        empty.add(b"<d:multistatus xmlns:d=\"DAV:\" />");
        assert!(empty.has_ended());
    }

    #[test]
    fn a_refused_member_of_a_change_is_found() {
        let answer = "<d:multistatus xmlns:d='DAV:'><d:response><d:href>/a</d:href><d:status>\
            HTTP/1.1 204 No Content</d:status></d:response><d:response><d:href>/a/b</d:href>\
            <d:status>HTTP/1.1 423 Locked</d:status></d:response></d:multistatus>";
        let found = refused_member(answer.as_bytes());
        assert_eq!(found, Some((b"/a/b".to_vec(), StatusCode::LOCKED)));
        assert_eq!(refused_member(b"<x/>"), None);
    }

    #[test]
    fn nonsense_is_an_error_and_not_a_loop() {
        let mut cutter = Cutter::default();
        cutter.add(b"<response><href></response>");
        assert!(cutter.next().unwrap().is_err());
        assert!(cutter.next().is_none());
        cutter.add(&vec![b'x'; RESPONSE_BYTES_MAX + 1]);
        assert!(cutter.next().unwrap().is_err());
    }
}
