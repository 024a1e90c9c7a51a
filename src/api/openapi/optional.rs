//! Optional bodies. A route declares such a body with `Option`, which utoipa documents as absent or `null`; this API
//! treats `null` as an ordinary body and refuses it.

use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr, Schema};

/// Removes `null` from the bodies of all requests.
pub fn narrow(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in methods.into_iter().flatten() {
            let Some(RefOr::T(request)) = &mut operation.request_body else { continue };
            for content in request.content.values_mut() {
                if let RefOr::T(content) = content
                    && let Some(schema) = &mut content.schema
                {
                    narrow_schema(schema);
                }
            }
        }
    }
}

fn narrow_schema(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::OneOf(choice)) = schema else { return };
    choice.items.retain(|item| !is_null(item));
    if choice.items.len() == 1
        && let Some(only) = choice.items.pop()
    {
        *schema = only;
    }
}

/// Moves the description of a nullable key from its only other schema to the key itself, where readers look.
pub fn lift_descriptions(document: &mut OpenApi) {
    let Some(components) = &mut document.components else { return };
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::Object(object)) = schema else { continue };
        for property in object.properties.values_mut() {
            let RefOr::T(Schema::OneOf(choice)) = property else { continue };
            let mut references = choice.items.iter_mut().filter_map(|item| match item {
                RefOr::Ref(reference) => Some(&mut reference.description),
                RefOr::T(_) => None,
            });
            if let (Some(description), None) = (references.next(), references.next())
                && !description.is_empty()
            {
                choice.description = Some(std::mem::take(description));
            }
        }
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}
