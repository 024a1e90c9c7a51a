//! The API reference as an HTML page, generated from the OpenAPI document. The page loads no other resource, so it
//! works wherever the service does.

use std::fmt::Write;

use serde_json::{Map, Value};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}\
    code,.path{font-family:ui-monospace,monospace;font-size:.92em}h2{border-bottom:1px solid #ccc;margin-top:2em}\
    h3{margin:1.6em 0 .3em}.method{display:inline-block;min-width:5.2em;font-weight:700}\
    nav{columns:24em}nav section{break-inside:avoid}nav a{text-decoration:none}td:first-child code{white-space:nowrap}\
    table{border-collapse:collapse;margin:.4em 0}td,th{border:1px solid #ddd;padding:.2em .6em;text-align:left;\
    vertical-align:top}th,pre{background:#f4f4f4}pre{padding:.6em;overflow:auto;\
    font-size:.85em}nav li{list-style:none}nav ul{padding-left:1em}\
    @media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,pre{background:#282828}\
    td,th,h2{border-color:#444}a{color:#8bf}}";

/// Returns the page of a document.
pub fn page(document: &Value) -> String {
    let mut page = Page(String::new());
    let title = text(&document["info"]["title"]);
    page.put(format_args!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>{title}</title><style>{STYLE}</style>\
         </head><body><h1>{title} {}</h1><p>{}</p>",
        text(&document["info"]["version"]),
        text(&document["info"]["description"])
    ));
    page.put(format_args!(
        "<p>This page is written from <a href=\"/v2/openapi.json\">the OpenAPI document</a>.</p>"
    ));
    let operations = operations(document);
    page.contents(document, &operations);
    for tag in items(&document["tags"]) {
        page.put(format_args!("<h2>{}</h2><p>{}</p>", text(&tag["name"]), text(&tag["description"])));
        for operation in operations.iter().filter(|operation| *operation.tag == tag["name"]) {
            page.operation(operation);
        }
    }
    page.put(format_args!("<h2>Bodies</h2>"));
    for (name, schema) in members(&document["components"]["schemas"]) {
        page.schema(name, schema);
    }
    page.put(format_args!("</body></html>\n"));
    page.0
}

/// An operation and its path.
struct Operation<'d> {
    method: String,
    path: &'d str,
    id: &'d str,
    tag: &'d Value,
    body: &'d Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut all = Vec::new();
    for (path, item) in members(&document["paths"]) {
        for (method, body) in members(item) {
            let id = body["operationId"].as_str().unwrap_or_default();
            all.push(Operation { method: method.to_uppercase(), path, id, tag: &body["tags"][0], body });
        }
    }
    all
}

struct Page(String);

impl Page {
    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes all that is written");
    }

    fn contents(&mut self, document: &Value, operations: &[Operation<'_>]) {
        self.put(format_args!("<nav>"));
        for tag in items(&document["tags"]) {
            self.put(format_args!("<section><b>{}</b><ul>", text(&tag["name"])));
            for Operation { method, path, id, .. } in operations.iter().filter(|o| *o.tag == tag["name"]) {
                self.put(format_args!(
                    "<li><a href=\"#{id}\"><span class=\"method\">{method}</span><span class=\"path\">{}</span></a>",
                    escaped(path)
                ));
            }
            self.put(format_args!("</ul></section>"));
        }
        self.put(format_args!("</nav>"));
    }

    fn operation(&mut self, Operation { method, path, id, body, .. }: &Operation<'_>) {
        self.put(format_args!(
            "<h3 id=\"{id}\"><span class=\"method\">{method}</span><span class=\"path\">{}</span></h3><p>{} {}</p>",
            escaped(path),
            text(&body["summary"]),
            text(&body["description"])
        ));
        let parameters = items(&body["parameters"]);
        if !parameters.is_empty() {
            self.put(format_args!("<table><tr><th>parameter<th>in<th>type<th>meaning"));
            for parameter in parameters {
                let needed = if parameter["required"] == true { " (needed)" } else { "" };
                self.put(format_args!(
                    "<tr><td><code>{}</code>{needed}<td>{}<td>{}<td>{}",
                    text(&parameter["name"]),
                    text(&parameter["in"]),
                    kind(&parameter["schema"]),
                    text(&parameter["description"])
                ));
            }
            self.put(format_args!("</table>"));
        }
        for (media_type, content) in members(&body["requestBody"]["content"]) {
            self.put(format_args!(
                "<p>Body: {} as <code>{}</code></p>",
                kind(&content["schema"]),
                escaped(media_type)
            ));
            self.example(content);
        }
        self.put(format_args!("<table><tr><th>status<th>body<th>meaning"));
        for (status, response) in members(&body["responses"]) {
            let kinds = members(&response["content"]).map(|(_, content)| kind(&content["schema"]));
            let kinds: Vec<String> = kinds.collect();
            let meaning = text(&response["description"]);
            self.put(format_args!("<tr><td>{status}<td>{}<td>{meaning}", kinds.join(", ")));
            for (name, header) in members(&response["headers"]) {
                let meaning = text(&header["description"]);
                self.put(format_args!("<br><code>{}</code>: {meaning}", escaped(name)));
            }
        }
        self.put(format_args!("</table>"));
        for (status, response) in
            members(&body["responses"]).filter(|(status, _)| status.starts_with(['2', '3']))
        {
            for (_, content) in members(&response["content"]) {
                self.put(format_args!("<p>An answer with status {status}:</p>"));
                self.example(content);
            }
        }
    }

    fn example(&mut self, content: &Value) {
        if !content["example"].is_null() {
            self.put(format_args!("<pre>{}</pre>", escaped(&format!("{:#}", content["example"]))));
        }
    }

    fn schema(&mut self, name: &str, schema: &Value) {
        self.put(format_args!("<h3 id=\"schema-{name}\">{name}</h3><p>{}</p>", text(&schema["description"])));
        if schema["properties"].is_null() {
            self.put(format_args!("<p>It is {}.</p>", kind(schema)));
            return;
        }
        let required = items(&schema["required"]);
        self.put(format_args!("<table><tr><th>key<th>type<th>meaning"));
        for (key, property) in members(&schema["properties"]) {
            let needed = if required.iter().any(|name| name == key) { "" } else { " (may be absent)" };
            self.put(format_args!(
                "<tr><td><code>{}</code>{needed}<td>{}<td>{}",
                escaped(key),
                kind(property),
                text(&property["description"])
            ));
        }
        self.put(format_args!("</table>"));
    }
}

/// Describes a schema in few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        let choices = items(&schema[choice]);
        if !choices.is_empty() {
            return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let mut words = match &schema["type"] {
        Value::String(name) if name == "array" => format!("list of {}", kind(&schema["items"])),
        Value::String(name) => escaped(name),
        Value::Array(names) => names.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any JSON".to_owned(),
    };
    for (key, word) in [("format", ""), ("minimum", "at least "), ("maximum", "at most "), ("pattern", "")] {
        match &schema[key] {
            Value::Null => {}
            Value::String(value) => words.push_str(&format!(", {word}<code>{}</code>", escaped(value))),
            value => words.push_str(&format!(", {word}{value}")),
        }
    }
    words
}

/// Returns the members of an object; none for any other value.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(key, value)| (key.as_str(), value))
}

/// Returns the items of a list; none for any other value.
fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text as HTML, with backticks as code; empty for any other value.
fn text(value: &Value) -> String {
    let parts = escaped(value.as_str().unwrap_or_default());
    let parts = parts.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
        .collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_escaped_and_code_is_marked() {
        assert_eq!(text(&json!("a < `b&c` \"d\"")), "a &lt; <code>b&amp;c</code> &quot;d&quot;");
    }

    #[test]
    fn schema_kinds_are_short() {
        for (schema, said) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 20}), "integer, at least 1, at most 20"),
            (
                json!({"type": "array", "items": {"$ref": "#/components/schemas/A"}}),
                "list of <a href=\"#schema-A\">A</a>",
            ),
            (json!({"type": ["string", "null"]}), "string or null"),
            (json!({}), "any JSON"),
        ] {
            assert_eq!(kind(&schema), said);
        }
    }
}
