//! Relations to other relays: connections that are kept, and answers that take long.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, RelayAddress, RelayClient},
};
use serde::Serialize;
use tokio::time::sleep;
use tracing::Instrument;

use crate::{answer::Body, store::Refusal};

/// Maximum of relays whose connections are kept.
const CLIENTS_MAX: usize = 64;
/// Interval of signs to the client that the work goes on.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Relays that were sent or asked something, by address and key.
#[derive(Default)]
pub(crate) struct Others(Mutex<BTreeMap<(String, String), RelayClient>>);

impl Others {
    /// Returns a client of another relay, over the existing connections to it.
    pub(crate) fn client(
        &self,
        url: &str,
        fingerprint: &str,
        token: &str,
    ) -> Result<RelayClient, Refusal> {
        let invalid = |what: &str| Refusal::new(ErrorKind::Invalid, what);
        let credential = Credential::Token(token.to_owned());
        let key = (url.to_owned(), fingerprint.to_owned());
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&key) {
            return Ok(known.with_credential(credential));
        }
        let address = RelayAddress {
            url: url.to_owned(),
            fingerprint: fingerprint
                .parse()
                .map_err(|_| invalid("the other relay's fingerprint is none"))?,
        };
        let client = RelayClient::new(address, credential)
            .map_err(|_| invalid("the other relay's address is none"))?;
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        // The token is not kept: the next order brings its own.
        clients.insert(
            key,
            client.with_credential(Credential::Token(String::new())),
        );
        Ok(client)
    }
}

/// Work under way for a caller: if the caller leaves, it ends.
pub(crate) type UnderWay<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers at once with white space, until the end of the work is known.
pub(crate) fn answer_in_time<T: Serialize + 'static>(under_way: UnderWay<T>) -> Response<Body> {
    // Requests to others meanwhile belong to the call, which is answered by then.
    let under_way: UnderWay<T> = Box::pin(under_way.in_current_span());
    let pieces = stream::unfold(Some(under_way), |under_way| async move {
        let mut under_way = under_way?;
        let piece = tokio::select! {
            end = &mut under_way => {
                let told = serde_json::to_vec(&end).unwrap_or_default();
                return Some((frame(told.into()), None));
            }
            () = sleep(SIGN_EVERY) => Bytes::from_static(b" "),
        };
        Some((frame(piece), Some(under_way)))
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the body of an answer may fail, this one does not"
)]
fn frame(bytes: Bytes) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(bytes))
}
