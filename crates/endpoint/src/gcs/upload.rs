//! A large object written as components that the store composes, so that segments travel side by
//! side and a later run can continue.
//!
//! Each segment is an object of its own under a hidden name beside the final one, which the store
//! refuses unless its CRC-32C is right. What was stored is noted in a ledger under the state folder
//! with the store's generation; a later run believes what the store still lists with it. In the end
//! the components are composed, up to 32 at a time, into one hidden object. Only when the store
//! tells the CRC-32C for it that the segments add up to does it get its name.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Call, GcsClient},
    object::{self, Content},
    resource::{FIELDS, Resource, kept_of},
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Result, Status,
    checksum::Crc32c,
    cut::{Cut, Limits},
    endpoint::{Boxed, ByteStream, FileSpec, PARTIAL_SUFFIX, Writer, base_name, partial_name},
    ledger::{Head, Kept, Ledger},
    objects::{Length, Record},
    outgoing::Outgoing,
    web::About,
};

/// The store composes any number of objects; so many are listed, composed and removed in a while.
static LIMITS: Limits = Limits {
    segments_max: 10_000,
    growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
};

/// Objects the store composes in one request.
const SOURCES_MAX: usize = 32;

/// Compositions and removals under way at once.
const REQUESTS_MAX: usize = 16;

/// Pages of a listing of components: `LIMITS` by the smallest page that is likely, and room.
const PAGES_MAX: usize = 200;

/// What a ledger says where the store has no name for an unfinished copy.
const NO_TOKEN: &str = "-";

/// A component that is stored.
#[derive(Debug, Clone)]
struct Stored {
    checksum: Checksum,
    own: Crc32c,
    generation: Box<str>,
}

impl Stored {
    /// As ledgers note it.
    fn receipt(&self) -> String {
        format!("{}/{}", self.generation, self.own)
    }

    fn of(kept: &Kept) -> Option<Self> {
        let (generation, own) = kept.receipt.split_once('/')?;
        Some(Self {
            checksum: kept.checksum,
            own: Crc32c::from_hex(own)?,
            generation: generation.into(),
        })
    }
}

/// An object to compose, as it was when it was stored.
#[derive(Debug, Clone)]
struct Source {
    name: String,
    generation: Box<str>,
}

pub(super) struct Upload {
    client: Arc<GcsClient>,
    key: String,
    spec: FileSpec,
    hidden: Hidden,
    cut: Cut,
    stored: Mutex<BTreeMap<u64, Stored>>,
    kept: Vec<(u64, Checksum)>,
    ledger: Ledger,
}

/// The names of components: hidden beside the final one, the same in every run.
#[derive(Debug, Clone)]
struct Hidden(String);

impl Hidden {
    fn beside(key: &str, origin: &str) -> Self {
        let name = base_name(key.as_bytes());
        let folder = &key[..key.len() - name.len()];
        let partial = partial_name(name, origin);
        let partial = String::from_utf8_lossy(&partial);
        let stem = partial.strip_suffix(PARTIAL_SUFFIX).unwrap_or(&partial);
        Self(format!("{folder}{stem}-"))
    }

    /// What all of them begin with.
    fn stem(&self) -> &str {
        &self.0
    }

    /// Segments are at height 0; what is composed of them is above.
    fn name(&self, height: u32, index: u64) -> String {
        format!("{}{height}-{index:05}{PARTIAL_SUFFIX}", self.0)
    }
}

impl Upload {
    /// Continues the unfinished upload of the same source, or starts one.
    pub(super) async fn start(
        client: Arc<GcsClient>,
        key: String,
        spec: &FileSpec,
        length: Length,
    ) -> Result<Self> {
        let (cut, spec) = length.cut(spec, &LIMITS);
        let record = Record::of(&*client, &key, &spec);
        let hidden = Hidden::beside(&key, &spec.origin);
        let head = Head {
            identity: spec.identity(),
            segment_size: cut.segment(),
            token: NO_TOKEN.to_owned(),
        };
        let kept = match record.load() {
            Some((found, kept)) if found == head => held(&client, &hidden, cut, kept).await?,
            Some(_) => {
                // What is left over does no harm but cost: the end of this copy removes it, too.
                let _ = remove_all(&client, &hidden).await;
                Vec::new()
            }
            None => Vec::new(),
        };
        let ledger = record.start(&head, &kept)?;
        let stored = kept
            .iter()
            .filter_map(|kept| Some((kept.index, Stored::of(kept)?)));
        Ok(Self {
            stored: Mutex::new(stored.collect()),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            client,
            key,
            spec,
            hidden,
            cut,
            ledger,
        })
    }

    fn about(&self, operation: &'static str) -> About {
        About::writing(operation, self.client.show(&self.key))
    }

    async fn send_segment(&self, index: u64, content: Content) -> Result<Checksum> {
        let (checksum, own) = (content.sum(), content.own_sum());
        let name = self.hidden.name(0, index);
        let kept = json!({ "contentType": "application/octet-stream" });
        let component = object::store(&self.client, &name, kept, content, None).await?;
        let stored = Stored {
            checksum,
            own,
            generation: component.generation,
        };
        self.ledger
            .add(index, checksum, &stored.receipt())
            .map_err(|cause| {
                let shown = self.client.show(&self.key);
                Error::io("note an unfinished upload of", shown, cause)
            })?;
        let mut all = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(index, stored);
        Ok(checksum)
    }

    async fn complete(&self, size: u64, whole: Checksum) -> Result<()> {
        let (own, mut sources) = self.sources(size, whole)?;
        if sources.is_empty() {
            let kept = kept_of(&self.spec, Kind::File);
            object::store(&self.client, &self.key, kept, Content::default(), None).await?;
        } else {
            let mut height = 0;
            while sources.len() > 1 {
                height += 1;
                sources = self.compose_groups(&sources, height, (size, own)).await?;
            }
            let kept = kept_of(&self.spec, Kind::File);
            let published = self.compose(&sources, &self.key, kept).await?;
            self.check(&published, (size, own))?;
        }
        self.ledger.remove();
        // What is left over is hidden.
        let _ = remove_all(&self.client, &self.hidden).await;
        Ok(())
    }

    /// The segments below `size` in their order and what they add up to.
    fn sources(&self, size: u64, whole: Checksum) -> Result<(Crc32c, Vec<Source>)> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sum, mut own, mut end) = (Checksum::EMPTY, Crc32c::EMPTY, 0);
        let mut sources = Vec::with_capacity(stored.len());
        let within = stored.iter();
        let within = within.filter(|&(&index, _)| self.cut.start(index) < size);
        for (&index, stored) in within {
            if self.cut.start(index) != end {
                break;
            }
            let len = self.cut.start(index + 1).min(size).saturating_sub(end);
            sum = sum.then(stored.checksum, len);
            own = own.then(stored.own, len);
            end += len;
            sources.push(Source {
                name: self.hidden.name(0, index),
                generation: stored.generation.clone(),
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

    /// Composes groups of objects, each into one. The last one is compared with what is wanted.
    async fn compose_groups(
        &self,
        sources: &[Source],
        height: u32,
        wanted: (u64, Crc32c),
    ) -> Result<Vec<Source>> {
        let is_last = sources.len() <= SOURCES_MAX;
        let groups = (0..).zip(sources.chunks(SOURCES_MAX));
        let composing = groups.map(|(index, group)| async move {
            let name = self.hidden.name(height, index);
            let kept = json!({ "contentType": "application/octet-stream" });
            let made = self.compose(group, &name, kept).await?;
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

    async fn compose(&self, sources: &[Source], key: &str, kept: Value) -> Result<Resource> {
        let sources: Vec<Value> = sources
            .iter()
            .map(|source| json!({ "name": source.name, "generation": &*source.generation }))
            .collect();
        let order = json!({ "sourceObjects": sources, "destination": kept });
        let path = format!("{}/compose", self.client.object(key));
        let call = Call::new(Method::POST, path, self.about("finish")).query("fields", FIELDS);
        let composed = self.client.ask(call.json(&order)).await;
        composed.map_err(|error: Error| {
            if error.kind() == ErrorKind::NotFound {
                self.ledger.remove();
                return error.hint("run the same command again");
            }
            error
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
}

/// Which noted segments the store still holds.
async fn held(
    client: &GcsClient,
    hidden: &Hidden,
    cut: Cut,
    noted: Vec<Kept>,
) -> Result<Vec<Kept>> {
    if noted.is_empty() {
        return Ok(noted);
    }
    let there: HashMap<String, Resource> = components(client, hidden)
        .await?
        .into_iter()
        .map(|component| (component.name.clone(), component))
        .collect();
    let mut kept: BTreeMap<u64, Kept> = BTreeMap::new();
    for noted in noted {
        let found = there.get(&hidden.name(0, noted.index));
        let is_held = found
            .zip(Stored::of(&noted))
            .is_some_and(|(found, noted_as)| {
                found.generation == noted_as.generation
                    && found.crc32c.is_none_or(|own| own == noted_as.own)
                    && cut.allows(noted.index, found.size)
            });
        if is_held {
            kept.insert(noted.index, noted);
        }
    }
    Ok(kept.into_values().collect())
}

async fn components(client: &GcsClient, hidden: &Hidden) -> Result<Vec<Resource>> {
    let mut found = Vec::new();
    let mut token = None;
    for _ in 0..PAGES_MAX {
        let page = client.all_below(hidden.stem(), token.as_deref()).await?;
        found.extend(page.items);
        token = page.next_page_token.filter(|token| !token.is_empty());
        if token.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Removes every component, also those of other runs.
async fn remove_all(client: &GcsClient, hidden: &Hidden) -> Result<()> {
    let names = components(client, hidden).await?.into_iter();
    let removing: Vec<_> = names
        .map(|component| async move { object::remove(client, &component.name).await })
        .collect();
    stream::iter(removing)
        .buffer_unordered(REQUESTS_MAX)
        .try_collect()
        .await
}

impl Writer for Upload {
    fn segment_size(&self) -> u64 {
        self.cut.segment()
    }

    fn segment_start(&self, index: u64) -> u64 {
        self.cut.start(index)
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        mut body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            if index >= LIMITS.segments_max {
                return Err(self
                    .about("write")
                    .fail(ErrorKind::Unsupported)
                    .cause(format!("it has more than {} segments", LIMITS.segments_max))
                    .hint("say how long it is with --size"));
            }
            let mut content = Content::default();
            let holding = Outgoing::current().hold();
            while let Some(bytes) = body.next().await {
                content.add(bytes?);
            }
            drop(holding);
            if content.len != range.end - range.start {
                let about = About::reading("read", self.client.show(&self.key));
                let error = about.fail(ErrorKind::Unreachable);
                return Err(error.cause("the source ended early"));
            }
            self.send_segment(index, content).await
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        match self.cut {
            Cut::Even { size, .. } => self.finish_at(size, whole),
            Cut::Growing(_) => Box::pin(async {
                let error = self.about("finish").fail(ErrorKind::Invalid);
                Err(error.cause("nobody said where it ends"))
            }),
        }
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.complete(size, whole))
    }

    /// The store only answers for what it keeps.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(true) })
    }

    fn note(&self) -> Option<String> {
        self.ledger.note()
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let _ = remove_all(&self.client, &self.hidden).await;
            self.ledger.remove();
        })
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
        let read = Stored::of(&kept(stored.receipt())).unwrap();
        assert_eq!(
            (read.own, &read.generation),
            (stored.own, &stored.generation)
        );
        for broken in ["-", "17", "17/xyz"] {
            assert!(Stored::of(&kept(broken.to_owned())).is_none(), "{broken}");
        }
    }
}
