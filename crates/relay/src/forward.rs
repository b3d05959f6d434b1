//! Transfers to other relays of fragments that lie here, on the order of a caller with the right to
//! write to both.
//!
//! A fragment is read as it is sent, on request also while it still arrives. Connections are kept.
//! The fragment counts at the other relay only once its digest was verified there. Meanwhile the
//! answer is white space, one byte a second, so the caller sees that the transfer continues. If the
//! caller leaves, the transfer ends.

use std::{sync::Arc, time::Duration};

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
    answer::Body,
    order,
    others::{Others, UnderWay, answer_in_time},
    reception::{Reception, blocking},
    store::{Awaited, Refusal, Store},
};

/// Maximum of fragments sent at once: each holds a quarter of a mebibyte and a connection.
const FORWARDS_MAX: usize = 32;
/// Wait for an upload that is to be followed to begin: the order may overtake it.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum of a request's bytes: it says where to, with what, and until when.
const ORDER_BYTES_MAX: usize = 4096;

/// Transfers to other relays.
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
        client.expect_passes(order.lets_through);
        let expires = Timestamp::from_secs(order.expires_unix_s);
        let store = Arc::clone(store);
        if let Some(follow) = &order.follow {
            let digest = order::digest(follow, "the digest of what is followed is none")?;
            return Ok(Box::pin(async move {
                let _permit = permit;
                match store
                    .awaited(dataset, object, digest, FOLLOW_PATIENCE)
                    .await
                {
                    Ok(Awaited::Stored(file, stored)) => {
                        let load = (Arc::new(file), stored.size);
                        told(
                            client
                                .put_file(&dataset, object, load, digest, expires)
                                .await,
                        )
                    }
                    Ok(Awaited::Growing(growing)) => {
                        let followed = growing.clone();
                        let sent = client.put_growing(&dataset, object, growing, digest, expires);
                        match sent.await {
                            Err(_) if followed.has_failed() => vanished("it did not arrive whole"),
                            ended => told(ended),
                        }
                    }
                    Err(refusal) => vanished(&refusal.message),
                }
            }));
        }
        let (file, stored) = blocking(move || store.read(&dataset, object)).await?;
        Ok(Box::pin(async move {
            let _permit = permit;
            let load = (Arc::new(file), stored.size);
            told(
                client
                    .put_file(&dataset, object, load, stored.digest, expires)
                    .await,
            )
        }))
    }
}

/// Returns the end as the sender of the order receives it.
fn told(ended: posthaste_endpoint::Result<()>) -> ForwardEnd {
    let (status, message) = match ended {
        Ok(()) => (201, String::new()),
        Err(error) => (status_of(error.kind()), error.to_string()),
    };
    ForwardEnd {
        status,
        is_of_sender: false,
        message,
    }
}

/// Returns the end of a follow whose upload is not here and will not be.
fn vanished(what: &str) -> ForwardEnd {
    ForwardEnd {
        status: status_of(ErrorKind::NotFound),
        is_of_sender: true,
        message: what.to_owned(),
    }
}
