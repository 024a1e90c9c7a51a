//! The query parameters of operations that Zaqar does not have. Such an operation refuses a name that it does not know: a
//! filter with a wrong name would select all messages. Zaqar ignores names that it does not know, and so do its
//! operations here.

use serde_json::Value;

use angarium_core::error::{Error, InvalidPart};

/// Paths of Zaqar's API v2 and of pages for browsers. Their operations take any parameter.
const LENIENT: &[&str] = &[
    "/v2/",
    "/v2/docs",
    "/v2/flavors",
    "/v2/flavors/{flavor}",
    "/v2/health",
    "/v2/openapi.json",
    "/v2/ping",
    "/v2/pools",
    "/v2/pools/{pool}",
    "/v2/queues",
    "/v2/queues/{queue_name}",
    "/v2/queues/{queue_name}/claims",
    "/v2/queues/{queue_name}/claims/{claim_id}",
    "/v2/queues/{queue_name}/messages",
    "/v2/queues/{queue_name}/messages/{message_id}",
    "/v2/queues/{queue_name}/purge",
    "/v2/queues/{queue_name}/stats",
    "/v2/queues/{queue_name}/subscriptions",
    "/v2/queues/{queue_name}/subscriptions/{subscription_id}",
    "/v2/queues/{queue_name}/subscriptions/{subscription_id}/confirm",
    "/v2/topics",
    "/v2/topics/{topic_name}",
    "/v2/topics/{topic_name}/messages",
    "/v2/topics/{topic_name}/purge",
    "/v2/topics/{topic_name}/stats",
    "/v2/topics/{topic_name}/subscriptions",
    "/v2/topics/{topic_name}/subscriptions/{subscription_id}",
    "/v2/topics/{topic_name}/subscriptions/{subscription_id}/confirm",
];

/// Max characters of a name that an error repeats.
const SHOWN: usize = 64;

/// The query parameters of an operation.
#[derive(Clone, Debug)]
pub struct QueryParameters(Vec<QueryParameter>);

#[derive(Clone, Debug)]
struct QueryParameter {
    name: String,
    /// Whether it is a list with an element at least.
    needs_element: bool,
}

impl QueryParameters {
    /// Returns the parameters of an operation of the document; none if it takes any.
    pub fn of(path: &str, operation: &Value) -> Option<Self> {
        if !path.starts_with("/v2/") || LENIENT.contains(&path) {
            return None;
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| {
            let name = parameter["name"].as_str().unwrap_or_default().to_owned();
            let needs_element = parameter["schema"]["minItems"].as_u64().is_some_and(|items| items > 0);
            QueryParameter { name, needs_element }
        });
        Some(Self(parameters.collect()))
    }

    /// Refuses an unknown name, and a list without an element.
    pub fn check(&self, query: &str) -> Result<(), Error> {
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if name.is_empty() && value.is_empty() {
                continue;
            }
            let Some(known) = self.0.iter().find(|known| known.name == name) else {
                let name = name.chars().take(SHOWN).collect::<String>();
                return Err(Error::invalid(InvalidPart::Query, name, self.names()));
            };
            if known.needs_element && value.split(',').all(|element| element.trim().is_empty()) {
                let why = "it is an empty list; leave it out to select all";
                return Err(Error::invalid(InvalidPart::Query, &*known.name, why));
            }
        }
        Ok(())
    }

    fn names(&self) -> String {
        if self.0.is_empty() {
            return "the operation has no query parameters".to_owned();
        }
        let names: Vec<&str> = self.0.iter().map(|known| known.name.as_str()).collect();
        format!("the operation has no such parameter; it has {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(query: &str) -> Option<String> {
        let operation = json!({"parameters": [
            {"in": "query", "name": "state", "schema": {"type": "array", "minItems": 1}},
            {"in": "query", "name": "tag"},
            {"in": "header", "name": "Client-ID"},
        ]});
        let parameters = QueryParameters::of("/v2/queues/{queue_name}/peek", &operation).unwrap();
        parameters.check(query).err().map(|error| error.to_string())
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        for query in ["", "&", "state=ready", "state=ready,done&tag=&tag=b", "st%61te=ready"] {
            assert_eq!(refusal(query), None, "{query}");
        }
        for query in ["stat=failed", "tag=a&stat=", "stat", "&&stat=x"] {
            let said = refusal(query).unwrap();
            assert!(said.starts_with("stat:") && said.ends_with("it has state, tag"), "{query}: {said}");
        }
        for query in ["=x", "Client-ID=x", "State=ready", "state[]=ready", "%ff=1"] {
            assert!(refusal(query).is_some(), "{query}");
        }
        assert!(refusal(&"x".repeat(9_000)).unwrap().len() < 200);
    }

    #[test]
    fn list_without_element_is_refused() {
        for query in ["state", "state=", "state=,", "state=+,%20", "tag=a&state=", "state=ready&state="] {
            assert!(refusal(query).is_some_and(|said| said.starts_with("state:")), "{query}");
        }
    }

    #[test]
    fn operation_of_zaqar_takes_any_name() {
        for path in ["/", "/metrics", "/v2/queues", "/v2/queues/{queue_name}/messages"] {
            assert!(QueryParameters::of(path, &json!({})).is_none(), "{path}");
        }
        let none = QueryParameters::of("/v2/quota", &json!({})).unwrap();
        assert!(none.check("a=1").is_err() && none.check("").is_ok());
    }
}
