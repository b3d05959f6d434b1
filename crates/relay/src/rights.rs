//! Rights: the token that a request needs, and whether it shows one.

use http::{HeaderMap, Method, header};
use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId, Refusal as TokenRefusal, Scope, is_for_all, verify,
        wire::{Object, Target},
    },
};

use crate::{clock, store::Refusal};

/// Returns the scope and target for which a request needs a token.
pub(crate) fn needed(
    method: &Method,
    target: Option<&Target>,
) -> Result<(Scope, Option<DatasetId>), Refusal> {
    Ok(match (method, target) {
        (&Method::GET, Some(Target::Status)) => (Scope::Read, None),
        (&Method::POST, Some(Target::Probe | Target::Measure)) => (Scope::Write, None),
        (&Method::GET, Some(Target::Inventory(id) | Target::Object(id, _))) => {
            (Scope::Read, Some(*id))
        }
        (&Method::PUT, Some(Target::Object(id, _)))
        | (
            &Method::POST,
            Some(
                Target::Pass(id, _)
                | Target::Forward(id, _)
                | Target::Gather(id, _)
                | Target::Scatter(id, _),
            ),
        ) => (Scope::Write, Some(*id)),
        (&Method::DELETE, Some(Target::Dataset(id) | Target::Object(id, Object::Fragment(..))))
        | (&Method::PUT | &Method::DELETE, Some(Target::Space(id))) => (Scope::All, Some(*id)),
        (&Method::GET, Some(Target::Spaces)) => (Scope::All, None),
        (_, Some(Target::Register | Target::Heartbeat)) => {
            let what = "this is a relay, no service";
            return Err(Refusal::new(ErrorKind::NotFound, what));
        }
        (_, Some(_)) => {
            let what = "no such method here";
            return Err(Refusal::new(ErrorKind::Unsupported, what));
        }
        (_, None) => return Err(Refusal::new(ErrorKind::NotFound, "no such path")),
    })
}

/// Checks for a token that is good for every dataset.
pub(crate) fn authorize_all(headers: &HeaderMap) -> Result<(), Refusal> {
    if token(headers).is_some_and(is_for_all) {
        return Ok(());
    }
    let what = "the token is for one dataset, and this is about all of them";
    Err(Refusal::new(ErrorKind::PermissionDenied, what))
}

/// Checks that the request shows a token for `scope`, made from `secret`.
pub(crate) fn authorize(
    secret: &[u8; 32],
    headers: &HeaderMap,
    scope: Scope,
    dataset: Option<&DatasetId>,
) -> Result<(), Refusal> {
    let token = token(headers);
    let now_s = clock::unix_s();
    let unauthenticated = |message: String| Refusal::new(ErrorKind::Unauthenticated, message);
    let Some(token) = token else {
        return Err(unauthenticated("no token was shown".into()));
    };
    verify(secret, token, scope, dataset, now_s).map_err(|refusal| match refusal {
        TokenRefusal::Forged => unauthenticated("the token is not of this relay".into())
            .hint("was the relay's secret copied whole, and is it this relay's?"),
        TokenRefusal::Expired { at_unix_s } => {
            let ago_s = now_s - at_unix_s;
            unauthenticated(format!(
                "the token expired {ago_s} s ago by the relay's clock"
            ))
            .hint("ask for a new one; if it is new, the clocks differ")
        }
        TokenRefusal::OutOfScope => {
            Refusal::new(ErrorKind::PermissionDenied, "the token is not for this")
        }
    })
}

/// Returns the token that a request shows.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    posthaste_endpoint::bearer_token(value)
}
