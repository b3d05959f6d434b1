//! Checks access: each route's scope as in the OpenAPI document, and a record of changes with their
//! callers.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::Response,
};
use posthaste_api::Scope;
use posthaste_endpoint::{Error, ErrorKind};
use serde_json::{Value, json};

use super::{Answer, Desk, Refusal, openapi};
use crate::{fts, render, tokens::Caller};

/// Scope of each route, by method and path. Any other route needs full scope.
static NEEDED: LazyLock<HashMap<(String, String), Scope>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(&openapi()).unwrap_or_default();
    let paths = document["paths"].as_object().into_iter().flatten();
    let routes = paths.flat_map(|(path, routes)| {
        let routes = routes.as_object().into_iter().flatten();
        routes.filter_map(move |(method, route)| {
            let scope = Scope::read(route["security"][0]["bearer"][0].as_str()?)?;
            Some(((method.to_uppercase(), path.clone()), scope))
        })
    });
    routes.collect()
});

fn needed(method: &Method, path: &str) -> Scope {
    let asked = match *method {
        // A caller that may read something may ask whether it exists.
        Method::HEAD => Method::GET,
        _ => method.clone(),
    };
    // FTS's routes are in no document of ours.
    if path.starts_with(fts::PREFIX) {
        return if asked == Method::GET {
            Scope::Read
        } else {
            Scope::Submit
        };
    }
    let key = (asked.as_str().to_owned(), path.to_owned());
    NEEDED.get(&key).copied().unwrap_or(Scope::Operate)
}

/// Admits a caller with a token that is good for this route, and identifies the caller.
pub(super) async fn authenticate(
    State(desk): State<Desk>,
    matched: MatchedPath,
    headers: HeaderMap,
    mut request: Request,
    next: Next,
) -> Answer<Response> {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(posthaste_endpoint::bearer_token);
    let caller = find(&desk, given).await?;
    let needed = needed(request.method(), matched.as_str());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = if !caller.scope.covers(needed) {
        Err(Refusal(
            Error::new(
                ErrorKind::PermissionDenied,
                "ask",
                format!("{method} {path}"),
            )
            .with("asked by", &caller)
            .cause(format!(
                "it needs the scope {}, and the token has {}",
                needed.word(),
                caller.scope.word()
            ))
            .hint(match caller.subject {
                None => "an operator makes tokens with `posthaste token add --scope`",
                Some(_) => "an operator grants it in [[oidc.grant]]",
            }),
        ))
    } else {
        request.extensions_mut().insert(Arc::clone(&caller));
        Ok(next.run(request).await)
    };
    let audit = desk.centre.audit.get();
    if audit.is_some()
        && method != Method::GET
        && method != Method::HEAD
        // There are many a second, and each changes nothing that anyone requested.
        && matched.as_str() != "/v1/movers/{mover}/turns"
    {
        let status = match &answer {
            Ok(answer) => answer.status().as_u16(),
            Err(_) => 403,
        };
        let at = render::moment(desk.centre.clock.now());
        let line = line(&at, &caller, (&method, &path), status);
        // The answer is sent only after it is recorded.
        let noted = tokio::task::spawn_blocking(move || {
            let audit = (*audit).as_ref();
            audit.map_or(Ok(()), |audit| audit.note(&line))
        })
        .await;
        if let Ok(Err(error)) = noted {
            tracing::warn!("{error}");
        }
    }
    answer
}

/// Returns the caller with this token.
///
/// # Errors
/// [`ErrorKind::Unauthenticated`] for an unknown token; those of asking for a provider's keys.
async fn find(desk: &Desk, given: Option<&str>) -> Answer<Arc<Caller>> {
    let now = desk.centre.clock.now();
    let why = match given {
        None => "no token was given",
        Some(given) => {
            let known = match desk.tokens.caller(given, now) {
                Some(caller) => Some(caller),
                None => desk.logins.caller(given, now).await.transpose()?,
            };
            if let Some(caller) = known {
                let actors = &desk.centre.store.actors;
                actors.refuse_roots_rights(caller.to_string(), caller.places())?;
                return Ok(caller);
            }
            "the token is none of the service's, or is good no more"
        }
    };
    let hint = match desk.logins.told() {
        None => {
            "send `Authorization: Bearer` with the content of the service's token file, or with a token that an operator made"
        }
        Some(_) => "`posthaste login` gets one",
    };
    let error = Error::new(ErrorKind::Unauthenticated, "use", "the service");
    Err(Refusal(error.cause(why).hint(hint)))
}

fn line(at: &str, caller: &Caller, (method, path): (&Method, &str), status: u16) -> String {
    let said = json!({
        "at": at,
        "token": caller.token,
        "user": caller.owner(),
        "subject": caller.subject,
        "scope": caller.scope.word(),
        "method": method.as_str(),
        "path": path,
        "status": status,
    });
    format!("{said}\n")
}
