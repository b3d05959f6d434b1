//! Reads from a web server. Every range is requested on condition that the file is unchanged. The
//! answer is compared again, because not every server heeds conditions.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use futures_util::StreamExt;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use super::{
    About, Call, OneVersion, Place, Rest,
    after::{changed, look_after},
    check_coding, check_status,
    content::refuse_page,
    content_length, cut, drain, exactly,
    range::size_behind,
    stream, text_of,
    told::Told,
    told_sum,
    version::{is_same, is_shown, shows_changes, tells_as_much},
};
use crate::{
    Checksum, Error, ErrorKind, Result, Status, StoredSum, Summer, dates,
    endpoint::{Boxed, ByteStream, Entry, Kind, Reader, Whole},
    objects::Spans,
};

/// Largest file that is read in one request.
pub(crate) const WHOLE_BYTES_MAX: u64 = 8 << 20;

/// Largest file that a server is taken to read at once, in bytes: what it hands to the system in one
/// go. A larger one of this minute may be written while it is read.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;

/// Longest file without a reported length that is read to learn it, in bytes: it is read twice
/// then.
const COUNTED_BYTES_MAX: u64 = 1 << 30;

/// States of what is known of ranges: unknown, supported, not supported.
const UNKNOWN: u8 = 0;
const RANGES: u8 = 1;
const NO_RANGES: u8 = 2;

/// Files of a read-only web server.
pub(crate) struct Pages {
    pub place: Place,
    ranges: AtomicU8,
    told: Told,
}

impl Pages {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            ranges: AtomicU8::new(UNKNOWN),
            told: Told::default(),
        }
    }

    /// Returns whether reading can start in the middle of a file, as far as is known.
    pub(crate) fn has_ranges(&self) -> bool {
        self.ranges.load(Relaxed) != NO_RANGES
    }

    /// Opens the file of `entry`.
    pub(crate) fn reader(self: &Arc<Self>, path: &[u8], found: Found) -> Arc<dyn Reader> {
        Arc::new(PageReader {
            pages: Arc::clone(self),
            path: path.to_vec(),
            entry: found.entry,
            spans: Spans::of(found.sum),
            one: OneVersion::new(found.shows_changes),
            is_unproved: AtomicBool::new(false),
        })
    }

    /// Looks at a file that is about to be opened and was listed as `listed`. Another size means
    /// another file: a login page, say.
    ///
    /// # Errors
    /// The errors of looking; [`ErrorKind::NotFound`]; [`ErrorKind::Changed`].
    pub(crate) async fn look_again(&self, path: &[u8], listed: &Entry) -> Result<Found> {
        let about = self.about("read", path);
        let found = self.find(path).await?;
        let found = found.ok_or_else(|| about.fail(ErrorKind::NotFound))?;
        if found.entry.size != listed.size {
            return Err(changed(&about));
        }
        Ok(found)
    }

    pub(crate) fn about(&self, operation: &'static str, path: &[u8]) -> About {
        About::reading(operation, self.place.show(path))
    }

    pub(crate) async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let found = self.find(path).await?;
        let entry = found.as_ref().map(|found| found.entry.clone());
        if let Some(found) = found.filter(|found| found.entry.size > WHOLE_BYTES_MAX) {
            self.told.keep(path, found);
        }
        Ok(entry)
    }

    /// Looks at a file that is about to be opened, unless that was just done.
    ///
    /// # Errors
    /// Errors of [`Self::look_again`].
    pub(crate) async fn open(&self, path: &[u8], listed: &Entry) -> Result<Found> {
        match self.told.take(path, listed) {
            Some(found) => Ok(found),
            None => self.look_again(path, listed).await,
        }
    }

    async fn find(&self, path: &[u8]) -> Result<Option<Found>> {
        let directory = || Some(Found::bare(Kind::Directory));
        let about = self.about("look at", path);
        let call = Call::new("HEAD", self.place.target(path), about.clone());
        let answer = self
            .place
            .send(call.header("accept-encoding", "identity"))
            .await?;
        let is_folder = self.place.full(path).is_empty() || self.place.is_folder(path);
        refuse_page(&self.place, path, &answer, &about)?;
        let (head, body) = answer.response.into_parts();
        drain(body).await;
        match head.status.as_u16() {
            404 | 410 => Ok(None),
            _ if answer.is_directory => Ok(directory()),
            200..300 if is_folder => Ok(directory()),
            200 if content_length(&head.headers).is_some() => {
                let size = content_length(&head.headers);
                let found = Found::of(head.status, &head.headers, size, &about)?;
                self.learn_ranges(path, &head.headers, &found.entry).await?;
                Ok(Some(found))
            }
            // Signed addresses are signed for GET alone; some servers lack HEAD, or report no size
            // then.
            _ => self.look_by_reading(path, &about).await,
        }
    }

    /// Requests the first byte.
    async fn look_by_reading(&self, path: &[u8], about: &About) -> Result<Option<Found>> {
        let call = Call::new("GET", self.place.target(path), about.clone());
        let call = call
            .header("accept-encoding", "identity")
            .header("range", "bytes=0-0");
        let answer = self.place.send(call).await?;
        refuse_page(&self.place, path, &answer, about)?;
        let response = answer.response;
        let is_folder = self.place.is_folder(path) && response.status().is_success();
        if answer.is_directory || is_folder {
            return Ok(Some(Found::bare(Kind::Directory)));
        }
        let (status, headers) = (response.status(), response.headers());
        match status.as_u16() {
            404 | 410 => Ok(None),
            206 => {
                self.ranges.store(RANGES, Relaxed);
                Found::of(status, headers, size_behind(headers), about).map(Some)
            }
            200 => {
                check_coding(headers, &self.place.full(path), about)?;
                let headers = headers.clone();
                let told = content_length(&headers);
                let size = match told {
                    Some(size) => size,
                    None => counted(response, about).await?,
                };
                // A small generated page says nothing about files.
                if told.is_some() || size > WHOLE_BYTES_MAX {
                    self.ranges.store(NO_RANGES, Relaxed);
                }
                Found::of(status, &headers, Some(size), about).map(Some)
            }
            // No byte of an empty file can be asked for; the answer reports its size.
            416 if text_of(headers, "content-range") == Some("bytes */0") => {
                Found::of(status, headers, Some(0), about).map(Some)
            }
            201..300 => check_status(&response, about).map(|()| None),
            _ => Err(self.place.refusal(response, about).await),
        }
    }

    /// Learns once whether the server reads from the middle of files.
    async fn learn_ranges(&self, path: &[u8], headers: &HeaderMap, entry: &Entry) -> Result<()> {
        if self.ranges.load(Relaxed) != UNKNOWN || entry.size <= WHOLE_BYTES_MAX {
            return Ok(());
        }
        match text_of(headers, "accept-ranges") {
            Some("bytes") => self.ranges.store(RANGES, Relaxed),
            Some("none") => self.ranges.store(NO_RANGES, Relaxed),
            Some(_) | None => {
                let about = self.about("look at", path);
                self.look_by_reading(path, &about).await?;
            }
        }
        Ok(())
    }

    /// Requests `range` of the file that `entry` describes.
    async fn read(&self, path: &[u8], entry: &Entry, range: &Range<u64>) -> Result<Answered> {
        let about = self.about("read", path);
        let mut call = conditional(
            Call::new("GET", self.place.target(path), about.clone()),
            entry,
        );
        let is_range = *range != (0..entry.size);
        if is_range {
            call = call.header("range", format!("bytes={}-{}", range.start, range.end - 1));
        }
        let response = self.content(call, path).await?;
        let (status, headers) = (response.status(), response.headers());
        if !is_same(headers, entry) || is_range && !tells_as_much(headers, entry) {
            return Err(changed(&about));
        }
        Ok(Answered {
            is_shown: is_shown(status, headers, entry),
            sum: told_sum(status, headers),
            body: cut(response, range, entry.size, about)?,
        })
    }

    /// Requests bytes of a file.
    async fn content(&self, call: Call, path: &[u8]) -> Result<Response<Incoming>> {
        let about = call.about.clone();
        let answer = self.place.send(call).await?;
        refuse_page(&self.place, path, &answer, &about)?;
        let response = self.place.success(answer, &about).await?;
        check_status(&response, &about)?;
        check_coding(response.headers(), &self.place.full(path), &about)?;
        Ok(response)
    }

    pub(crate) async fn get(&self, path: &[u8], wanted: &Entry) -> Result<Whole> {
        let about = self.about("read", path);
        let call = conditional(
            Call::new("GET", self.place.target(path), about.clone()),
            wanted,
        );
        let (head, body) = self.content(call, path).await?.into_parts();
        if head.status == StatusCode::PARTIAL_CONTENT {
            let error = about.fail(ErrorKind::Other);
            return Err(error.cause("the server sends a part where all of it was asked for"));
        }
        let entry = entry_of(
            &head.headers,
            content_length(&head.headers).or(Some(wanted.size)),
            &about,
        )?;
        if !is_same(&head.headers, wanted) || entry.size != wanted.size {
            return Err(changed(&about));
        }
        let body = stream(body, about.subject.clone());
        let mut body = exactly(body, 0, entry.size, Rest::Nothing, about.clone());
        let (mut data, mut summer) = (Vec::new(), Summer::default());
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            data.push(bytes);
        }
        let told = told_sum(head.status, &head.headers);
        if told.is_some_and(|told| told.of(&data) != told) {
            return Err(damaged(&about));
        }
        let is_new = entry.mtime.is_some() && !shows_changes(&head.headers, &entry);
        if is_new && entry.size > AT_ONCE_BYTES_MAX {
            look_after(&self.place, path, &entry).await?;
        }
        Ok(Whole {
            entry,
            data,
            checksum: summer.sum(),
        })
    }
}

/// A file that a server has, and the digest that it reports of it.
pub(crate) struct Found {
    pub entry: Entry,
    sum: Option<StoredSum>,
    /// True if a change would show in later answers.
    shows_changes: bool,
}

/// Answer with bytes of a file.
struct Answered {
    body: ByteStream,
    /// True if it shows that it is of the opened file.
    is_shown: bool,
    /// Digest of the whole file, if it has one.
    sum: Option<StoredSum>,
}

impl Found {
    fn bare(kind: Kind) -> Self {
        Self {
            entry: Entry::bare(Vec::new(), kind),
            sum: None,
            shows_changes: false,
        }
    }

    fn of(
        status: StatusCode,
        headers: &HeaderMap,
        size: Option<u64>,
        about: &About,
    ) -> Result<Self> {
        let entry = entry_of(headers, size, about)?;
        // Some servers tell the digest of the body of this answer, which has none.
        let is_of_it = |sum: &StoredSum| entry.size == 0 || sum.of(&[]) != *sum;
        Ok(Self {
            sum: told_sum(status, headers).filter(is_of_it),
            shows_changes: shows_changes(headers, &entry),
            entry,
        })
    }
}

/// Makes a request fail if the file is no longer what `entry` describes.
fn conditional(call: Call, entry: &Entry) -> Call {
    let call = call.header("accept-encoding", "identity");
    match (&entry.version, entry.mtime) {
        (Some(version), _) if version.starts_with('"') => call.header("if-match", &**version),
        // A weak version can't be a condition (RFC 9110, section 13.1.1).
        (_, Some(mtime)) => call.header("if-unmodified-since", dates::show_http(mtime)),
        (_, None) => call,
    }
}

/// Reads a body of unreported length to its end, and returns its length. The file is then read once
/// more: a file generated anew for each request has another length, and counts as changed.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if a broken connection looks like the end, and for more than
/// [`COUNTED_BYTES_MAX`].
async fn counted(response: Response<Incoming>, about: &About) -> Result<u64> {
    let coding = text_of(response.headers(), "transfer-encoding").unwrap_or_default();
    if !coding.trim_end().to_ascii_lowercase().ends_with("chunked") {
        return Err(untold(
            about,
            "the server says neither how long it is nor where it ends",
        ));
    }
    let mut body = stream(response.into_body(), about.subject.clone());
    let mut size = 0;
    while let Some(bytes) = body.next().await {
        size += bytes?.len() as u64;
        if size > COUNTED_BYTES_MAX {
            return Err(untold(
                about,
                "the server doesn't say how long it is, and it is long",
            ));
        }
    }
    Ok(size)
}

fn untold(about: &About, cause: &'static str) -> Error {
    about
        .fail(ErrorKind::Unsupported)
        .cause(cause)
        .hint("copy it as a stream: curl -fL ADDRESS | posthaste cp - DESTINATION")
}

fn entry_of(headers: &HeaderMap, size: Option<u64>, about: &About) -> Result<Entry> {
    let size = size.ok_or_else(|| untold(about, "the server doesn't say how long it is"))?;
    Ok(Entry {
        size,
        mtime: text_of(headers, "last-modified").and_then(dates::parse_http),
        version: text_of(headers, "etag").map(Into::into),
        ..Entry::bare(Vec::new(), Kind::File)
    })
}

fn damaged(about: &About) -> Error {
    about
        .fail(ErrorKind::Corrupt)
        .cause("what was read has not the checksum that the server tells")
        .hint("copy it again; if it stays, the file is damaged there, or the server tells a wrong one")
        .status_is(Status::Temporary)
}

/// File of a web server, read by ranges.
struct PageReader {
    pages: Arc<Pages>,
    path: Vec<u8>,
    entry: Entry,
    /// Spans, with the digest that the server reports.
    spans: Spans,
    /// Set once an answer did not show that it is of the opened file.
    is_unproved: AtomicBool,
    one: OneVersion,
}

impl PageReader {
    /// Requests a part of the file, or all of it: one answer is of one file.
    async fn fetch(&self, range: &Range<u64>, is_whole: bool) -> Result<ByteStream> {
        let answered = self.pages.read(&self.path, &self.entry, range).await?;
        if !answered.is_shown && !is_whole {
            self.is_unproved.store(true, Relaxed);
        }
        if let Some(sum) = answered.sum
            && !self.spans.learn(sum, is_whole)
        {
            let error = changed(&self.pages.about("read", &self.path));
            return Err(error.cause("the server tells two digests of it"));
        }
        Ok(answered.body)
    }
}

impl Reader for PageReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn stored_sum(&self) -> Option<StoredSum> {
        self.spans.wanted()
    }

    fn is_of_one_version(&self) -> bool {
        self.one.is_sure()
    }

    fn is_compared(&self) -> bool {
        self.spans.is_same(self.entry.size)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async move {
            if range.is_empty() {
                let nothing: ByteStream = Box::pin(futures_util::stream::empty());
                return Ok(nothing);
            }
            let (start, len) = (range.start, range.end - range.start);
            let is_whole = range == (0..self.entry.size);
            let fetched = self.fetch(&range, is_whole).await;
            let body = match is_whole {
                true => fetched?,
                false => self.one.judge(fetched)?,
            };
            Ok(self.spans.watch(start, len, body))
        })
    }

    /// Checks the bytes. Every answer was compared with the opened file as it began; the file is
    /// looked at again, with more care where an answer said too little.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let about = self.pages.about("read", &self.path);
            if self.spans.is_other(self.entry.size) {
                return Err(damaged(&about));
            }
            if !self.is_unproved.load(Relaxed) {
                let same = look_after(&self.pages.place, &self.path, &self.entry).await;
                return self.one.judge(same);
            }
            let now = self.pages.look_again(&self.path, &self.entry).await;
            let now = self.one.judge(now)?.entry;
            match (&now.version, now.mtime) == (&self.entry.version, self.entry.mtime) {
                true => Ok(()),
                false => self.one.judge(Err(changed(&about))),
            }
        })
    }
}
