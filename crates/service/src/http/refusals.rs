//! Refusals that routes share, for the OpenAPI document.

use posthaste_api::Problem;
use utoipa::{
    ToSchema,
    openapi::{
        Content, OpenApi, Ref, RefOr, ResponseBuilder, SecurityRequirement,
        path::{Operation, Parameter, ParameterIn},
        schema::{Schema, SchemaType, Type},
    },
};

/// Adds to each route the refusals that any caller may get.
pub(super) struct Refusals;

impl utoipa::Modify for Refusals {
    fn modify(&self, document: &mut OpenApi) {
        for (path, item) in &mut document.paths.paths {
            let all = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
                &mut item.patch,
            ];
            for operation in all.into_iter().flatten() {
                for (status, why) in refusals(path, operation) {
                    let problem = Content::new(Some(Ref::from_schema_name(Problem::name())));
                    let response = ResponseBuilder::new()
                        .description(why)
                        .content("application/json", problem);
                    let known = &mut operation.responses.responses;
                    known
                        .entry(status.to_owned())
                        .or_insert_with(|| response.build().into());
                }
            }
        }
    }
}

/// Returns the statuses of a route's refusals, and when they occur.
fn refusals(path: &str, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    let mut security = operation.security.iter().flatten();
    if security.any(|needed| *needed != SecurityRequirement::default()) {
        all.push((
            "403",
            "The token's scope is too small, or it is somebody else's",
        ));
    }
    if operation.request_body.is_some() {
        all.extend([
            ("400", "The body is no JSON"),
            ("413", "The body is too large"),
            ("415", "The body's content type is another one"),
            ("422", "The body makes no sense"),
        ]);
    }
    let mut parameters = operation.parameters.iter().flatten();
    if parameters.any(is_read) {
        all.push(("400", "A parameter can't be read"));
    }
    if path.contains("{id}") {
        all.push(("422", "That is no id of a request"));
    }
    all
}

/// Returns whether a parameter may fail to parse: any in a query, and numbers in a path.
fn is_read(parameter: &RefOr<Parameter>) -> bool {
    let RefOr::T(parameter) = parameter else {
        return true;
    };
    let is_text = matches!(
        &parameter.schema,
        Some(RefOr::T(Schema::Object(object))) if object.schema_type == SchemaType::new(Type::String)
    );
    parameter.parameter_in == ParameterIn::Query || !is_text
}
