//! Answers of a relay that keeps its bytes in an object store.

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId,
        wire::{self, Object, Target},
    },
};

use super::{Backing, passes::refusal_of};
use crate::{
    answer::{Body, empty, full, json},
    reception::Reception,
    request::Service,
    rights::authorize_all,
    space,
    store::Refusal,
};

impl Service {
    /// Answers a request to a relay that keeps its bytes in an object store.
    pub(crate) async fn answer_backed(
        &self,
        backing: &Backing,
        head: &http::request::Parts,
        target: Option<Target>,
        body: Reception,
    ) -> Result<Response<Body>, (Refusal, Option<(Reception, u64)>)> {
        let answer = match target {
            Some(Target::Pass(id, object)) => backing
                .passes
                .answer(id, object, body)
                .await
                .map(|answer| json(StatusCode::OK, &answer)),
            Some(Target::Object(id, object)) if head.method == Method::GET => {
                self.lead_on(backing, id, object).await
            }
            Some(Target::Object(id, object)) if head.method == Method::DELETE => {
                self.delete_unless(id, object, head.uri.query()).await
            }
            Some(Target::Inventory(id)) => self.inventory(id, head.uri.query()).await,
            Some(Target::Dataset(id)) => {
                if backing.passes.give_up(&id) {
                    backing.cleaner.doom_again(id);
                }
                let doomed = backing.cleaner.doom(id).await;
                doomed.map(|()| empty(StatusCode::NO_CONTENT))
            }
            Some(Target::Space(id)) => space::answer(&self.store, &head.method, id, body).await,
            Some(Target::Spaces) => {
                authorize_all(&head.headers).map(|()| json(StatusCode::OK, &self.store.spaces()))
            }
            Some(Target::Status) => Ok(json(StatusCode::OK, &self.status())),
            Some(Target::Probe) => backing
                .passes
                .probe(body)
                .await
                .map(|answer| json(StatusCode::OK, &answer)),
            _ => {
                let what = "this relay lets bytes through to an object store, and does nothing with them itself";
                let refused = Refusal::new(ErrorKind::Unsupported, what);
                let refused = refused.hint("whoever asks must be of a release that knows passes");
                return Err((refused, Some((body, wire::OBJECT_BYTES_MAX))));
            }
        };
        answer.map_err(|refusal| (refusal, None))
    }

    /// Redirects a reader to the place of the bytes.
    async fn lead_on(
        &self,
        backing: &Backing,
        dataset: DatasetId,
        object: Object,
    ) -> Result<Response<Body>, Refusal> {
        let stored = self.store.find(&dataset, object).ok_or_else(|| {
            Refusal::new(ErrorKind::NotFound, "nothing is stored under that name")
        })?;
        let pass = backing.bucket.reading(&dataset, object, &stored).await;
        let pass = pass.map_err(|error| refusal_of(&error))?;
        let mut response = Response::builder()
            .status(StatusCode::TEMPORARY_REDIRECT)
            .header(header::LOCATION, pass.url)
            .header(wire::DIGEST_HEADER, stored.digest.to_string())
            .body(full(Bytes::new()))
            .map_err(|cause| Refusal::new(ErrorKind::Other, cause.to_string()))?;
        let secret = http::HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, secret);
        Ok(response)
    }
}
