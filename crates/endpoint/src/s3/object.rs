//! Ranged reads of objects, and their removal.

use std::{ops::Range, sync::Arc};

use http::Method;

use super::client::{Call, S3Client, stream};
use crate::{
    Checksum, ErrorKind, Locus, Result,
    endpoint::{Boxed, ByteStream, Entry, Reader},
    objects::LINK_SUFFIX,
};

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

/// Removes an object, or the link of that name.
pub(super) async fn remove(client: &S3Client, key: &str) -> Result<()> {
    for key in [key, &*format!("{key}{LINK_SUFFIX}")] {
        let call = Call::new(Method::DELETE, key, "remove").at(Locus::Destination);
        match client.ask(call).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}
