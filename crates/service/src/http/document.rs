//! The OpenAPI document.

use posthaste_api as api;
use posthaste_core::contract::{Happening, Step};
use utoipa::{
    OpenApi,
    openapi::{
        Components, Content, Ref, RefOr, Response,
        schema::Schema,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use super::{
    __path_health, bulk, credentials, datasets, depots, directory, endpoints, events, files,
    history, identity, jobs, listing, metrics, movers, named, overview, paths, pauses, plan, queue,
    refusals::Refusals, requests, reservations, stage_ins, tokens, transfers, tree,
};

/// The OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "posthaste",
        description = "Moves data to and from an HPC centre by a deadline.",
        license(name = "Apache-2.0 OR MIT")
    ),
    paths(
        health,
        credentials::list,
        credentials::add,
        credentials::remove,
        credentials::check,
        credentials::rekey,
        datasets::list,
        datasets::show,
        depots::list,
        depots::add,
        depots::remove,
        depots::drain,
        depots::undrain,
        depots::invite,
        depots::withdraw,
        directory::show,
        tree::show,
        endpoints::show,
        history::show,
        identity::show,
        identity::whoami,
        jobs::list,
        jobs::names,
        jobs::register,
        jobs::check,
        jobs::show,
        jobs::stage_in,
        jobs::ended,
        jobs::look,
        jobs::remove,
        jobs::scratch,
        metrics::show,
        movers::list,
        movers::join,
        movers::leave,
        movers::turn,
        movers::dataset,
        movers::files,
        movers::drain,
        movers::undrain,
        overview::show,
        paths::list,
        paths::probe,
        paths::probe_address,
        paths::ranking,
        plan::show,
        queue::show,
        listing::list,
        requests::submit,
        bulk::submit,
        named::submit,
        requests::show,
        requests::cancel,
        requests::modify,
        pauses::pause,
        pauses::resume,
        requests::explain,
        requests::story,
        requests::manifest,
        files::show,
        transfers::show,
        requests::ticket,
        requests::delivered,
        requests::forget,
        reservations::list,
        stage_ins::submit,
        tokens::list,
        tokens::add,
        tokens::remove,
        events::stream,
    ),
    components(schemas(api::Event)),
    modifiers(&Bearer, &Refusals, &EventNames, &Responses),
    security(("bearer" = []))
)]
struct Document;

/// Returns the OpenAPI document of this version, as committed under `openapi/`.
#[must_use]
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Documents how callers authenticate.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("bearer", bearer);
    }
}

/// Lists the names of events.
struct EventNames;

impl utoipa::Modify for EventNames {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let schemas = document.components.as_mut().map(|all| &mut all.schemas);
        let Some(RefOr::T(Schema::Object(event))) =
            schemas.and_then(|schemas| schemas.get_mut("Event"))
        else {
            return;
        };
        if let Some(RefOr::T(Schema::Object(name))) = event.properties.get_mut("name") {
            let names = Happening::NAMES.iter().chain(Step::NAMES);
            name.enum_values = Some(names.map(|name| (*name).into()).collect());
        }
    }
}

/// Gives each response a description, and each problem its content type.
struct Responses;

impl utoipa::Modify for Responses {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.clone().unwrap_or_default();
        for item in document.paths.paths.values_mut() {
            let all = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
                &mut item.patch,
            ];
            for operation in all.into_iter().flatten() {
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response {
                        complete(status, response, &components);
                    }
                }
            }
        }
    }
}

fn complete(status: &str, response: &mut Response, components: &Components) {
    if response.description.is_empty() {
        response.description = describe(status, response, components);
    }
    let is_problem = response.content.values().any(|content| {
        schema_of(content).is_some_and(|name| name.ref_location.ends_with("/Problem"))
    });
    if is_problem && let Some(content) = response.content.swap_remove("application/json") {
        let kind = api::Problem::CONTENT_TYPE.to_owned();
        response.content.insert(kind, content);
    }
}

/// Returns the schema that a content refers to.
fn schema_of(content: &RefOr<Content>) -> Option<&Ref> {
    match content {
        RefOr::T(Content {
            schema: Some(RefOr::Ref(schema)),
            ..
        }) => Some(schema),
        RefOr::T(_) | RefOr::Ref(_) => None,
    }
}

fn describe(status: &str, response: &Response, components: &Components) -> String {
    let said = match status {
        "202" => "Accepted: it is carried out from now on",
        "204" => "Done",
        "400" => "The request can't be read",
        "401" => "There is no token with the request, or it is not known",
        "403" => "The token's scope is too small, or it is somebody else's",
        "404" => "There is nothing of this name or id",
        "409" => "It can't be done in the state that it is in",
        "422" => "The request makes no sense",
        "502" => "What had to be asked for it does not answer",
        "503" => "The service is busy: try again later",
        "507" => "There is no space for it",
        _ => "",
    };
    if !said.is_empty() {
        return said.to_owned();
    }
    let content = response.content.values().next();
    let name = content
        .and_then(schema_of)
        .map(|schema| &schema.ref_location);
    let name = name.and_then(|place| place.rsplit('/').next());
    let schema = name.and_then(|name| components.schemas.get(name));
    let described = match schema {
        Some(RefOr::T(Schema::Object(object))) => object.description.as_deref(),
        _ => None,
    };
    let first = described.and_then(|text| text.split_terminator(['.', ':', ';']).next());
    first.unwrap_or("The answer").to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_operation_has_an_id_of_its_own_and_each_response_a_description() {
        let document = Document::openapi();
        let mut ids = BTreeMap::new();
        for (path, item) in document.paths.paths {
            let all = [item.get, item.put, item.post, item.delete, item.patch];
            for operation in all.into_iter().flatten() {
                let id = operation.operation_id.unwrap_or_default();
                assert!(id.contains('_'), "{path}: `{id}` reads as no method");
                assert_eq!(ids.insert(id, path.clone()), None, "{path}");
                for (status, response) in operation.responses.responses {
                    let RefOr::T(response) = response else {
                        continue;
                    };
                    assert!(!response.description.is_empty(), "{path}: {status}");
                }
            }
        }
        assert!(!ids.is_empty());
    }
}
