//! What a web server lists: nginx's index as JSON, or the links of a page.

use std::{collections::BTreeSet, sync::Arc, vec};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;

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
        let answer = pages.place.ask(call).await;
        let answer = answer.map_err(|error| error.with("directory", true))?;
        let kind = text_of(answer.headers(), "content-type").unwrap_or_default();
        let is_json = kind.starts_with("application/json");
        let is_page = kind.starts_with("text/html") || kind.starts_with("application/xhtml");
        let text = read_whole(answer.into_body(), &about).await?;
        let entries = if is_json {
            lines_of(&text)
        } else if is_page {
            Some(links_of(&text, pages.place.origin(), &folder))
        } else {
            None
        };
        let entries = entries.ok_or_else(|| {
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
            is_told: is_json,
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

fn lines_of(text: &[u8]) -> Option<Vec<Entry>> {
    let lines: Vec<Line> = serde_json::from_slice(text).ok()?;
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
    Some(entries.collect())
}

/// The names that links of a page show directly below `folder`, a path that ends with a slash.
fn links_of(page: &Bytes, origin: &str, folder: &str) -> Vec<Entry> {
    let page = String::from_utf8_lossy(page);
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for link in hrefs(&page) {
        let link = unescape(link);
        let link = link.strip_prefix(origin).unwrap_or(&link);
        let relative = link.strip_prefix(folder).unwrap_or(link);
        let relative = relative.strip_prefix("./").unwrap_or(relative);
        if relative.contains(['?', '#']) || relative.contains("://") {
            continue;
        }
        let (name, kind) = match relative.strip_suffix('/') {
            Some(name) => (name, Kind::Directory),
            None => (relative, Kind::File),
        };
        let Some(name) = decode(name).filter(|name| is_name(name)) else {
            continue;
        };
        if seen.insert(name.clone()) {
            entries.push(Entry::bare(name, kind));
        }
    }
    entries
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

/// Undoes the escapes of HTML that occur in addresses.
fn unescape(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Vec<(String, Kind)> {
        links_of(
            &Bytes::copy_from_slice(page.as_bytes()),
            "http://h",
            "/a/b/",
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
            ]
        );
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
        let entries = lines_of(text).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[1].kind, entries[1].size), (Kind::File, 7));
        assert_eq!(entries[1].mtime.unwrap().secs, 1_709_164_800);
        assert!(lines_of(b"{}").is_none());
    }
}
