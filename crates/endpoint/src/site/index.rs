//! What a web server lists: nginx's index as JSON, or the links of a page.

use std::{collections::BTreeSet, sync::Arc, vec};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Uri, uri::Authority};
use serde::Deserialize;

use super::html;
use crate::{
    ErrorKind, Locus, Result, dates,
    endpoint::{Boxed, Entry, Kind, Listing, join},
    web::{Call, Pages, decode, read_whole, text_of},
};

/// Files asked for at once: a page of links tells names only.
const QUESTIONS_AT_ONCE: usize = 16;

/// Entries of one page of a listing.
const PAGE_ENTRIES: usize = 512;

/// A line of nginx's index with `autoindex_format json`.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    mtime: Option<String>,
    size: Option<u64>,
}

pub(super) struct SiteListing {
    pages: Arc<Pages>,
    path: Vec<u8>,
    entries: vec::IntoIter<Entry>,
    /// The index told sizes and times; otherwise each file is asked for its own.
    is_told: bool,
}

impl SiteListing {
    pub(super) async fn open(pages: Arc<Pages>, path: Vec<u8>) -> Result<Self> {
        let about = pages.about("list", &path);
        let folder = pages.place.folder_target(&path);
        let call = Call::new("GET", folder.clone(), about.clone())
            .header("accept", "application/json, text/html;q=0.9")
            .header("accept-encoding", "identity");
        let answer = pages.place.send(call).await?;
        if !answer.response.status().is_success() {
            let error = pages.place.refusal(answer.response, &about).await;
            return Err(error.with("directory", true));
        }
        let (head, body) = answer.response.into_parts();
        let kind = text_of(&head.headers, "content-type").unwrap_or_default();
        let is_json = kind.starts_with("application/json");
        let is_page = kind.starts_with("text/html") || kind.starts_with("application/xhtml");
        let has_end = ["content-length", "transfer-encoding"]
            .iter()
            .any(|name| head.headers.contains_key(*name));
        let text = read_whole(body, &about).await?;
        let entries = if is_json {
            lines_of(&text)
        } else if is_page {
            if is_cut(&text, has_end) {
                let error = about.fail(ErrorKind::Unreachable);
                return Err(error.cause("the server's list ended early"));
            }
            Some((links_of(&text, &answer.from), false))
        } else {
            None
        };
        let (entries, is_told) = entries.ok_or_else(|| {
            about
                .fail(ErrorKind::Unsupported)
                .cause("the server sends no list of what is there")
                .hint("name the files, or let the server make an index")
                .at(Locus::Source)
        })?;
        Ok(Self {
            pages,
            path,
            entries: entries.into_iter(),
            is_told,
        })
    }

    /// The entry a file itself tells. A file that can't be looked at is listed: whoever reads it
    /// will be told why.
    async fn ask(&self, entry: Entry) -> Option<Entry> {
        if self.is_told || entry.kind == Kind::Directory {
            return Some(entry);
        }
        let path = join(&self.path, &entry.name);
        match self.pages.look_at(&path).await {
            Ok(found) => found.map(|found| Entry {
                name: entry.name,
                ..found
            }),
            Err(_) => Some(entry),
        }
    }
}

impl Listing for SiteListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            // A page whose files are all gone is not the end.
            loop {
                let names: Vec<Entry> = self.entries.by_ref().take(PAGE_ENTRIES).collect();
                let is_end = names.is_empty();
                let asked = stream::iter(names).map(|entry| self.ask(entry));
                let found: Vec<_> = asked.buffered(QUESTIONS_AT_ONCE).collect().await;
                let page: Vec<Entry> = found.into_iter().flatten().collect();
                if is_end || !page.is_empty() {
                    return Ok(page);
                }
            }
        })
    }
}

/// What an index in JSON tells, and whether it tells all sizes.
fn lines_of(text: &[u8]) -> Option<(Vec<Entry>, bool)> {
    let lines: Vec<Line> = serde_json::from_slice(text).ok()?;
    let is_told = |line: &Line| line.kind != "file" || line.size.is_some();
    let is_told = lines.iter().all(is_told);
    let entries = lines
        .into_iter()
        .filter(|line| is_name(line.name.as_bytes()));
    let entries = entries.map(|line| {
        let kind = match &*line.kind {
            "file" => Kind::File,
            "directory" => Kind::Directory,
            _ => Kind::Special,
        };
        Entry {
            size: line.size.unwrap_or(0),
            mtime: line.mtime.as_deref().and_then(dates::parse_http),
            ..Entry::bare(line.name.into_bytes(), kind)
        }
    });
    Some((entries.collect(), is_told))
}

/// Whether a page lacks its end. One that never began as a page may end where its answer does, if that end was said.
fn is_cut(page: &[u8], has_end: bool) -> bool {
    let page = page.to_ascii_lowercase();
    let has = |tag: &[u8]| page.windows(tag.len()).any(|found| found == tag);
    !has(b"</html") && (has(b"<html") || !has_end)
}

/// The names that links of a page show directly below its own address.
fn links_of(page: &Bytes, from: &Uri) -> Vec<Entry> {
    let page = String::from_utf8_lossy(page);
    let host = from.authority().map_or("", Authority::as_str);
    let origin = format!("{}://{host}", from.scheme_str().unwrap_or_default());
    let folder = from
        .path()
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let folder = [&*unescaped(folder), b"/"].concat();
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for link in hrefs(&page) {
        let link = html::unescape(link);
        let link = link.strip_prefix(&origin).unwrap_or(&link);
        let is_elsewhere = link.starts_with("//") || link.contains("://");
        if link.contains(['?', '#']) || is_elsewhere {
            continue;
        }
        let path = unescaped(link);
        let relative = path.strip_prefix(&*folder).unwrap_or(&path);
        let relative = relative.strip_prefix(b"./").unwrap_or(relative);
        let (name, kind) = match relative.strip_suffix(b"/") {
            Some(name) => (name, Kind::Directory),
            None => (relative, Kind::File),
        };
        if is_name(name) && seen.insert(name.to_vec()) {
            entries.push(Entry::bare(name.to_vec(), kind));
        }
    }
    entries
}

/// The bytes of a path. What is no escape is taken as it stands: some servers escape nothing.
fn unescaped(path: &str) -> Vec<u8> {
    decode(path).unwrap_or_else(|| path.as_bytes().to_vec())
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// What the `href` of each `<a>` says.
fn hrefs(page: &str) -> impl Iterator<Item = &str> {
    let mut rest = page;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find('<')?;
            rest = &rest[start + 1..];
            let end = rest.find('>').unwrap_or(rest.len());
            let (tag, after) = rest.split_at(end);
            rest = after;
            let is_link = tag.get(..2).is_some_and(|name| {
                name.eq_ignore_ascii_case("a ") || name.eq_ignore_ascii_case("a\n")
            });
            if is_link && let Some(link) = href_of(tag) {
                return Some(link);
            }
        }
    })
}

fn href_of(tag: &str) -> Option<&str> {
    let start = tag.char_indices().map(|(place, _)| place).find(|&place| {
        let name = tag.get(place..place + 5);
        name.is_some_and(|name| name.eq_ignore_ascii_case("href="))
    })?;
    let value = &tag[start + 5..];
    match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next(),
        _ => value.split_whitespace().next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Vec<(String, Kind)> {
        links_of(
            &Bytes::copy_from_slice(page.as_bytes()),
            &Uri::from_static("http://h/a/b/"),
        )
        .into_iter()
        .map(|entry| (String::from_utf8(entry.name).unwrap(), entry.kind))
        .collect()
    }

    #[test]
    fn links_below_the_folder_are_names() {
        let page = "<html><a href=\"../\">../</a>\n<A HREF='c%20d'>c d</A><a href=e/>e</a>\
            <a href=\"?C=N;O=D\">Name</a><a href=\"/a/b/f&amp;g\">f</a><a href=\"/a/\">up</a>\
            <a href=\"http://h/a/b/h\">h</a><a href=\"http://other/x\">x</a>\
            <a href=\"c%20d\">again</a><a class=\"x\" href=\"./i%2fj\">no</a><a name=\"k\">\
            <a href=\"#l\">l</a><a href=\"%zz\">broken</a><abbr href=\"m\"><a href=\"n/o\">";
        assert_eq!(
            names(page),
            [
                ("c d".to_owned(), Kind::File),
                ("e".to_owned(), Kind::Directory),
                ("f&g".to_owned(), Kind::File),
                ("h".to_owned(), Kind::File),
                ("%zz".to_owned(), Kind::File),
            ]
        );
    }

    #[test]
    fn names_are_those_of_whatever_escapes_servers_use() {
        let page = "<html><a href=\"a&#43;b\"><a href=\"a&#x2B;c\"><a href=\"a&plus;d\">\
            <a href=\"/%61/b/e f\"><a href=\"//h/a/b/g\"><a href=\"a&amp;amp;h\">";
        let found = names(page);
        let found: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["a+b", "a+c", "a+d", "e f", "a&amp;h"]);
    }

    #[test]
    fn a_page_without_its_end_is_cut() {
        for (page, has_end, cut) in [
            ("<HTML><a href=a></HTML>", false, false),
            ("<html><a href=a>", true, true),
            ("<a href=a>", true, false),
            ("<a href=a>", false, true),
        ] {
            assert_eq!(is_cut(page.as_bytes(), has_end), cut, "{page}");
        }
    }

    #[test]
    fn broken_pages_end() {
        for page in [
            "",
            "<",
            "<a",
            "<a href",
            "<a href=",
            "<a href=\"",
            "é<a é href='é",
        ] {
            names(page);
        }
    }

    #[test]
    fn an_index_in_json_tells_all() {
        let text = br#"[{"name":"d","type":"directory","mtime":"Thu, 29 Feb 2024 00:00:00 GMT"},
            {"name":"f","type":"file","mtime":"Thu, 29 Feb 2024 00:00:00 GMT","size":7},
            {"name":"..","type":"directory"}]"#;
        let (entries, is_told) = lines_of(text).unwrap();
        assert!(is_told);
        let (_, is_told) = lines_of(br#"[{"name":"f","type":"file"}]"#).unwrap();
        assert!(!is_told, "a size that is not told is not zero");
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[1].kind, entries[1].size), (Kind::File, 7));
        assert_eq!(entries[1].mtime.unwrap().secs, 1_709_164_800);
        assert!(lines_of(b"{}").is_none());
    }
}
