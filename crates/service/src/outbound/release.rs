use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::RequestId;

use crate::{release::remove, store::Store};

/// Removes a request's source: only what is in its list, and only if unchanged since the listing.
///
/// # Errors
/// [`ErrorKind::Changed`] if a file changed, which then stays; and the operating system's.
pub(super) async fn release(store: &Arc<Store>, request: RequestId) -> Result<()> {
    let store = Arc::clone(store);
    let removed = tokio::task::spawn_blocking(move || {
        let record = store.request(request)?;
        let list = store.list(request)?;
        let root = PathBuf::from(OsStr::from_bytes(&record.source));
        // If files of a directory were named, only they are to go.
        let keeps_root = record.is_of_some();
        let backup = store.backup_of(request);
        let actor = store.actors.of(&record)?;
        actor.run(|| remove(&root, &list, keeps_root, backup))
    });
    removed.await.map_err(|cause| {
        Error::new(ErrorKind::Cancelled, "remove", "the source").cause(cause.to_string())
    })?
}
