//! Unfinished copies of small files, made by this writer alone.

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
    /// Copy under the name that was tried first.
    pub(super) beside: Option<Vec<u8>>,
}

impl Remote {
    /// Opens an unfinished copy that does not exist yet. Its name can be guessed: it may belong to
    /// a link, another user, or a killed copy. Then the copy gets a name that nobody knows.
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
        // The protocol has no code for a file that exists already.
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

    /// Removes what a killed copy left beside the file that has its name now.
    pub(super) async fn clear(&self, beside: Option<Vec<u8>>) {
        if let Some(beside) = beside {
            let _ = self.ask(Request::new(REMOVE).string(&beside)).await;
        }
    }
}
