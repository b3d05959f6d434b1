//! Listings of web servers: nginx's index as JSON, or the links of a page.

use std::{collections::BTreeSet, sync::Arc, vec};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Uri, uri::Authority};
use serde::Deserialize;

use super::html::{self, hrefs};
use crate::{
    ErrorKind, Locus, Result, dates,
    endpoint::{Boxed, Entry, FileTime, Kind, Listing, join},
    objects::listed_size,
    web::{
        Call, Pages, check_coding, check_status, decode, is_page, read_whole, refuse_login, text_of,
    },
};

/// Files asked for at once: a page of links has names only.
const QUESTIONS_AT_ONCE: usize = 16;

/// Smallest number that is no time in seconds: in milliseconds it is a time of our days, in seconds
/// one of the year 5138.
const SECONDS_END: i64 = 100_000_000_000;

/// Entries of one page of a listing.
const PAGE_ENTRIES: usize = 512;

/// Line of nginx's index with `autoindex_format json`.
#[derive(Debug, Deserialize)]
struct Line {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    mtime: Option<serde_json::Value>,
    size: Option<serde_json::Value>,
}

pub(super) struct SiteListing {
    pages: Arc<Pages>,
    path: Vec<u8>,
    entries: vec::IntoIter<Entry>,
    /// Set if the index reported sizes and times; otherwise each file is asked for its own.
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
        check_status(&answer.response, &about)?;
        check_coding(answer.response.headers(), b"", &about)?;
        let headers = answer.response.headers();
        let kind = text_of(headers, "content-type").unwrap_or_default();
        let (is_json, is_page) = (kind.starts_with("application/json"), is_page(headers));
        let login = refuse_login(&answer, &about);
        let (head, body) = answer.response.into_parts();
        let has_end = ["content-length", "transfer-encoding"]
            .iter()
            .any(|name| head.headers.contains_key(*name));
        let text = read_whole(body, &about).await?;
        // What people name may be another address of the list.
        if is_page && (!path.is_empty() || asks_for_password(&text)) {
            login.map_err(|error| error.with("directory", true))?;
        }
        let entries = if is_json {
            lines_of(&text)
        } else if is_page {
            if is_cut(&text, has_end) {
                let error = about.fail(ErrorKind::Unreachable);
                return Err(error.cause("the server's list ended early"));
            }
            let links = links_of(&text, &answer.from);
            let links = links.map_err(|(cause, hint)| {
                let error = about.fail(ErrorKind::Unsupported).cause(cause);
                error.hint(hint).at(Locus::Source)
            })?;
            Some((links, false))
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

    /// Returns the entry that a file itself reports. A file that can't be looked at, or is not
    /// there, is listed: its reader gets the reason.
    async fn ask(&self, entry: Entry) -> Entry {
        if self.is_told || entry.kind == Kind::Directory {
            return entry;
        }
        let path = join(&self.path, &entry.name);
        match self.pages.look_at(&path).await {
            Ok(Some(found)) => Entry {
                name: entry.name,
                ..found
            },
            Ok(None) | Err(_) => entry,
        }
    }
}

impl Listing for SiteListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            let names: Vec<Entry> = self.entries.by_ref().take(PAGE_ENTRIES).collect();
            let asked = stream::iter(names).map(|entry| self.ask(entry));
            Ok(asked.buffered(QUESTIONS_AT_ONCE).collect().await)
        })
    }
}

/// Returns the entries of an index in JSON, and whether it reports all sizes.
fn lines_of(text: &[u8]) -> Option<(Vec<Entry>, bool)> {
    // Names are bytes, and servers write them unchanged.
    let is_text = std::str::from_utf8(text).is_ok();
    let lines: Vec<Line> = match is_text {
        true => serde_json::from_slice(text).ok()?,
        false => serde_json::from_str(&marked(text)).ok()?,
    };
    let is_told = |line: &Line| line.kind != "file" || line.size.is_some();
    let is_told = lines.iter().all(is_told);
    let is_own = |line: &Line| matches!(&*line.name, "" | "." | "..");
    let entries = lines.into_iter().filter(|line| !is_own(line));
    let entries = entries.map(|line| {
        let kind = match &*line.kind {
            "file" => Kind::File,
            "directory" => Kind::Directory,
            _ => Kind::Special,
        };
        Entry {
            size: line.size.map_or(0, |size| listed_size(&size.to_string())),
            mtime: line.mtime.as_ref().and_then(time_of),
            ..Entry::bare(
                match is_text {
                    true => line.name.into_bytes(),
                    false => unmarked(&line.name),
                },
                kind,
            )
        }
    });
    Some((entries.collect(), is_told))
}

/// Reads a time as nginx or other servers write it: as RFC 3339, or as seconds since 1970. Any
/// other form is unknown: the file is asked for it.
fn time_of(told: &serde_json::Value) -> Option<FileTime> {
    if let Some(text) = told.as_str() {
        return dates::parse_http(text).or_else(|| dates::parse_rfc3339(text));
    }
    let secs = told.as_i64().filter(|secs| *secs < SECONDS_END);
    secs.map(|secs| FileTime { secs, nanos: 0 })
}

/// First of the code points that stand for bytes that are no text; the byte is added. Nobody's
/// letters are here.
const BYTES: u32 = 0x10_fe00;

/// Returns text in which a letter stands for each byte that is none.
fn marked(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        let letters = chunk.invalid().iter();
        text.extend(letters.filter_map(|byte| char::from_u32(BYTES + u32::from(*byte))));
    }
    text
}

/// Returns the bytes from which [`marked`] made this text.
fn unmarked(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match u32::from(letter).checked_sub(BYTES).map(u8::try_from) {
            Some(Ok(byte)) => bytes.push(byte),
            Some(Err(_)) | None => {
                bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    bytes
}

/// Returns whether a page has a field for a password.
fn asks_for_password(page: &[u8]) -> bool {
    let page = String::from_utf8_lossy(page).to_ascii_lowercase();
    page.replace(['"', '\''], "").contains("type=password")
}

/// Returns whether a page lacks its end. A document that never began as a page may end where its
/// answer does, if the answer's end was reported.
fn is_cut(page: &[u8], has_end: bool) -> bool {
    let page = page.to_ascii_lowercase();
    let has = |tag: &[u8]| page.windows(tag.len()).any(|found| found == tag);
    !has(b"</html") && (has(b"<html") || !has_end)
}

/// Returns the entries below the page's own address that its links show. Links that can't be a name
/// are included: the caller reports them as left out.
///
/// # Errors
/// The reason why the list would be incomplete, and a hint.
fn links_of(page: &Bytes, from: &Uri) -> Result<Vec<Entry>, (String, &'static str)> {
    let page = String::from_utf8_lossy(page);
    let folder = Folder::of(from);
    if let Some(base) = hrefs(&page, "base").find(|base| !folder.is_itself(base)) {
        let base = html::unescape(base);
        let cause = format!("the links of its list are meant from another address ({base})");
        return Err((cause, "copy from there"));
    }
    if let Some(next) = hrefs(&page, "a").find(|link| folder.has_more_at(link)) {
        let next = html::unescape(next);
        let cause = format!("its list has further pages ({next}), which are not read");
        return Err((
            cause,
            "name the files, or let the server list all on one page",
        ));
    }
    let links: Vec<Link> = hrefs(&page, "a")
        .filter_map(|link| folder.link(link))
        .collect();
    let plain = links.iter().filter(|link| link.is_plain());
    let plain: BTreeSet<Vec<u8>> = plain.map(|link| link.name.clone()).collect();
    let mut seen = BTreeSet::new();
    let mut entries = Vec::new();
    for link in links {
        // Either another view of a listed file, or a file that the page of a listed directory will
        // show.
        let is_listed = link
            .inside
            .as_ref()
            .is_some_and(|shown| plain.contains(shown));
        if !is_listed && seen.insert(link.name.clone()) {
            entries.push(Entry::bare(link.name, link.kind));
        }
    }
    if entries.is_empty() && !folder.is_index(&page) {
        return Err((
            "the server has a page there, and no list of files".into(),
            "name the files, index.html for one, or let the server make an index",
        ));
    }
    Ok(entries)
}

/// Returns whether a query asks for more of a list than its first page; others ask for another
/// order.
fn asks_for_more(query: &str) -> bool {
    query.split(['&', ';']).any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_over = |first| value.parse::<u64>().is_ok_and(|number| number > first);
        match &*key.to_ascii_lowercase() {
            "page" | "p" | "paged" | "pageno" => is_over(1),
            "offset" | "start" | "skip" => is_over(0),
            "marker" | "cursor" | "after" | "continuation-token" => !value.is_empty(),
            _ => false,
        }
    })
}

/// Returns whether a query asks for a list in another order or form.
fn asks_for_order(query: &str) -> bool {
    let (key, _) = query.split_once('=').unwrap_or_default();
    ["c", "o", "sort", "order", "layout"].contains(&&*key.to_ascii_lowercase())
}

/// Link to something below a folder.
struct Link {
    name: Vec<u8>,
    kind: Kind,
    /// File whose view it is, or the directory in which it lies.
    inside: Option<Vec<u8>>,
}

impl Link {
    /// Returns whether the name is plain, and no path to something else.
    fn is_plain(&self) -> bool {
        self.inside.is_none() && !self.name.contains(&b'/') && !self.name.contains(&0)
    }
}

/// Address of a page, against which its links are resolved (RFC 3986, section 5).
struct Folder<'a> {
    host: &'a str,
    /// Path with a slash at both ends, and no escapes.
    path: Vec<u8>,
}

impl<'a> Folder<'a> {
    fn of(page: &'a Uri) -> Self {
        let folder = page.path().rsplit_once('/');
        let folder = folder.map_or("", |(folder, _)| folder);
        Self {
            host: page.authority().map_or("", Authority::as_str),
            path: [&*unescaped(folder), b"/"].concat(),
        }
    }

    /// Returns the entry below the folder to which a link leads. Returns `None` for links
    /// elsewhere: to the folder above, to other hosts, to the same page in another order.
    fn link(&self, link: &str) -> Option<Link> {
        let link = html::unescape(link);
        let path = self.on_this_host(&link)?;
        let end = path.find(['?', '#']).unwrap_or(path.len());
        let below = self.below(&path[..end])?;
        let (below, kind) = match below.strip_suffix('/') {
            Some(directory) => (directory, Kind::Directory),
            None => (below, Kind::File),
        };
        let name = unescaped(below);
        if matches!(&*name, b"" | b"." | b"..") || name.starts_with(b"../") {
            return None;
        }
        if end < path.len() {
            // Servers that escape nothing have such names too; reading them shows it.
            let whole = [&*name, &*unescaped(&path[end..])].concat();
            return Some(Link {
                name: whole,
                kind: Kind::File,
                inside: Some(name),
            });
        }
        let above = below.split_once('/').map(|(above, _)| unescaped(above));
        Some(Link {
            name,
            kind,
            inside: above,
        })
    }

    /// Returns whether an address is that of the folder, or of something else that lies in it.
    fn is_itself(&self, address: &str) -> bool {
        let address = html::unescape(address);
        let path = self.on_this_host(&address);
        let below = path.and_then(|path| self.below(path));
        below.is_some_and(|below| !below.contains('/') && below != "..")
    }

    /// Returns whether a link leads to a further page of the folder's list.
    fn has_more_at(&self, link: &str) -> bool {
        self.shows_itself(link, asks_for_more)
    }

    /// Returns whether a link leads to the folder again, with such a query.
    fn shows_itself(&self, link: &str, is_wanted: fn(&str) -> bool) -> bool {
        let link = html::unescape(link);
        let query = link.split_once('#').map_or(&*link, |(link, _)| link);
        query.split_once('?').is_some_and(|(address, query)| {
            is_wanted(query)
                && (address.is_empty() || {
                    let path = self.on_this_host(address);
                    path.and_then(|path| self.below(path)) == Some("")
                })
        })
    }

    /// Returns whether a page on which no file is shown is the index of an empty folder, by what
    /// servers write on each.
    fn is_index(&self, page: &str) -> bool {
        let is_of_index =
            |(link, text)| self.leads_up(link, text) || self.shows_itself(link, asks_for_order);
        html::is_titled_index(page)
            || html::is_empty_list(page)
            || html::anchors(page).any(is_of_index)
    }

    /// Returns whether a link with this text leads to the folder above. By its address alone a link
    /// to the home page does too.
    fn leads_up(&self, link: &str, text: &str) -> bool {
        let link = html::unescape(link);
        let Some(path) = self.on_this_host(&link) else {
            return false;
        };
        let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
        match self.below(path) {
            Some(below) => below.trim_end_matches('/') == "..",
            None if !html::says_parent(text) => false,
            None => {
                let above = self.path[..self.path.len() - 1].rsplit(|&byte| byte == b'/');
                let cut = above.map(<[u8]>::len).next().unwrap_or_default() + 1;
                let path = unescaped(path.trim_end_matches('/'));
                [&*path, b"/"].concat() == self.path[..self.path.len() - cut]
            }
        }
    }

    /// Returns the path of a link, unless it leads to another host or to no web page.
    fn on_this_host<'b>(&self, link: &'b str) -> Option<&'b str> {
        let address = match link.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => rest,
            Some(_) | None => match link.strip_prefix("//") {
                Some(rest) => rest,
                None if leads_nowhere(link) => return None,
                None => return Some(link),
            },
        };
        let end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let (host, path) = address.split_at(end);
        (host.eq_ignore_ascii_case(self.host) && path.starts_with('/')).then_some(path)
    }

    /// Returns the rest of a path behind the folder's own, escapes and all.
    fn below<'b>(&self, path: &'b str) -> Option<&'b str> {
        if !path.starts_with('/') {
            let mut path = path;
            while let Some(rest) = path.strip_prefix("./") {
                path = rest;
            }
            return Some(path);
        }
        // Each side may escape characters that the other does not.
        let mut slashes = path.match_indices('/').map(|(place, _)| place + 1);
        let end = slashes.find(|end| unescaped(&path[..*end]) == self.path)?;
        Some(&path[end..])
    }
}

fn is_scheme(text: &str) -> bool {
    text.eq_ignore_ascii_case("http") || text.eq_ignore_ascii_case("https")
}

/// Returns whether a link does not lead to a page. Others with a colon may be names that are not
/// escaped.
fn leads_nowhere(link: &str) -> bool {
    let scheme = link.split_once(':').map_or("", |(scheme, _)| scheme);
    let known = ["mailto", "javascript", "data", "tel", "ftp", "file"];
    known.iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// Returns the bytes of a path. Broken escapes stay as they are: some servers escape nothing.
fn unescaped(path: &str) -> Vec<u8> {
    decode(path).unwrap_or_else(|| path.as_bytes().to_vec())
}

/// Parses a page, for [`crate::fuzzing`].
pub(crate) fn try_index(data: &[u8]) {
    let page = Bytes::copy_from_slice(data);
    let from = Uri::from_static("http://server/folder/");
    let links = links_of(&page, &from).unwrap_or_default();
    assert!(links.len() <= data.len(), "more was read than was there");
    assert!(
        links.iter().all(|entry| !entry.name.is_empty()),
        "a link to the folder itself is listed"
    );
    let _ = (lines_of(data), is_cut(data, true), is_cut(data, false));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Vec<(String, Kind)> {
        links_of(
            &Bytes::copy_from_slice(page.as_bytes()),
            &Uri::from_static("http://h/a/b/"),
        )
        .unwrap()
        .into_iter()
        .map(|entry| (String::from_utf8(entry.name).unwrap(), entry.kind))
        .collect()
    }

    #[test]
    fn names_that_are_no_text_are_read_from_json() {
        let text = b"[{\"name\":\"a\xff\xe4b\",\"type\":\"file\",\"size\":1},{\"name\":\"\xc3\xa9\",\"type\":\"file\",\"size\":2}]";
        let (entries, is_told) = lines_of(text).unwrap();
        let names: Vec<&[u8]> = entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, [b"a\xff\xe4b", &b"\xc3\xa9"[..]]);
        assert!(is_told);
    }

    #[test]
    fn times_are_read_as_servers_write_them_in_json() {
        let second = Some(FileTime {
            secs: 1_600_000_000,
            nanos: 0,
        });
        for (told, time) in [
            ("\"Sun, 13 Sep 2020 12:26:40 GMT\"", second),
            ("\"2020-09-13T12:26:40Z\"", second),
            ("1600000000", second),
            ("1600000000000", None),
            ("16e8", None),
            ("{}", None),
            ("null", None),
        ] {
            let text =
                format!("[{{\"name\":\"a\",\"type\":\"file\",\"size\":1,\"mtime\":{told}}}]");
            let (entries, _) = lines_of(text.as_bytes()).unwrap();
            assert_eq!(entries[0].mtime, time, "{told}");
        }
    }

    #[test]
    fn links_are_read_however_they_are_written() {
        let page = "<a\thref=\"1\"><a\r\nhref='2'><A HREF = 3><a title=\"a>b\" href=\"4\">\
                    <a data-href=\"z\" href=\"5\"><a title=\"href=no\" href=6 class=x><a name=\"n\">\
                    <abbr href=\"no\"><a =href=\"no\"><a href=\"7\" /><a href=8";
        let found: Vec<_> = hrefs(page, "a").collect();
        assert_eq!(found, ["1", "2", "3", "4", "5", "6", "7", "8"]);
    }

    #[test]
    fn a_list_that_is_not_all_or_meant_from_elsewhere_is_none() {
        let read = |page: &str| {
            let page = Bytes::copy_from_slice(page.as_bytes());
            links_of(&page, &Uri::from_static("http://h/a/b/"))
        };
        for (page, is_all) in [
            ("<a href=\"?page=2\">Next</a>", false),
            ("<a href=\"./?C=N&amp;offset=100\">", false),
            ("<a href=\"/a/b/?marker=x\">", false),
            ("<a href=\"http://h/a/b/?p=3#top\">", false),
            (
                "<a href=\"?page=1\"><a href=\"?sort=name&offset=0\"><a href=\"x?page=2\">",
                true,
            ),
            ("<a href=\"/other/?page=2\"><a href=x>", true),
            ("<head><base href=\"/a/b/\"><a href=x>", true),
            ("<BASE HREF=\"http://h/a/b/index.html\"><a href=x>", true),
            ("<base target=\"_top\"><a href=x>", true),
            ("<base href=\"/a/\">", false),
            ("<base href=\"http://other/a/b/\">", false),
            ("<base href=\"c/\">", false),
        ] {
            assert_eq!(read(page).is_ok(), is_all, "{page}");
        }
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
                ("i/j".to_owned(), Kind::File),
                ("%zz".to_owned(), Kind::File),
                ("n/o".to_owned(), Kind::File),
            ]
        );
    }

    #[test]
    fn what_no_name_can_stand_for_is_listed_and_what_leads_elsewhere_is_not() {
        let page = "<html><a href=\"a?download=1\"><a href=\"b\"><a href=\"b?raw=1\"><a href=\"b#top\">\
            <a href=\"c//d\"><a href=\"e/f\"><a href=\"g/\"><a href=\"g/h\"><a href=\"g/?C=N\">\
            <a href=\"%00i\"><a href=\"//h/a/b/j\"><a href=\"//other/a/b/k\"><a href=\"/a/b/../\">\
            <a href=\"/a/b/?C=N;O=D\"><a href=\"./?sort=name\"><a href=\"..\"><a href=\"../l\">\
            <a href=\"mailto:me@h\"><a href=\"javascript:go()\"><a href=\"12:30\"><a href=\"/m\">";
        let found = names(page);
        let found: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            found,
            ["a?download=1", "b", "c//d", "e/f", "g", "\0i", "j", "12:30"]
        );
    }

    #[test]
    fn pages_of_common_servers_list_names_alone() {
        for page in [
            // Apache, nginx, lighttpd, Python, Caddy, Jetty.
            "<html><a href=\"?C=N;O=D\">Name</a><a href=\"?C=M;O=A\">Last</a><a href=\"/a/\">Parent</a>\
             <a href=\"x%20y\">x y</a><a href=\"z/\">z/</a></html>",
            "<html><a href=\"../\">../</a><a href=\"x%20y\">x y</a><a href=\"z/\">z/</a></html>",
            "<html><a href=\"../\">..</a>/<a href=\"x%20y\">x y</a><a href=\"z/\">z</a>/</html>",
            "<html><li><a href=\"x%20y\">x y</a></li><li><a href=\"z/\">z/</a></li></html>",
            "<html><a href=\"/\">h</a><a href=\"/a/\">a</a><a href=\"?layout=grid\">Grid</a><a href=\"..\">Up</a>\
             <a href=\"./?sort=size&amp;order=asc\">Size</a><a href=\"./x%20y\">x y</a>\
             <a href=\"./z/\">z</a><a rel=\"noopener\" href=\"https://caddyserver.com\">Caddy</a></html>",
            "<html><a href=\"/a/b/../\">Parent</a><a href=\"/a/b/?C=N&amp;O=D\">Name</a>\
             <a href=\"/a/b/x%20y\">x y</a><a href=\"/a/b/z/\">z/</a></html>",
        ] {
            let wanted = [
                ("x y".to_owned(), Kind::File),
                ("z".to_owned(), Kind::Directory),
            ];
            assert_eq!(names(page), wanted, "{page}");
        }
    }

    #[test]
    fn names_are_those_of_whatever_escapes_servers_use() {
        let page = "<html><a href=\"a&#43;b\"><a href=\"a&#x2B;c\"><a href=\"a&plus;d\">\
            <a href=\"/%61/b/e f\"><a href=\"//h/a/b/g\"><a href=\"a&amp;amp;h\">";
        let found = names(page);
        let found: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["a+b", "a+c", "a+d", "e f", "g", "a&amp;h"]);
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
            let _ = links_of(
                &Bytes::copy_from_slice(page.as_bytes()),
                &Uri::from_static("http://h/"),
            );
        }
    }

    #[test]
    fn an_index_of_nothing_is_told_from_another_page() {
        let read = |page: &str, from| links_of(&Bytes::copy_from_slice(page.as_bytes()), &from);
        for (page, is_index) in [
            // nginx, Apache, lighttpd, Python, Caddy, Jetty, IIS, Go, rclone.
            (
                "<html><head><title>Index of /</title></head><hr><pre></pre></html>",
                true,
            ),
            ("<html><h1>x</h1><a href=\"../\">../</a></html>", true),
            (
                "<html><h1 class=x>Index of /a/b</h1><a href=\"?C=N;O=D\">Name</a></html>",
                true,
            ),
            ("<html><a href=\"?C=N;O=D\">Name</a></html>", true),
            ("<html><a href=\"/a/\">Parent</a></html>", true),
            ("<html><a href=\"..\">..</a></html>", true),
            (
                "<html><TITLE>Directory listing for /a/b/</TITLE></html>",
                true,
            ),
            (
                "<html><title>b</title><a href=\"./?sort=size&amp;order=asc\">Size</a></html>",
                true,
            ),
            ("<html><title>Directory: /a/b/</title></html>", true),
            ("<html><a href=\"/a/b/../\">Parent</a></html>", true),
            (
                "<html><A HREF=\"http://h/a\">[To Parent Directory]</A></html>",
                true,
            ),
            (
                "<!doctype html>\n<meta name=\"viewport\">\n<pre>\n</pre>\n",
                true,
            ),
            ("", false),
            ("hi", false),
            ("<html><title>Home</title><h1>Welcome</h1></html>", false),
            (
                "<html><p>Index of all</p><a href=\"/about\">a</a><a href=\"http://o/a/b/x\">o</a></html>",
                false,
            ),
            (
                "<html><a href=\"/\">Home</a><a href=\"#top\">top</a><a href=\"?lang=de\">de</a></html>",
                false,
            ),
            (
                "<html><a href=\"/a/\">Products</a><a href=\"/\">.. of ours</a></html>",
                false,
            ),
            (
                "<html><a href=\"../../\">far up</a><a href=\"/a/b/\">here</a></html>",
                false,
            ),
        ] {
            let found = read(page, Uri::from_static("http://h/a/b/"));
            assert_eq!(found.is_ok(), is_index, "{page}");
        }
        let home = "<html><a href=\"/\">Home</a></html>";
        assert!(
            read(home, Uri::from_static("http://h/")).is_err(),
            "nothing is above it"
        );
        assert!(read(home, Uri::from_static("http://h/b/")).is_err());
        let parent = "<html><A HREF=\"/\"><img src=x>Parent Directory</A></html>";
        assert!(read(parent, Uri::from_static("http://h/b/")).is_ok());
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
