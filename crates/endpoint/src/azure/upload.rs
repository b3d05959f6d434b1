//! An upload in blocks that a later run can continue.
//!
//! Azure knows no uploads, only blocks of a name that nobody committed. So a block's id says what it
//! is a block of and which one; the checksums are noted in a ledger under the state folder. A later
//! run asks which blocks are held; those with a noted checksum are kept. Blocks of a source that has
//! changed since have other ids: committing forgets them, and so does Azure after a week.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use reqsign_core::hash::base64_encode;

use super::{
    client::{AzureClient, Call},
    object::{Metadata, dressed, size_of, sum_in},
    refusal::{BLOCKS_GONE, has_code},
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result, Status, Summer,
    cut::{Cut, Limits},
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    ledger::{Head, Kept, Ledger},
    objects::{Length, Record},
    web::Sent,
    xml::walk,
};

/// Blocks Azure takes for one blob ("Scalability and performance targets for Blob storage"); those
/// of unknown length reach 2.2 TiB.
static LIMITS: Limits = Limits {
    segments_max: 50_000,
    growth: &[(1_000, 16), (2_000, 32), (47_000, 48)],
};

/// The largest blob: as many blocks of 4000 MiB.
pub(super) const OBJECT_BYTES_MAX: u64 = LIMITS.segments_max * (4000 << 20);

pub(super) struct Upload {
    client: Arc<AzureClient>,
    key: String,
    spec: FileSpec,
    cut: Cut,
    /// Checksums of the blocks the service holds.
    stored: Mutex<BTreeMap<u64, Checksum>>,
    kept: Vec<(u64, Checksum)>,
    ledger: Ledger,
}

/// The id of block `index` of what `identity` names. All ids of a blob have to be of one length.
fn block_id(identity: &str, index: u64) -> String {
    base64_encode(format!("{identity}{index:08}").as_bytes())
}

impl Upload {
    /// Continues the unfinished upload of the same source, or starts one.
    pub(super) async fn start(
        client: Arc<AzureClient>,
        key: String,
        spec: &FileSpec,
        length: Length,
    ) -> Result<Self> {
        let (cut, spec) = length.cut(spec, &LIMITS);
        let record = Record::of(&*client, &key, &spec);
        let head = Head {
            identity: spec.identity(),
            segment_size: cut.segment(),
            token: "-".to_owned(),
        };
        let kept = match record.load() {
            Some((found, noted)) if found == head => {
                held(&client, &key, cut, &head.identity, noted).await?
            }
            Some(_) | None => Vec::new(),
        };
        let ledger = record.start(&head, &kept)?;
        let kept = kept.iter().map(|kept| (kept.index, kept.checksum));
        let kept: Vec<_> = kept.collect();
        Ok(Self {
            stored: Mutex::new(kept.iter().copied().collect()),
            client,
            key,
            spec,
            cut,
            kept,
            ledger,
        })
    }

    /// Sends one block as it comes, and returns its checksum.
    async fn send(&self, index: u64, len: u64, body: ByteStream) -> Result<Checksum> {
        let summer = Arc::new(Mutex::new(Summer::default()));
        let summing = Arc::clone(&summer);
        let body = body.map(move |bytes| {
            if let Ok(bytes) = &bytes {
                let mut summer = summing.lock().unwrap_or_else(PoisonError::into_inner);
                summer.add(bytes);
            }
            bytes
        });
        let id = block_id(&self.spec.identity(), index);
        let about = self.client.writing("write", &self.key);
        let call = Call::new("PUT", &self.key, about.clone())
            .query(&[("comp", "block"), ("blockid", &id)])
            .body(Sent::stream(Box::pin(body), len));
        let (headers, _) = self.client.ask(call).await?;
        let sum = summer.lock().unwrap_or_else(PoisonError::into_inner).sum();
        // The sum of a stream is known too late to be sent with it; the service says what it got.
        if sum_in(&headers).is_some_and(|found| found != sum) {
            return Err(about
                .fail(ErrorKind::Corrupt)
                .cause("the service holds other bytes than were sent")
                .status_is(Status::Temporary));
        }
        Ok(sum)
    }

    fn note_stored(&self, index: u64, sum: Checksum) -> Result<()> {
        self.ledger.add(index, sum, "-").map_err(|cause| {
            Error::io(
                "note an unfinished upload of",
                self.client.show(&self.key),
                cause,
            )
        })?;
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.insert(index, sum);
        Ok(())
    }

    async fn commit(&self, size: u64, whole: Checksum) -> Result<()> {
        let about = self.client.writing("finish", &self.key);
        let call = Call::new("PUT", &self.key, about)
            .query(&[("comp", "blocklist")])
            .headers(dressed(&self.spec, Kind::File, Some(whole)))
            .header("content-type", "application/xml")
            .body(Sent::pieces(vec![self.order(size).into()]));
        match self.client.ask(call).await {
            Ok(_) => {}
            Err(error) if has_code(&error, BLOCKS_GONE) => {
                // An earlier attempt may have succeeded without our hearing of it.
                if !self.is_published(size, whole).await {
                    self.ledger.remove();
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        self.ledger.remove();
        Ok(())
    }

    /// The list of blocks the blob of `size` bytes is made of.
    fn order(&self, size: u64) -> String {
        let identity = self.spec.identity();
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        let within = stored.keys().filter(|&&index| self.cut.start(index) < size);
        for index in within {
            let id = block_id(&identity, *index);
            let _ = write!(text, "<Uncommitted>{id}</Uncommitted>");
        }
        text.push_str("</BlockList>");
        text
    }

    /// Whether the blob under the final name is the one that was sent.
    async fn is_published(&self, size: u64, whole: Checksum) -> bool {
        let about = self.client.writing("look at", &self.key);
        let asked = self.client.ask(Call::new("HEAD", &self.key, about)).await;
        asked.is_ok_and(|(headers, _)| {
            size_of(&headers) == Some(size) && Metadata::of(&headers).checksum == Some(whole)
        })
    }
}

/// Which noted blocks the service still holds.
async fn held(
    client: &AzureClient,
    key: &str,
    cut: Cut,
    identity: &str,
    noted: Vec<Kept>,
) -> Result<Vec<Kept>> {
    let about = client.writing("continue", key);
    let call = Call::new("GET", key, about.clone())
        .query(&[("comp", "blocklist"), ("blocklisttype", "uncommitted")]);
    let listed = match client.ask(call).await {
        Ok((_, body)) => blocks_in(&body).map_err(|cause| {
            let error = about.fail(ErrorKind::Other);
            error.cause(format!("unreadable answer: {cause}"))
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => HashMap::new(),
        Err(error) => return Err(error),
    };
    let mut kept = BTreeMap::new();
    for noted in noted {
        let size = listed.get(&block_id(identity, noted.index));
        if size.is_some_and(|size| cut.allows(noted.index, *size)) {
            kept.insert(noted.index, noted);
        }
    }
    Ok(kept.into_values().collect())
}

/// The blocks an answer lists, with their sizes.
fn blocks_in(body: &[u8]) -> Result<HashMap<String, u64>, String> {
    let known = |name: &str| match name {
        "BlockList" => "BlockList",
        "Block" => "Block",
        "Name" => "Name",
        "Size" => "Size",
        _ => "",
    };
    let mut blocks = HashMap::new();
    let (mut id, mut size, mut whole) = (String::new(), 0, false);
    walk(body, known, |ended| {
        let text = ended.text;
        match (ended.above, ended.name) {
            ("Block", "Name") => id = std::mem::take(text),
            ("Block", "Size") => size = text.parse().map_err(|_| format!("size {text}"))?,
            (_, "Block") => _ = blocks.insert(std::mem::take(&mut id), size),
            ("", "BlockList") => whole = true,
            _ => {}
        }
        Ok(())
    })?;
    match whole {
        true => Ok(blocks),
        false => Err("no whole list".to_owned()),
    }
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
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            if index >= LIMITS.segments_max {
                let error = self.client.writing("write", &self.key);
                return Err(error
                    .fail(ErrorKind::Unsupported)
                    .cause(format!(
                        "Azure takes no more than {} segments",
                        LIMITS.segments_max
                    ))
                    .hint("say how long it is with --size"));
            }
            let sum = self.send(index, range.end - range.start, body).await?;
            self.note_stored(index, sum)?;
            Ok(sum)
        })
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        match self.cut {
            Cut::Even { size, .. } => self.finish_at(size, whole),
            Cut::Growing(_) => Box::pin(async {
                Err(
                    Error::new(ErrorKind::Invalid, "finish", self.client.show(&self.key))
                        .cause("nobody said where it ends")
                        .at(Locus::Client),
                )
            }),
        }
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.commit(size, whole))
    }

    /// The service only answers for what it keeps.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(true) })
    }

    fn note(&self) -> Option<String> {
        self.ledger.note()
    }

    /// Blocks can't be taken back without making the name visible: Azure forgets them after a week.
    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async { self.ledger.remove() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_blocks_are_of_one_length() {
        let identity = "0123456789abcdef0123456789abcdef";
        let first = block_id(identity, 0);
        let last = block_id(identity, LIMITS.segments_max - 1);
        assert_eq!(first.len(), last.len());
        assert_ne!(first, last);
        assert!(identity.len() + 8 <= 64, "Azure takes no longer ones");
    }

    #[test]
    fn lists_of_blocks_are_read() {
        let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>\
            <UncommittedBlocks><Block><Name>YQ==</Name><Size>7</Size></Block>\
            <Block><Name>Yg==</Name><Size>8</Size></Block></UncommittedBlocks></BlockList>";
        let blocks = blocks_in(text.as_bytes()).unwrap();
        assert_eq!(
            blocks,
            HashMap::from([("YQ==".to_owned(), 7), ("Yg==".to_owned(), 8)])
        );
        let none = "<BlockList><UncommittedBlocks /></BlockList>";
        assert!(blocks_in(none.as_bytes()).unwrap().is_empty());
        assert!(blocks_in(b"<html></html>").is_err());
    }
}
