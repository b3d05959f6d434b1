//! Sends on to other relays what lies here, when somebody who may write to both asks for it.
//!
//! A fragment is read as it is sent, over connections that are kept, and counts there only once its
//! digest was checked there. While that lasts the answer is white space, one byte a second: whoever asked
//! sees that it goes on, and when they leave, it ends.

use std::sync::Arc;

use http::Response;
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId,
        wire::{ForwardBody, ForwardEnd, Object, status_of},
    },
};
use posthaste_types::Timestamp;
use tokio::sync::Semaphore;

use crate::{
    order,
    others::{Others, UnderWay, answer_in_time},
    reception::{Reception, blocking},
    request::Body,
    store::{Refusal, Store},
};

/// Fragments sent on at once: each holds a quarter of a mebibyte and a connection.
const FORWARDS_MAX: usize = 32;
/// The request says where to, with what, and until when.
const ORDER_BYTES_MAX: usize = 4096;

/// Everything that is sent on.
pub(crate) struct Forwards {
    permits: Arc<Semaphore>,
    others: Arc<Others>,
}

impl Forwards {
    pub(crate) fn new(others: Arc<Others>) -> Self {
        let permits = Arc::new(Semaphore::new(FORWARDS_MAX));
        Self { permits, others }
    }

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
        Ok(answer_in_time(sending))
    }

    async fn begin(
        &self,
        store: &Arc<Store>,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<UnderWay<ForwardEnd>, Refusal> {
        let order = body.read(ORDER_BYTES_MAX).await?;
        let order: ForwardBody = order::read(&order, "the body says not where to send on")?;
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            Refusal::new(ErrorKind::Busy, "as much is being sent on as ever at once")
        })?;
        let ForwardBody {
            url,
            fingerprint,
            token,
            ..
        } = &order;
        let client = self.others.client(url, fingerprint, token)?;
        client.expect_rate(order.rate_limit_bytes_per_s.unwrap_or(0));
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
}
