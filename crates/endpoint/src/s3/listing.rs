//! Listings of directories and trees of keys, with many pages in flight. The store behind is a
//! [`Bucket`]: S3 or another that lists keys in order.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{
    client::S3Client,
    page::{Object, Page},
    ranges::{Ask, Keyed, Ranges, Span},
};
pub(crate) use super::{
    page::{Object as ListedObject, Page as ListedPage},
    ranges::Start,
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Entry, Kind, Listing},
    limits::Limits,
    objects::{KeysListing, RawStore, directory_entry, take_link},
};

/// Most pages in flight: hides the store's latency, and at a few hundred kilobytes a page costs
/// little memory.
const PAGES_MAX: usize = 16;

/// Form of a written mark: the version, whether the listing is of one directory, and what is left.
const MARK_FORM: u8 = 1;

/// Key or, in a directory, prefix.
enum Found {
    Object(Object),
    Below(String),
}

/// Key, and the start of its name behind the listed prefix.
struct FoundKey {
    found: Found,
    cut: usize,
}

impl Keyed for FoundKey {
    fn key(&self) -> &str {
        let key = match &self.found {
            Found::Object(object) => &object.key,
            Found::Below(prefix) => prefix,
        };
        &key[self.cut..]
    }
}

/// Store that lists pages of keys.
pub(crate) trait Bucket: Send + Sync + 'static {
    /// Requests the page of keys below `prefix` from that start: all of them, or with `flat` those
    /// of one directory and the prefixes of others. The key of [`Start::After`] itself is excluded.
    fn page<'a>(&'a self, prefix: &'a str, flat: bool, from: &'a Start) -> Boxed<'a, Result<Page>>;
    /// Returns the address of `key` for messages.
    fn show(&self, key: &str) -> String;
}

impl Bucket for S3Client {
    fn page<'a>(&'a self, prefix: &'a str, flat: bool, from: &'a Start) -> Boxed<'a, Result<Page>> {
        Box::pin(fetch(self, prefix, flat, from))
    }

    fn show(&self, key: &str) -> String {
        Self::show(self, key)
    }
}

pub(crate) struct KeyListing<B> {
    bucket: Arc<B>,
    prefix: Arc<str>,
    flat: bool,
    ranges: Ranges,
    flying: JoinSet<(Ask, Result<Page>)>,
    limits: Option<Limits>,
}

impl<B: Bucket + RawStore> KeysListing for KeyListing<B> {
    type Store = B;

    fn new(bucket: Arc<B>, prefix: String, flat: bool) -> Self {
        Self {
            bucket,
            prefix: prefix.into(),
            flat,
            ranges: Ranges::new(flat),
            flying: JoinSet::new(),
            limits: None,
        }
    }

    fn held_to(self, limits: Option<Limits>) -> Self {
        Self { limits, ..self }
    }

    fn resumed(bucket: Arc<B>, prefix: String, mark: &[u8]) -> Result<Self> {
        let read: Result<(u8, bool, Vec<Span>), _> = serde_json::from_slice(mark);
        match read {
            Ok((MARK_FORM, flat, spans)) => Ok(Self {
                bucket,
                prefix: prefix.into(),
                flat,
                ranges: Ranges::resumed(flat, spans),
                flying: JoinSet::new(),
                limits: None,
            }),
            Ok(_) | Err(_) => Err(Error::new(
                ErrorKind::Invalid,
                "go on listing",
                Bucket::show(&*bucket, &prefix),
            )
            .cause("the mark of where it was can't be read")
            .hint("start the listing anew")),
        }
    }
}

impl<B: Bucket> KeyListing<B> {
    async fn read_page(&mut self) -> Result<Option<Vec<Entry>>> {
        while let Some(ask) = self.ranges.next(PAGES_MAX) {
            let (bucket, prefix) = (Arc::clone(&self.bucket), Arc::clone(&self.prefix));
            let (flat, limits) = (self.flat, self.limits.clone());
            self.flying.spawn(async move {
                let _place = match &limits {
                    Some(limits) => Some(limits.enter().await),
                    None => None,
                };
                let page = bucket.page(&prefix, flat, &ask.from).await;
                (ask, page)
            });
        }
        let Some(arrived) = self.flying.join_next().await else {
            return Ok(None);
        };
        let (ask, page) = arrived.map_err(|cause| self.failed("fetch a page").cause(cause))?;
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                let is_refused = !error.is_temporary() && matches!(ask.from, Start::After(_));
                return match self.ranges.failed(ask.range, is_refused) {
                    true => Ok(Some(Vec::new())),
                    false => Err(error),
                };
            }
        };
        let next = page.next.clone();
        let mut found = self.in_order(page)?;
        let above = self.ranges.arrived(ask.range, &mut found, next);
        let above = above.map_err(|_| {
            self.failed("list")
                .cause("the store lists its keys in no order, or again and again")
        })?;
        Ok(Some(entries(found, above)))
    }

    fn failed(&self, operation: &'static str) -> Error {
        let shown = self.bucket.show(&self.prefix);
        Error::new(ErrorKind::Other, operation, shown).at(Locus::Source)
    }

    /// Merges objects and prefixes into one order, if each is ordered.
    fn in_order(&self, page: Page) -> Result<Vec<FoundKey>> {
        let cut = self.prefix.len();
        let ordered = page.objects.is_sorted_by(|a, b| a.key < b.key) && page.prefixes.is_sorted();
        let has_both = !page.objects.is_empty() && !page.prefixes.is_empty();
        let objects = page.objects.into_iter().map(Found::Object);
        let all = objects.chain(page.prefixes.into_iter().map(Found::Below));
        let mut found: Vec<FoundKey> = Vec::with_capacity(1_000);
        for found_one in all {
            let key = match &found_one {
                Found::Object(object) => &object.key,
                Found::Below(prefix) => prefix,
            };
            if !key.starts_with(&*self.prefix) {
                return Err(self.failed("list").cause("the store lists other keys too"));
            }
            found.push(FoundKey {
                found: found_one,
                cut,
            });
        }
        if ordered && has_both {
            found.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        }
        Ok(found)
    }
}

async fn fetch(client: &S3Client, prefix: &str, flat: bool, from: &Start) -> Result<Page> {
    let mut query = vec![
        ("encoding-type", "url"),
        ("list-type", "2"),
        ("prefix", prefix),
    ];
    if flat {
        query.push(("delimiter", "/"));
    }
    let after;
    match from {
        Start::First => {}
        Start::After(key) => {
            after = format!("{prefix}{key}");
            query.push(("start-after", &after));
        }
        Start::Token(token) => query.push(("continuation-token", token)),
    }
    query.sort_unstable();
    client.ask_page(&query).await
}

/// Converts a page to entries: each directory before its place in the page.
fn entries(found: Vec<FoundKey>, above: Vec<(usize, String)>) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(found.len() + above.len());
    let mut above = above.into_iter().peekable();
    for (place, FoundKey { found, cut }) in found.into_iter().enumerate() {
        while let Some((_, directory)) = above.next_if(|(before, _)| *before == place) {
            entries.push(Entry {
                name: directory.into_bytes(),
                ..directory_entry()
            });
        }
        match found {
            Found::Below(prefix) => {
                let name = prefix[cut..].trim_end_matches('/').as_bytes().to_vec();
                entries.push(Entry {
                    name,
                    ..directory_entry()
                });
            }
            Found::Object(object) => match object.key[cut..].strip_suffix('/') {
                // The object of a directory itself, which was just listed, unless long ago.
                Some(name) => {
                    if let Some(told) = entries.last_mut()
                        && told.name == name.as_bytes()
                        && told.kind == Kind::Directory
                    {
                        told.version.clone_from(&object.etag);
                        told.stored = object.stored;
                    }
                    // No file system has such a name for bytes; the copy reports it.
                    if object.size > 0 {
                        let name = object.key.as_bytes()[cut..].to_vec();
                        entries.push(listed(name, object));
                    }
                }
                None if object.key.len() == cut && object.size == 0 => {}
                None => {
                    let name = object.key.as_bytes()[cut..].to_vec();
                    entries.push(listed(name, object));
                }
            },
        }
    }
    entries
}

fn listed(mut name: Vec<u8>, object: Object) -> Entry {
    let kind = match take_link(&mut name) {
        true => Kind::Link,
        false => Kind::File,
    };
    Entry {
        name,
        kind,
        size: object.size,
        mtime: object.mtime,
        stored: object.stored,
        mode: object.mode,
        version: object.etag,
    }
}

impl<B: Bucket> Listing for KeyListing<B> {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            // A page may hold only keys that other ranges bring.
            while let Some(page) = self.read_page().await? {
                if !page.is_empty() {
                    return Ok(page);
                }
            }
            Ok(Vec::new())
        })
    }

    fn counts_itself(&self) -> bool {
        self.limits.is_some()
    }

    fn mark(&self) -> Option<Vec<u8>> {
        let spans = self.ranges.spans()?;
        serde_json::to_vec(&(MARK_FORM, self.flat, spans)).ok()
    }
}
