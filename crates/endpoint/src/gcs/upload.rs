//! Upload of a large object as components that the store composes, so that segments travel in
//! parallel and a later run can continue ([`crate::objects::Upload`]).
//!
//! Each segment is an object of its own under a hidden name beside the final one; the store refuses
//! it unless its CRC-32C is right. A later run trusts a component that the store still lists with
//! the generation in the ledger. In the end the components are composed, up to 32 at a time, into
//! one hidden object. It gets its name only if the store reports the CRC-32C that the segments add
//! up to.

use std::{collections::HashMap, sync::Arc};

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Call, GcsClient},
    object::{self, Content},
    resource::{FIELDS, Resource, kept_of},
};
use crate::{
    Checksum, Condition, Error, ErrorKind, Kind, Result, Status,
    checksum::Crc32c,
    cut::Limits,
    endpoint::{ByteStream, FileSpec, PARTIAL_SUFFIX, base_name, new_word, partial_name},
    ledger::Kept,
    objects::{Incomplete, Noted, Segment, Segments},
    outgoing::Outgoing,
    web::About,
};

/// The store composes any number of objects; this many are listed, composed and removed in
/// acceptable time.
static LIMITS: Limits = Limits {
    segments_max: 10_000,
    growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
};

/// Most objects that the store composes in one request.
const SOURCES_MAX: usize = 32;

/// Most compositions and removals in flight.
const REQUESTS_MAX: usize = 16;

/// Most pages of a listing of components: `LIMITS` by the smallest likely page, and a margin.
const PAGES_MAX: usize = 200;

/// Stored component.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    checksum: Checksum,
    own: Crc32c,
    generation: Box<str>,
}

/// Object to compose, as it was when it was stored.
#[derive(Debug, Clone)]
struct Source {
    name: String,
    generation: Box<str>,
}

/// Object being uploaded.
pub(crate) struct Components {
    client: Arc<GcsClient>,
    key: String,
    spec: FileSpec,
    /// Word that the names of its components contain, and no other upload's.
    word: String,
    hidden: Hidden,
}

/// Names of components: hidden beside the final one.
#[derive(Debug, Clone)]
struct Hidden(String);

impl Hidden {
    fn beside(key: &str, word: &str) -> Self {
        let name = base_name(key.as_bytes());
        let folder = &key[..key.len() - name.len()];
        let partial = partial_name(name, word);
        let partial = String::from_utf8_lossy(&partial);
        let stem = partial.strip_suffix(PARTIAL_SUFFIX).unwrap_or(&partial);
        Self(format!("{folder}{stem}-"))
    }

    /// Returns their common prefix.
    fn stem(&self) -> &str {
        &self.0
    }

    /// Returns a component's name: segments are at height 0, objects composed of them above.
    fn name(&self, height: u32, index: u64) -> String {
        format!("{}{height}-{index:05}{PARTIAL_SUFFIX}", self.0)
    }
}

impl Components {
    fn about(&self, operation: &'static str) -> About {
        About::writing(operation, self.client.show(&self.key))
    }

    /// Returns the checksum of all segments, and the objects that hold them.
    fn sources(
        &self,
        segments: Vec<Segment<Stored>>,
        size: u64,
        whole: Checksum,
    ) -> Result<(Crc32c, Vec<Source>)> {
        let (mut sum, mut own, mut end) = (Checksum::EMPTY, Crc32c::EMPTY, 0);
        let mut sources = Vec::with_capacity(segments.len());
        for Segment {
            index,
            start,
            len,
            stored,
        } in segments
        {
            if start != end {
                break;
            }
            sum = sum.then(stored.checksum, len);
            own = own.then(stored.own, len);
            end += len;
            sources.push(Source {
                name: self.hidden.name(0, index),
                generation: stored.generation,
            });
        }
        if end != size || sum != whole {
            return Err(self
                .about("finish")
                .fail(ErrorKind::Corrupt)
                .cause("the segments that were sent don't add up to the file"));
        }
        Ok((own, sources))
    }

    /// Composes groups of objects, each into one. The last one is compared with the expected
    /// checksum.
    async fn compose_groups(
        &self,
        sources: &[Source],
        height: u32,
        wanted: (u64, Crc32c),
    ) -> Result<Vec<Source>, Incomplete> {
        let is_last = sources.len() <= SOURCES_MAX;
        let groups = (0..).zip(sources.chunks(SOURCES_MAX));
        let composing = groups.map(|(index, group)| async move {
            let name = self.hidden.name(height, index);
            let kept = json!({ "contentType": "application/octet-stream" });
            let made = self.compose(group, &name, kept, false).await?;
            if is_last {
                self.check(&made, wanted)?;
            }
            Ok(Source {
                name,
                generation: made.generation,
            })
        });
        let composing: Vec<_> = composing.collect();
        stream::iter(composing)
            .buffered(REQUESTS_MAX)
            .try_collect()
            .await
    }

    async fn compose(
        &self,
        sources: &[Source],
        key: &str,
        kept: Value,
        only_new: bool,
    ) -> Result<Resource, Incomplete> {
        let sources: Vec<Value> = sources
            .iter()
            .map(|source| json!({ "name": source.name, "generation": &*source.generation }))
            .collect();
        let order = json!({ "sourceObjects": sources, "destination": kept });
        let path = format!("{}/compose", self.client.object(key));
        let mut call = Call::new(Method::POST, path, self.about("finish")).query("fields", FIELDS);
        if only_new {
            call = call.query("ifGenerationMatch", "0");
        }
        let composed = self.client.ask(call.json(&order)).await;
        composed.map_err(|error: Error| Incomplete {
            is_gone: error.kind() == ErrorKind::NotFound,
            error,
        })
    }

    fn check(&self, made: &Resource, (size, own): (u64, Crc32c)) -> Result<()> {
        if made.size == size && made.crc32c.is_none_or(|found| found == own) {
            return Ok(());
        }
        Err(self
            .about("finish")
            .fail(ErrorKind::Corrupt)
            .cause("the store's checksum differs from what was sent")
            .with("found", made.size)
            .status_is(Status::Permanent))
    }

    async fn list(&self) -> Result<Vec<Resource>> {
        let mut found = Vec::new();
        let mut token = None;
        for _ in 0..PAGES_MAX {
            let stem = self.hidden.stem();
            let page = self.client.all_below(stem, token.as_deref()).await?;
            found.extend(page.items);
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                break;
            }
        }
        Ok(found)
    }

    /// Removes every component, including those of other runs.
    async fn remove_all(&self) -> Result<()> {
        let names = self.list().await?.into_iter();
        let client = &self.client;
        let removing: Vec<_> = names
            .map(|component| async move { object::remove(client, &component.name).await })
            .collect();
        stream::iter(removing)
            .buffer_unordered(REQUESTS_MAX)
            .try_collect()
            .await
    }
}

impl Segments for Components {
    type Store = GcsClient;
    type Stored = Stored;

    fn limits() -> &'static Limits {
        &LIMITS
    }

    fn at(store: &Arc<GcsClient>, key: &str, spec: &FileSpec, token: &str) -> Self {
        Self {
            client: Arc::clone(store),
            key: key.to_owned(),
            spec: spec.clone(),
            hidden: Hidden::beside(key, token),
            word: token.to_owned(),
        }
    }

    async fn begin(store: &Arc<GcsClient>, key: &str, spec: &FileSpec) -> Result<Self> {
        Ok(Self::at(store, key, spec, &new_word()))
    }

    fn token(&self) -> String {
        self.word.clone()
    }

    async fn held(&self, noted: Noted) -> Result<Option<Vec<Kept>>> {
        if noted.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let there = self.list().await?.into_iter();
        let there: HashMap<String, Resource> = there
            .map(|component| (component.name.clone(), component))
            .collect();
        Ok(Some(noted.held(|noted| {
            let found = there.get(&self.hidden.name(0, noted.index))?;
            let noted_as = Self::noted(noted)?;
            let is_same = found.generation == noted_as.generation
                && found.crc32c.is_none_or(|own| own == noted_as.own);
            is_same.then_some(found.size)
        })))
    }

    fn receipt(stored: &Stored) -> String {
        format!("{}/{}", stored.generation, stored.own)
    }

    fn noted(kept: &Kept) -> Option<Stored> {
        let (generation, own) = kept.receipt.split_once('/')?;
        Some(Stored {
            checksum: kept.checksum,
            own: Crc32c::from_hex(own)?,
            generation: generation.into(),
        })
    }

    fn shown(&self) -> String {
        self.client.show(&self.key)
    }

    async fn send(&self, index: u64, len: u64, mut body: ByteStream) -> Result<(Checksum, Stored)> {
        let mut content = Content::default();
        let holding = Outgoing::current().hold();
        while let Some(bytes) = body.next().await {
            content.add(bytes?);
        }
        drop(holding);
        if content.len != len {
            let error = About::reading("read", self.shown()).fail(ErrorKind::Unreachable);
            return Err(error.cause("the source ended early"));
        }
        let (checksum, own) = (content.sum(), content.own_sum());
        let name = self.hidden.name(0, index);
        let kept = json!({ "contentType": "application/octet-stream" });
        let component = object::store(&self.client, &name, kept, content, None).await?;
        let stored = Stored {
            checksum,
            own,
            generation: component.generation,
        };
        Ok((checksum, stored))
    }

    async fn complete(
        &self,
        segments: Vec<Segment<Stored>>,
        (size, whole): (u64, Checksum),
        only_new: bool,
    ) -> Result<(), Incomplete> {
        let (own, mut sources) = self.sources(segments, size, whole)?;
        let kept = kept_of(&self.spec, Kind::File);
        if sources.is_empty() {
            let condition = only_new.then_some(&Condition::Absent);
            object::store(&self.client, &self.key, kept, Content::default(), condition).await?;
            return Ok(());
        }
        let mut height = 0;
        while sources.len() > 1 {
            height += 1;
            sources = self.compose_groups(&sources, height, (size, own)).await?;
        }
        let published = self.compose(&sources, &self.key, kept, only_new).await?;
        Ok(self.check(&published, (size, own))?)
    }

    fn is_made_of(found: &Resource, segments: &[Segment<Stored>], _: Checksum) -> bool {
        let sums = segments.iter();
        let own = sums.fold(Crc32c::EMPTY, |sum, segment| {
            sum.then(segment.stored.own, segment.len)
        });
        found.crc32c == Some(own)
    }

    async fn clean_up(&self) -> Result<()> {
        self.remove_all().await
    }

    async fn discard(&self) {
        // Leftovers are hidden, and only cost space.
        let _ = self.remove_all().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_unfinished;

    #[test]
    fn components_are_hidden_beside_the_file() {
        for (key, folder) in [("a/b/file", "a/b/"), ("file", "")] {
            let hidden = Hidden::beside(key, "test:origin");
            let name = hidden.name(0, 7);
            assert!(name.starts_with(hidden.stem()), "{name}");
            let below = name.strip_prefix(folder).unwrap();
            assert!(
                is_unfinished(below.as_bytes()) && !below.contains('/'),
                "{name}"
            );
            assert_ne!(name, hidden.name(1, 7));
            assert_ne!(name, Hidden::beside(key, "test:other").name(0, 7));
        }
    }

    #[test]
    fn receipts_are_read_as_they_are_noted() {
        let stored = Stored {
            checksum: Checksum::of(b"x"),
            own: Crc32c::from_hex("e3069283").unwrap(),
            generation: "1700000000000000".into(),
        };
        let kept = |receipt: String| Kept {
            index: 3,
            checksum: stored.checksum,
            receipt,
        };
        let read = Components::noted(&kept(Components::receipt(&stored))).unwrap();
        assert_eq!(
            (read.own, &read.generation),
            (stored.own, &stored.generation)
        );
        for broken in ["-", "17", "17/xyz"] {
            assert!(
                Components::noted(&kept(broken.to_owned())).is_none(),
                "{broken}"
            );
        }
    }
}
