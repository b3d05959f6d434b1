//! Unfinished copies of small files, each certain to be new.

use std::sync::Arc;

use super::{
    file::{FilePath, OpenFile},
    remote::Remote,
    wire::{OPEN_CREATE, OPEN_NEW, OPEN_READ, OPEN_WRITE, REMOVE, Request},
};
use crate::{
    ErrorKind, Result,
    endpoint::{FileSpec, new_word},
};

/// Open unfinished copy.
pub(super) struct Unfinished {
    pub(super) file: OpenFile,
    pub(super) partial: Vec<u8>,
    /// Path that was tried first, if something occupies it.
    pub(super) beside: Option<Vec<u8>>,
}

impl Remote {
    /// Opens a new unfinished copy. Its name is predictable, so an existing file there may be a
    /// link, another user's, or a leftover of a killed copy. Then the copy gets an unpredictable
    /// name.
    pub(super) async fn open_unfinished<F>(
        self: &Arc<Self>,
        full: &[u8],
        spec: &FileSpec,
        open: impl Fn(Arc<Self>, FilePath, u32) -> F,
    ) -> Result<Unfinished>
    where
        F: Future<Output = Result<OpenFile>>,
    {
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE | OPEN_NEW;
        let opening = |partial: &[u8]| {
            let path = FilePath::unfinished(partial.to_vec(), full, spec);
            open(Arc::clone(self), path, flags)
        };
        let partial = self.same_partial(full, spec);
        let refused = match opening(&partial).await {
            Ok(file) => {
                return Ok(Unfinished {
                    file,
                    partial,
                    beside: None,
                });
            }
            Err(error) => error,
        };
        // The protocol has no code for an existing file.
        if !matches!(
            refused.kind(),
            ErrorKind::Other | ErrorKind::PermissionDenied
        ) {
            return Err(refused);
        }
        let own = self.partial(full, &new_word());
        match opening(&own).await {
            Ok(file) => Ok(Unfinished {
                file,
                partial: own,
                beside: Some(partial),
            }),
            Err(_) => Err(refused),
        }
    }

    /// Removes a killed copy's leftover beside the published file.
    pub(super) async fn clear(&self, beside: Option<Vec<u8>>) {
        if let Some(beside) = beside {
            let _ = self.ask(Request::new(REMOVE).string(&beside)).await;
        }
    }
}
