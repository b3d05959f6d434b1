//! Sends on to other relays what lies here, when somebody who may write to both asks for it.
//!
//! A fragment is read as it is sent, over connections that are kept, and counts there only once its
//! digest was checked there. While that lasts the answer is white space, one byte a second: whoever asked
//! sees that it goes on, and when they leave, it ends.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        Credential, DatasetId, RelayAddress, RelayClient,
        wire::{ForwardBody, ForwardEnd, Object, status_of},
    },
};
use posthaste_types::Timestamp;
use tokio::{sync::Semaphore, time::sleep};

use crate::{
    reception::{Reception, blocking},
    request::Body,
    store::{Refusal, Store},
};

/// Fragments sent on at once: each holds a quarter of a mebibyte and a connection.
const FORWARDS_MAX: usize = 32;
/// Relays whose connections are kept.
const CLIENTS_MAX: usize = 64;
/// The request says where to, with what, and until when.
const ORDER_BYTES_MAX: usize = 4096;
/// How often whoever asked is told that it goes on.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Everything that is sent on.
pub(crate) struct Forwards {
    permits: Arc<Semaphore>,
    /// Of relays that were sent something, by address and key.
    clients: Mutex<BTreeMap<(String, String), RelayClient>>,
}

impl Default for Forwards {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(FORWARDS_MAX)),
            clients: Mutex::default(),
        }
    }
}

type Sending = Pin<Box<dyn Future<Output = ForwardEnd> + Send>>;

impl Forwards {
    /// Sends an object on as the body says.
    pub(crate) async fn forward(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let begun = self.begin(store, dataset, object, body).await;
        let sending = begun.map_err(|refusal| (refusal, None))?;
        let pieces = stream::unfold(Some(sending), |sending| async move {
            let mut sending = sending?;
            let piece = tokio::select! {
                end = &mut sending => {
                    let told = serde_json::to_vec(&end).unwrap_or_default();
                    return Some((frame(told.into()), None));
                }
                () = sleep(SIGN_EVERY) => Bytes::from_static(b" "),
            };
            Some((frame(piece), Some(sending)))
        });
        let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }

    async fn begin(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<Sending, Refusal> {
        let order = body.read(ORDER_BYTES_MAX).await?;
        let order: ForwardBody = serde_json::from_slice(&order)
            // What it says must not be shown: there is a token in it.
            .map_err(|_| Refusal::new(ErrorKind::Invalid, "the body says not where to send on"))?;
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            Refusal::new(ErrorKind::Busy, "as much is being sent on as ever at once")
        })?;
        let client = self.client(&order)?;
        let store = Arc::clone(store);
        let (file, stored) = blocking(move || store.read(&dataset, object)).await?;
        let expires = Timestamp::from_secs(order.expires_unix_s);
        Ok(Box::pin(async move {
            let _permit = permit;
            let load = (Arc::new(file), stored.size);
            let sent = client.put_file(&dataset, object, load, stored.digest, expires);
            match sent.await {
                Ok(()) => ForwardEnd {
                    status: 201,
                    is_of_sender: false,
                    message: String::new(),
                },
                Err(error) => ForwardEnd {
                    status: status_of(error.kind()),
                    is_of_sender: false,
                    message: error.to_string(),
                },
            }
        }))
    }

    /// A client of the other relay, over the connections there are to it.
    fn client(&self, order: &ForwardBody) -> Result<RelayClient, Refusal> {
        let invalid = |what: &str| Refusal::new(ErrorKind::Invalid, what);
        let credential = Credential::Token(order.token.clone());
        let key = (order.url.clone(), order.fingerprint.clone());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&key) {
            return Ok(known.with_credential(credential));
        }
        let address = RelayAddress {
            url: order.url.clone(),
            fingerprint: order
                .fingerprint
                .parse()
                .map_err(|_| invalid("the other relay's fingerprint is none"))?,
        };
        let client = RelayClient::new(address, credential)
            .map_err(|_| invalid("the other relay's address is none"))?;
        client.expect_rate(order.rate_limit_bytes_per_s.unwrap_or(0));
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

#[expect(
    clippy::unnecessary_wraps,
    reason = "the body of an answer may fail, this one does not"
)]
fn frame(bytes: Bytes) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(bytes))
}
