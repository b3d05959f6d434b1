//! Listings of prefixes and ranged reads of objects.

use std::{ops::Range, sync::Arc};

use http::Method;

use super::{
    client::{Call, S3Client, stream},
    directory_entry,
    wire::{LINK_SUFFIX, ListBucketResult, decode_key},
};
use crate::{
    Checksum, Error, ErrorKind, Result,
    endpoint::{Boxed, ByteStream, Entry, Kind, Listing, Reader},
};

pub(super) struct S3Listing {
    pub(super) client: Arc<S3Client>,
    pub(super) prefix: String,
    pub(super) token: Option<String>,
    pub(super) ended: bool,
}

impl S3Listing {
    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        let mut query = vec![
            ("delimiter", "/"),
            ("encoding-type", "url"),
            ("list-type", "2"),
            ("prefix", &*self.prefix),
        ];
        if let Some(token) = &self.token {
            query.push(("continuation-token", token));
        }
        query.sort_unstable();
        let list: ListBucketResult = self
            .client
            .ask_xml(Call::new(Method::GET, "", "list").query(&query))
            .await?;
        let encoded = list.encoding_type.as_deref() == Some("url");
        let name_of = |key: &str| -> Result<Option<Vec<u8>>> {
            let key = decode_key(key, encoded).ok_or_else(|| {
                Error::new(ErrorKind::Other, "list", self.client.show(&self.prefix))
                    .cause("the store sent an unreadable key")
            })?;
            let name = key.strip_prefix(&self.prefix).unwrap_or(&key);
            Ok((!name.is_empty()).then(|| name.as_bytes().to_vec()))
        };
        let mut page = Vec::with_capacity(list.contents.len() + list.common_prefixes.len());
        for object in &list.contents {
            if let Some(name) = name_of(&object.key)? {
                page.push(listed(name, object.size, object.etag.as_deref()));
            }
        }
        for below in &list.common_prefixes {
            if let Some(mut name) = name_of(&below.prefix)? {
                name.pop();
                page.push(Entry {
                    name,
                    ..directory_entry()
                });
            }
        }
        self.ended = list.next_continuation_token.is_none();
        self.token = list.next_continuation_token;
        Ok(page)
    }
}

fn listed(mut name: Vec<u8>, size: u64, etag: Option<&str>) -> Entry {
    let mut kind = Kind::File;
    if let Some(stem) = name.strip_suffix(LINK_SUFFIX.as_bytes())
        && !stem.is_empty()
    {
        kind = Kind::Link;
        name.truncate(stem.len());
    }
    Entry {
        name,
        kind,
        size,
        mtime: None,
        mode: None,
        version: etag.map(Into::into),
    }
}

impl Listing for S3Listing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            // A page may hold nothing but the directory's own marker.
            while !self.ended {
                let page = self.read_page().await?;
                if !page.is_empty() {
                    return Ok(page);
                }
            }
            Ok(Vec::new())
        })
    }
}

pub(super) struct S3Reader {
    pub(super) client: Arc<S3Client>,
    pub(super) key: String,
    pub(super) entry: Entry,
    pub(super) checksum: Option<Checksum>,
}

impl Reader for S3Reader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(async move {
            let span = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            let mut call = Call::new(Method::GET, &self.key, "read").header("range", span);
            if let Some(version) = &self.entry.version {
                call = call.header("if-match", &**version);
            }
            let answer = self.client.send(call).await?;
            Ok(stream(answer.into_body(), self.client.show(&self.key)))
        })
    }

    /// Every range was asked for with `If-Match`, so nothing is left to confirm.
    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
