//! Copies by the service among the blobs of one account (Copy Blob).

use std::time::Duration;

use http::HeaderMap;
use tokio::time::sleep;

use super::{
    client::{AzureClient, Call},
    object::{Metadata, metadata_of},
};
use crate::{
    Error, ErrorKind, FileSpec, Kind, Result,
    objects::check_held,
    web::{About, content_length, text_of},
};

/// Interval between checks of a running copy.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Checks without progress before a copy is given up: 10 minutes.
const LOOKS_MAX: u32 = 600;

/// Copies `from`, which is `container/key`, to `key`.
pub(super) async fn copy(
    client: &AzureClient,
    from: &str,
    key: &str,
    spec: &FileSpec,
) -> Result<()> {
    let about = client.writing("copy on the server to", key);
    let (container, source_key) = from.split_once('/').ok_or_else(|| {
        let error = about.fail(ErrorKind::NotFound);
        error.cause("a container is no file")
    })?;
    let looking = Call::new("HEAD", source_key, about.clone()).in_container(container);
    let (source, _) = client.ask(looking).await?;
    if content_length(&source) != Some(spec.size) {
        let error = about.fail(ErrorKind::Changed);
        return Err(error.cause("its size is another one now"));
    }
    let whole = Metadata::of(&source).checksum;
    let mut call = Call::new("PUT", key, about.clone())
        .headers(metadata_of(spec, Kind::File, whole))
        .header("x-ms-copy-source", client.source(from));
    if let Some(version) = text_of(&source, "etag") {
        call = call.header("x-ms-source-if-match", version);
    }
    let (answer, _) = client.ask(call).await?;
    if !answer.contains_key("x-ms-copy-status") {
        let error = about.fail(ErrorKind::Other);
        return Err(error.cause("the answer does not say how the copy stands"));
    }
    wait(client, key, answer, &about).await?;
    check_held(client, key, spec, spec.size).await
}

/// Waits until the copy is complete.
async fn wait(client: &AzureClient, key: &str, mut state: HeaderMap, about: &About) -> Result<()> {
    let mut looks = 0;
    let mut progress = None;
    loop {
        match text_of(&state, "x-ms-copy-status") {
            Some("success") | None => return Ok(()),
            Some("pending") => {}
            Some(status) => {
                forget(client, key).await;
                return Err(failed(status, &state, about));
            }
        }
        if looks == LOOKS_MAX {
            let id = text_of(&state, "x-ms-copy-id").unwrap_or_default();
            abort(client, key, id).await;
            forget(client, key).await;
            let error = about.fail(ErrorKind::TimedOut);
            return Err(error.cause("the service copied nothing for ten minutes"));
        }
        sleep(LOOK_EVERY).await;
        let call = Call::new("HEAD", key, about.clone());
        (state, _) = client.ask(call).await?;
        let now = text_of(&state, "x-ms-copy-progress").map(str::to_owned);
        looks = if now == progress { looks + 1 } else { 0 };
        progress = now;
    }
}

fn failed(status: &str, state: &HeaderMap, about: &About) -> Error {
    let why = text_of(state, "x-ms-copy-status-description").unwrap_or(status);
    about
        .fail(ErrorKind::Other)
        .cause(format!("the service's copy ended: {why}"))
}

async fn abort(client: &AzureClient, key: &str, id: &str) {
    let call = Call::new("PUT", key, client.writing("abort", key))
        .query(&[("comp", "copy"), ("copyid", id)])
        .header("x-ms-copy-action", "abort");
    // The copy may just have ended.
    let _ = client.ask(call).await;
}

/// Removes the empty blob that a failed copy leaves.
async fn forget(client: &AzureClient, key: &str) {
    let call = Call::new("DELETE", key, client.writing("remove", key));
    let _ = client.ask(call).await;
}
