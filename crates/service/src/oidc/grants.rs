//! Turns a provider's claims into a caller and its rights.

use std::path::PathBuf;

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Timestamp;
use serde_json::{Map, Value};

use super::settings::{Grant, Oidc, USER, is_account};
use crate::tokens::{Caller, Login};

/// Default claims that name a user.
const USUAL_CLAIMS: [&str; 2] = ["preferred_username", "sub"];

/// Returns the caller with these claims, valid until then.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if they name nobody, or nothing is granted.
pub(super) fn caller(
    settings: &Oidc,
    claims: &Map<String, Value>,
    until: Timestamp,
) -> Result<Caller> {
    let denied =
        |cause: String| Error::new(ErrorKind::PermissionDenied, "use", "the service").cause(cause);
    let text = |name: &str| look(claims, name).and_then(Value::as_str);
    let Some(subject) = text("sub") else {
        return Err(denied("the token has no subject".to_owned()));
    };
    let named = match &settings.user_claim {
        Some(claim) => text(claim),
        None => USUAL_CLAIMS.into_iter().find_map(text),
    };
    let account = settings.accounts.get(subject).map(String::as_str);
    let Some(user) = account.or(named) else {
        let claim = settings.user_claim.as_deref().unwrap_or_default();
        return Err(denied(format!("the token has no claim {claim}")));
    };
    if !is_account(user) {
        let hint = "an operator names an account for the subject in [oidc.accounts]";
        let cause = "what the token calls its user is no name of an account here".to_owned();
        return Err(denied(cause).with("subject", shortened(subject)).hint(hint));
    }
    let given: Vec<&Grant> = settings
        .grants
        .iter()
        .filter(|grant| {
            let when = grant.when.as_ref();
            when.is_none_or(|(claim, value)| says(claims, claim, value))
        })
        .collect();
    let higher = |one: api::Scope, other: api::Scope| if one.covers(other) { one } else { other };
    let Some(scope) = given.iter().map(|grant| grant.scope).reduce(higher) else {
        return Err(denied("nothing is granted to them".to_owned())
            .with("user", user)
            .hint("an operator grants it in [[oidc.grant]]"));
    };
    // A read-only grant does not widen where other grants allow submitting.
    let given = given
        .iter()
        .filter(|grant| scope != api::Scope::Submit || grant.scope == api::Scope::Submit);
    let mut login = Login {
        user: user.to_owned(),
        subject: shortened(subject),
        scope,
        project: None,
        below: Vec::new(),
        profiles: Vec::new(),
        until,
    };
    for grant in given {
        if login.project.is_none() {
            login.project.clone_from(&grant.project);
        }
        let below = grant.below.iter();
        let below = below.map(|place| PathBuf::from(place.replace(USER, user)));
        login.below.extend(below);
        login.profiles.extend(grant.profiles.iter().cloned());
    }
    Ok(Caller::logged_in(login))
}

/// Returns a claim by its name; dots separate nested names.
fn look<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let (outer, inner) = name.split_once('.')?;
    look(claims.get(outer)?.as_object()?, inner)
}

/// Returns whether a claim is that value, or a list that contains it.
fn says(claims: &Map<String, Value>, claim: &str, value: &str) -> bool {
    let is_it = |found: &Value| match found {
        Value::String(text) => text == value,
        Value::Bool(_) | Value::Number(_) => {
            serde_json::from_str(value).is_ok_and(|of: Value| of == *found)
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    match look(claims, claim) {
        Some(Value::Array(several)) => several.iter().any(is_it),
        Some(found) => is_it(found),
        None => false,
    }
}

/// Returns a subject cut to its longest valid length (OpenID Connect Core 1.0, section 2), without
/// characters that a terminal interprets.
fn shortened(subject: &str) -> String {
    let plain = subject.chars().filter(|c| !posthaste_types::is_obeyed(*c));
    plain.take(255).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UNTIL: Timestamp = Timestamp::from_secs(5000);

    fn settings(more: &str) -> Oidc {
        let text =
            format!("[oidc]\nissuer = \"https://id.example\"\nclient_id = \"posthaste\"\n{more}");
        crate::site::read_site(&text).unwrap().oidc.unwrap()
    }

    fn who(settings: &Oidc, claims: &Value) -> Result<Caller> {
        caller(settings, claims.as_object().unwrap(), UNTIL)
    }

    const GRANTS: &str = "[[oidc.grant]]\nscope = \"read\"\nbelow = [\"/\"]\n\
        [[oidc.grant]]\nclaim = \"groups\"\nvalue = \"climate\"\nscope = \"submit\"\nproject = \"climate\"\n\
        below = [\"/scratch/{user}\"]\nprofiles = [\"archive\"]\n\
        [[oidc.grant]]\nclaim = \"realm_access.roles\"\nvalue = \"ops\"\nscope = \"operate\"\n";

    #[test]
    fn the_highest_scope_that_is_granted_counts_with_its_places() {
        let settings = settings(GRANTS);
        let of = |claims: Value| {
            let caller = who(&settings, &claims).unwrap();
            let shown = caller.shown();
            (shown.scope, shown.below, shown.project)
        };
        let nobody = of(json!({ "sub": "1", "preferred_username": "bob", "groups": "physics" }));
        assert_eq!(nobody, (api::Scope::Read, vec!["/".to_owned()], None));
        let alice = of(json!({ "sub": "1", "preferred_username": "alice", "groups": ["climate"] }));
        let scratch = vec!["/scratch/alice".to_owned()];
        assert_eq!(alice, (api::Scope::Submit, scratch, Some("climate".into())));
        let olga = json!({ "sub": "2", "realm_access": { "roles": ["user", "ops"] } });
        assert_eq!(of(olga).0, api::Scope::Operate);
        // A value that only looks right is no match.
        let none = json!({ "sub": "3", "groups": { "climate": true }, "realm_access": "ops" });
        assert_eq!(of(none).0, api::Scope::Read);
    }

    #[test]
    fn who_is_nobody_here_is_let_in_nowhere() {
        let strict = settings(
            "user_claim = \"uid\"\n[oidc.accounts]\n\"s|9\" = \"nina\"\n\
             [[oidc.grant]]\nclaim = \"uid\"\nvalue = \"alice\"\nscope = \"read\"\n\
             [[oidc.grant]]\nclaim = \"sub\"\nvalue = \"s|9\"\nscope = \"read\"\n",
        );
        let alice = who(&strict, &json!({ "sub": "1", "uid": "alice" })).unwrap();
        assert_eq!(alice.shown().user.as_deref(), Some("alice"));
        let nina = who(&strict, &json!({ "sub": "s|9" })).unwrap();
        assert_eq!(nina.shown().user.as_deref(), Some("nina"));
        for bad in [
            json!({ "sub": "1", "preferred_username": "alice" }),
            json!({ "sub": "1", "uid": "bob" }),
            json!({ "uid": "alice" }),
            json!({ "sub": 1, "uid": "alice" }),
        ] {
            let refused = who(&strict, &bad).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{bad}");
        }
        let open = settings("[[oidc.grant]]\nscope = \"submit\"\nbelow = [\"/scratch/{user}\"]\n");
        for name in ["..", ".ssh", "a/b", "-x", "", "a b", "{user}"] {
            who(&open, &json!({ "sub": "1", "preferred_username": name })).expect_err(name);
        }
        who(&settings(""), &json!({ "sub": "alice" })).unwrap_err();
    }
}
