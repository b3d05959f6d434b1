//! A last look at a file whose last byte was read.

use http::StatusCode;

use super::{About, Call, Place, content_length, drain, version::is_same};
use crate::{Error, ErrorKind, Result, endpoint::Entry};

/// Looks once more at a file whose last byte was read: a file that is written in place changes
/// within one answer too. A server that does not answer this question says nothing against what
/// its other answers said.
///
/// # Errors
/// [`ErrorKind::Changed`]; temporary errors.
pub(super) async fn look_after(place: &Place, path: &[u8], entry: &Entry) -> Result<()> {
    let about = About::reading("look at", place.show(path));
    let call = Call::new("HEAD", place.target(path), about);
    let answer = match place.send(call.header("accept-encoding", "identity")).await {
        Ok(answer) => answer,
        Err(error) if error.is_temporary() => return Err(error),
        Err(_) => return Ok(()),
    };
    let (head, body) = answer.response.into_parts();
    drain(body).await;
    if head.status != StatusCode::OK {
        return Ok(());
    }
    let has_size = content_length(&head.headers).is_none_or(|size| size == entry.size);
    match has_size && is_same(&head.headers, entry) {
        true => Ok(()),
        false => Err(changed(&About::reading("read", place.show(path)))),
    }
}

/// Returns the error for a file that is no longer what was opened.
pub(super) fn changed(about: &About) -> Error {
    about
        .fail(ErrorKind::Changed)
        .cause("it changed while it was read")
        .hint("copy it again when nothing writes to it")
}
