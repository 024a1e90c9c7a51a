//! The operations of SQS in the document. They are not routes: a header selects the operation. Each has its own path in
//! the document nevertheless, `/` with a fragment that no client sends, as in other documents of AWS's JSON protocols,
//! so that a generator creates one typed method for each.

mod members;
mod operations;

use serde_json::{Map, Value, json};
use utoipa::openapi::path::PathItem;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi, RefOr};

use crate::api::sqs::{ALL, Operation};
use members::{Member, OTHER_SCHEMAS, Shape};
use operations::contents;

/// The tag of the operations.
pub const TAG: &str = "sqs";

/// Writes the operations of SQS and their schemas into the document.
pub fn describe(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    for (name, description, members) in OTHER_SCHEMAS {
        components.schemas.insert((*name).to_owned(), object(description, members));
    }
    for operation in ALL {
        let name = operation.name();
        let contents = contents(*operation);
        let what = format!("What `{name}` takes.");
        components.schemas.insert(request_name(*operation), object(&what, contents.request));
        if !contents.answer.is_empty() {
            let what = format!("What `{name}` answers.");
            components.schemas.insert(result_name(*operation), object(&what, contents.answer));
        }
        document.paths.paths.insert(format!("/#X-Amz-Target=AmazonSQS.{name}"), path_item(*operation));
    }
}

/// Returns the id of an operation: its words in lower case, with the verb at the end as in all ids of the document.
fn operation_id(operation: Operation) -> String {
    let mut words: Vec<String> = Vec::new();
    for letter in operation.name().chars() {
        match words.last_mut() {
            Some(word) if letter.is_lowercase() => word.push(letter),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words.rotate_left(1);
    format!("{TAG}_{}", words.join("_"))
}

fn request_name(operation: Operation) -> String {
    format!("{}Request", operation.name())
}

fn result_name(operation: Operation) -> String {
    format!("{}Result", operation.name())
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn path_item(operation: Operation) -> PathItem {
    let contents = contents(operation);
    let target = format!("AmazonSQS.{}", operation.name());
    let mut done = json!({"description": contents.done});
    if !contents.answer.is_empty() {
        let body = json!({"schema": reference(&result_name(operation)), "example": example(contents.answer)});
        done["content"] = json!({"application/json": body});
    }
    let mut responses = Map::from_iter([("200".to_owned(), done)]);
    for (status, description) in FAULTS {
        let body = json!({"application/json": {"schema": reference("SqsError")}});
        responses.insert((*status).to_owned(), json!({"description": description, "content": body}));
    }
    let item = json!({"post": {
        "tags": [TAG],
        "operationId": operation_id(operation),
        "summary": contents.summary,
        "description": format!("`{}` of Amazon SQS. {}", operation.name(), contents.description).trim_end(),
        "parameters": [{
            "name": "X-Amz-Target", "in": "header", "required": true, "description": "The operation.",
            "schema": {"type": "string", "enum": [target], "default": target}
        }],
        "requestBody": {"required": true, "content": {"application/json": {
            "schema": reference(&request_name(operation)), "example": example(contents.request)
        }}},
        "responses": responses,
        "security": [{}, {"aws_signature": []}]
    }});
    serde_json::from_value(item).expect("it has the form of a path")
}

/// The statuses of errors.
const FAULTS: &[(&str, &str)] = &[
    ("400", "The request is wrong, or its queue, message or task does not allow it; `__type` tells which."),
    ("403", "The caller may not do this, or a bound is reached (`OverLimit`)."),
    ("404", "A queue of another region, a resource or an operation that does not exist."),
    ("408", "The body did not arrive in time."),
    ("500", "The outcome is not known, or stored data is damaged."),
    ("503", "A part of the service is unavailable. Nothing was written."),
];

fn object(description: &str, members: &[Member]) -> RefOr<Schema> {
    let properties = members.iter().map(|member| (member.name.to_owned(), property(member)));
    let required: Vec<&str> =
        members.iter().filter(|member| member.is_required).map(|member| member.name).collect();
    let mut schema = json!({
        "type": "object", "description": description, "properties": Map::from_iter(properties)
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    serde_json::from_value(schema).expect("it has the form of a schema")
}

fn property(member: &Member) -> Value {
    let mut schema = match member.shape {
        Shape::Text => json!({"type": "string"}),
        Shape::Whole(least, most) => {
            json!({"type": "integer", "format": "int64", "minimum": least, "maximum": most})
        }
        Shape::Count => json!({"type": "integer", "format": "int64", "minimum": 0}),
        Shape::Time => json!({"type": "integer", "format": "int64"}),
        Shape::Truth => json!({"type": "boolean"}),
        Shape::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Shape::TextMap => json!({"type": "object", "additionalProperties": {"type": "string"}}),
        Shape::List(name) => json!({"type": "array", "items": reference(name)}),
        Shape::Map(name) => json!({"type": "object", "additionalProperties": reference(name)}),
    };
    schema["description"] = json!(member.description);
    schema
}

/// Returns the example of a body, with all members that have one.
fn example(members: &[Member]) -> Value {
    let shown = members.iter().filter(|member| !member.example.is_empty());
    let shown = shown.map(|member| {
        let value = match member.shape {
            Shape::Text => json!(member.example),
            _ => serde_json::from_str(member.example).expect("it is JSON"),
        };
        (member.name.to_owned(), value)
    });
    Value::Object(Map::from_iter(shown))
}
