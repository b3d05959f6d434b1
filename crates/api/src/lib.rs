//! REST types and the generated OpenAPI document.
