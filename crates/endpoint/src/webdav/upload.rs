//! Writing to a WebDAV server: one stream a file, under a hidden name until it is whole.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use futures_util::StreamExt;

use super::{Shelf, parent_of};
use crate::{
    Checksum, ErrorKind, Result, Summer, dates,
    endpoint::{Boxed, ByteStream, FileSpec, Writer, base_name, partial_name},
    web::{About, Sent, stream},
};

impl Shelf {
    /// Puts a body under a hidden name.
    pub(super) async fn send(&self, partial: &[u8], spec: &FileSpec, body: Sent) -> Result<()> {
        let mut call = self
            .call("PUT", partial, "write")
            .header("content-type", "application/octet-stream")
            .body(body);
        if let Some(mtime) = spec.mtime {
            // ownCloud and its kin take the time from here, nginx from the date of the request.
            call = call.header("x-oc-mtime", mtime.secs.to_string());
            if self.is_nginx.load(Relaxed) {
                call = call.header("date", dates::show_http(mtime));
            }
        }
        self.command(call).await
    }

    /// Looks at what was written: its size, and what it reads back as where the rules say so.
    pub(super) async fn check(
        &self,
        partial: &[u8],
        size: u64,
        sum: Option<Checksum>,
    ) -> Result<()> {
        let about = About::writing("write", self.place().show_full(partial));
        let fail = |cause: String| about.fail(ErrorKind::Corrupt).cause(cause);
        match sum.filter(|_| self.rules.verify) {
            Some(wanted) => {
                let (found, len) = self.sum_of(partial).await?;
                if (found, len) != (wanted, size) {
                    return Err(fail("what was written reads back differently".to_owned())
                        .hint("check the server's disk"));
                }
            }
            None => {
                let there = self.look_at(partial).await?;
                let found = there.map_or(0, |there| there.size);
                if found != size {
                    return Err(fail(format!("the server holds {found} bytes of {size}")));
                }
            }
        }
        Ok(())
    }

    async fn sum_of(&self, partial: &[u8]) -> Result<(Checksum, u64)> {
        let call = self
            .call("GET", partial, "read back")
            .header("accept-encoding", "identity");
        let response = self.place().ask(call).await?;
        let mut body = stream(response.into_body(), self.place().show_full(partial));
        let (mut summer, mut len) = (Summer::default(), 0);
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            len += bytes.len() as u64;
            summer.add(&bytes);
        }
        Ok((summer.sum(), len))
    }
}

/// The hidden name beside `full` under which it is written.
pub(super) fn partial_path(full: &[u8], spec: &FileSpec) -> Vec<u8> {
    let name = partial_name(base_name(full), &spec.origin);
    [parent_of(full), b"/", &name].concat()
}

/// A file on its way.
pub(super) struct Upload {
    shelf: Arc<Shelf>,
    full: Vec<u8>,
    partial: Vec<u8>,
    spec: FileSpec,
}

impl Upload {
    pub(super) fn new(shelf: Arc<Shelf>, full: Vec<u8>, spec: &FileSpec) -> Self {
        Self {
            partial: partial_path(&full, spec),
            spec: spec.clone(),
            shelf,
            full,
        }
    }
}

impl Writer for Upload {
    /// All of it: RFC 4918 has no way to write a range.
    fn segment_size(&self) -> u64 {
        self.spec.size.max(1)
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        Vec::new()
    }

    fn write(
        &self,
        _index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            let summer = Arc::new(Mutex::new(Summer::default()));
            let summing = Arc::clone(&summer);
            let body = body.map(move |bytes| {
                if let Ok(bytes) = &bytes {
                    let mut summer = summing.lock().unwrap_or_else(PoisonError::into_inner);
                    summer.add(bytes);
                }
                bytes
            });
            let len = range.end - range.start;
            let body = Sent::stream(Box::pin(body), len);
            self.shelf.send(&self.partial, &self.spec, body).await?;
            let sum = summer.lock().unwrap_or_else(PoisonError::into_inner).sum();
            self.shelf.check(&self.partial, len, Some(sum)).await?;
            Ok(sum)
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.shelf.publish(&self.partial, &self.full))
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(self.shelf.forget(&self.partial))
    }
}
