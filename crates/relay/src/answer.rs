//! Answers: their bodies, and what a refusal looks like.

use std::io;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use posthaste_endpoint::relay::wire::{self, ErrorBody};

use crate::store::Refusal;

/// Body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

pub(crate) fn json(status: StatusCode, body: &impl serde::Serialize) -> Response<Body> {
    let text = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns the answer to a refused request; `close` if the rest of the request was not read.
pub(crate) fn refuse(refusal: Refusal, close: bool) -> Response<Body> {
    let status = StatusCode::from_u16(wire::status_of(refusal.kind))
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let error = posthaste_endpoint::Error::new(refusal.kind, "answer", "")
        .code()
        .to_owned();
    let hint = refusal.hint.map(str::to_owned);
    let mut response = json(
        status,
        &ErrorBody {
            error,
            message: refusal.message,
            hint,
            most_bytes: refusal.most_bytes,
        },
    );
    if close {
        let close = http::HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}
