//! The document in version 3.0 of OpenAPI, for generators that support no later one. It loses only what 3.0 cannot
//! express: the identifiers of licences, rules for the names of properties, and the roles that an operation needs.

use serde_json::{Map, Value, json};

/// Rewrites a document of version 3.1.
pub fn rewrite(document: &mut Value) {
    document["openapi"] = json!("3.0.3");
    if let Some(license) = document.pointer_mut("/info/license").and_then(Value::as_object_mut) {
        license.remove("identifier");
        license.insert("url".to_owned(), json!("https://www.apache.org/licenses/LICENSE-2.0"));
    }
    if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
        let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
        operations.filter_map(|operation| operation.get_mut("security")).for_each(forget_roles);
    }
    rewrite_below(document);
}

/// Removes role names: in 3.0 a scheme other than OAuth has none.
fn forget_roles(security: &mut Value) {
    let alternatives = security.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
    alternatives.flat_map(Map::values_mut).for_each(|roles| *roles = json!([]));
}

fn rewrite_below(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(rewrite_below);
            rewrite_schema(members);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite_below),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Rewrites an object if it is a schema; in other objects these member names have other kinds of values.
fn rewrite_schema(schema: &mut Map<String, Value>) {
    if schema.get("propertyNames").is_some_and(|names| names.get("type").is_some_and(Value::is_string)) {
        schema.remove("propertyNames");
    }
    // Both forms are equal in 3.0; generators recognize a map of any values only in this form.
    if schema.get("additionalProperties").is_some_and(|values| *values == json!({})) {
        schema.insert("additionalProperties".to_owned(), json!(true));
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        let is_null = |kind: &Value| kind == "null";
        let nullable = types.iter().any(is_null);
        let kind = types.iter().find(|kind| !is_null(kind)).cloned();
        set_nullable(schema, nullable);
        match kind {
            Some(kind) => schema.insert("type".to_owned(), kind),
            None => schema.remove("type"),
        };
    }
    if let Some(Value::Array(choices)) = schema.get_mut("oneOf") {
        let before = choices.len();
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        let nullable = choices.len() < before;
        set_nullable(schema, nullable);
    }
    if schema.len() > 1
        && schema.get("$ref").is_some_and(Value::is_string)
        && let Some(reference) = schema.remove("$ref")
    {
        // In 3.0, all other members beside a reference are ignored.
        schema.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

fn set_nullable(schema: &mut Map<String, Value>, nullable: bool) {
    if nullable {
        schema.insert("nullable".to_owned(), json!(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(mut schema: Value) -> Value {
        rewrite_below(&mut schema);
        schema
    }

    #[test]
    fn null_becomes_a_mark() {
        for (new, old) in [
            (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
            (json!({"type": ["string"]}), json!({"type": "string"})),
            (
                json!({"oneOf": [{"type": "null"}, {"$ref": "#/a"}]}),
                json!({"oneOf": [{"$ref": "#/a"}], "nullable": true}),
            ),
        ] {
            assert_eq!(rewritten(new), old);
        }
    }

    #[test]
    fn reference_siblings_are_kept() {
        assert_eq!(rewritten(json!({"$ref": "#/a"})), json!({"$ref": "#/a"}));
        let described = json!({"$ref": "#/a", "description": "b"});
        assert_eq!(rewritten(described), json!({"allOf": [{"$ref": "#/a"}], "description": "b"}));
    }

    #[test]
    fn maps_of_anything_say_so() {
        let map = json!({"type": "object", "additionalProperties": {}});
        assert_eq!(rewritten(map), json!({"type": "object", "additionalProperties": true}));
        let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
        assert_eq!(rewritten(texts.clone()), texts);
    }

    #[test]
    fn properties_named_like_schema_words_stay() {
        let object = json!({"properties": {"type": {"type": "string"}, "propertyNames": {"items": {}}}});
        assert_eq!(rewritten(object.clone()), object);
    }
}
