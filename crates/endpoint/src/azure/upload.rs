//! Upload in blocks, as [`crate::objects::Upload`] continues it.
//!
//! Azure knows no uploads, only uncommitted blocks of a name. So a block's id names its upload and
//! its index. Committing discards the blocks of other uploads, and so does Azure after a week.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use reqsign_core::hash::base64_encode;

use super::{
    client::{AzureClient, Call},
    object::{Metadata, dressed, sum_in},
    refusal::{BLOCKS_GONE, has_code},
};
use crate::{
    Checksum, ErrorKind, Kind, Result, Status, Summer,
    cut::Limits,
    endpoint::{ByteStream, FileSpec, new_word},
    ledger::Kept,
    objects::{Head, Incomplete, Noted, Segment, Segments},
    web::Sent,
    xml::walk,
};

/// Most blocks that Azure accepts for one blob ("Scalability and performance targets for Blob
/// storage"); those of unknown length reach 2.2 TiB.
static LIMITS: Limits = Limits {
    segments_max: 50_000,
    growth: &[(1_000, 16), (2_000, 32), (47_000, 48)],
};

/// Largest blob: as many blocks of 4000 MiB.
pub(super) const OBJECT_BYTES_MAX: u64 = LIMITS.segments_max * (4000 << 20);

/// Blob being uploaded.
pub(crate) struct Blocks {
    client: Arc<AzureClient>,
    key: String,
    spec: FileSpec,
    /// Word that the ids of its blocks contain, and no other upload's.
    word: String,
}

/// Returns the id of block `index` of the upload that `word` stands for. All ids of a blob must
/// have one length.
fn block_id(word: &str, index: u64) -> String {
    base64_encode(format!("{word}{index:08}").as_bytes())
}

impl Blocks {
    /// Returns the uncommitted blocks of the name, with their sizes.
    async fn list(&self) -> Result<HashMap<String, u64>> {
        let about = self.client.writing("continue", &self.key);
        let call = Call::new("GET", &self.key, about.clone())
            .query(&[("comp", "blocklist"), ("blocklisttype", "uncommitted")]);
        match self.client.ask(call).await {
            Ok((_, body)) => blocks_in(&body).map_err(|cause| {
                let error = about.fail(ErrorKind::Other);
                error.cause(format!("unreadable answer: {cause}"))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Returns the list of the blob's blocks.
    fn order(&self, segments: &[Segment<Checksum>]) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for segment in segments {
            let id = block_id(&self.word, segment.index);
            let _ = write!(text, "<Uncommitted>{id}</Uncommitted>");
        }
        text.push_str("</BlockList>");
        text
    }
}

/// Returns the blocks that an answer lists, with their sizes.
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

impl Segments for Blocks {
    type Store = AzureClient;
    type Stored = Checksum;

    fn limits() -> &'static Limits {
        &LIMITS
    }

    fn at(store: &Arc<AzureClient>, key: &str, spec: &FileSpec, token: &str) -> Self {
        Self {
            client: Arc::clone(store),
            key: key.to_owned(),
            spec: spec.clone(),
            word: token.to_owned(),
        }
    }

    async fn begin(store: &Arc<AzureClient>, key: &str, spec: &FileSpec) -> Result<Self> {
        Ok(Self::at(store, key, spec, &new_word()))
    }

    fn token(&self) -> String {
        self.word.clone()
    }

    async fn held(&self, noted: Noted) -> Result<Option<Vec<Kept>>> {
        let listed = self.list().await?;
        let size_of = |noted: &Kept| listed.get(&block_id(&self.word, noted.index)).copied();
        Ok(Some(noted.held(size_of)))
    }

    fn receipt(_: &Checksum) -> String {
        "-".to_owned()
    }

    fn noted(kept: &Kept) -> Option<Checksum> {
        Some(kept.checksum)
    }

    fn shown(&self) -> String {
        self.client.show(&self.key)
    }

    /// Sends one block as it arrives.
    async fn send(&self, index: u64, len: u64, body: ByteStream) -> Result<(Checksum, Checksum)> {
        let summer = Arc::new(Mutex::new(Summer::default()));
        let summing = Arc::clone(&summer);
        let body = body.map(move |bytes| {
            if let Ok(bytes) = &bytes {
                let mut summer = summing.lock().unwrap_or_else(PoisonError::into_inner);
                summer.add(bytes);
            }
            bytes
        });
        let id = block_id(&self.word, index);
        let about = self.client.writing("write", &self.key);
        let call = Call::new("PUT", &self.key, about.clone())
            .query(&[("comp", "block"), ("blockid", &id)])
            .body(Sent::stream(Box::pin(body), len));
        let headers = self.client.store(call).await?;
        let sum = summer.lock().unwrap_or_else(PoisonError::into_inner).sum();
        // The checksum of a stream is known too late to be sent with it; the service reports its
        // own.
        if sum_in(&headers).is_some_and(|found| found != sum) {
            return Err(about
                .fail(ErrorKind::Corrupt)
                .cause("the service holds other bytes than were sent")
                .status_is(Status::Temporary));
        }
        Ok((sum, sum))
    }

    async fn complete(
        &self,
        segments: Vec<Segment<Checksum>>,
        (_, whole): (u64, Checksum),
        only_new: bool,
    ) -> Result<(), Incomplete> {
        let about = self.client.writing("finish", &self.key);
        let mut call = Call::new("PUT", &self.key, about)
            .query(&[("comp", "blocklist")])
            .headers(dressed(&self.spec, Kind::File, Some(whole)))
            .header("content-type", "application/xml")
            .body(Sent::pieces(vec![self.order(&segments).into()]));
        if only_new {
            call = call.header("if-none-match", "*");
        }
        let stored = self.client.store(call).await;
        stored.map_err(|error| Incomplete {
            is_gone: has_code(&error, BLOCKS_GONE),
            error,
        })?;
        Ok(())
    }

    fn is_made_of(head: &Head, _: &[Segment<Checksum>], whole: Checksum) -> bool {
        Metadata::of(&head.headers).checksum == Some(whole)
    }

    /// Blocks can't be removed without making the name visible: Azure discards them after a week.
    async fn discard(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_blocks_are_of_one_length() {
        let (word, other) = (new_word(), new_word());
        let first = block_id(&word, 0);
        let last = block_id(&other, LIMITS.segments_max - 1);
        assert_eq!(first.len(), last.len());
        assert_ne!(first, last);
        assert!(word.len() + 8 <= 64, "Azure takes no longer ones");
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
