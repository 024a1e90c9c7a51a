//! Entry points for clients: the list of versions, and the resources of version 2.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::error::{ApiError, Errors};
use super::extract::{Caller, CallerHeaders};
use super::json::reply;

/// The versions of the API.
#[derive(Debug, Serialize, ToSchema)]
pub struct ApiVersions {
    /// All of them.
    versions: Vec<ApiVersion>,
}

/// A version of the API.
#[derive(Debug, Serialize, ToSchema)]
struct ApiVersion {
    /// Its number.
    #[schema(example = "2")]
    id: &'static str,
    /// Whether it is to be used.
    #[schema(example = "CURRENT")]
    status: &'static str,
    /// When its description changed.
    updated: &'static str,
    /// The forms of its bodies.
    #[serde(rename = "media-types")]
    media_types: Vec<MediaType>,
    /// Where it is.
    links: Vec<ApiVersionLink>,
}

/// A form of bodies.
#[derive(Debug, Serialize, ToSchema)]
struct MediaType {
    /// What it builds on.
    base: &'static str,
    /// Its name.
    #[serde(rename = "type")]
    name: &'static str,
}

/// A path with its meaning.
#[derive(Debug, Serialize, ToSchema)]
struct ApiVersionLink {
    /// The path.
    href: &'static str,
    /// What is there.
    rel: &'static str,
}

/// List the API versions
///
/// OpenStack clients read them to find the API. The status is 300, as in Zaqar.
#[utoipa::path(
    get, path = "/", operation_id = "versions_list", tag = "home", security(()),
    responses((status = 300, description = "The versions.", body = ApiVersions))
)]
pub async fn get() -> Response {
    let version = ApiVersion {
        id: "2",
        status: "CURRENT",
        updated: "2014-9-24T04:06:47Z",
        media_types: vec![MediaType {
            base: "application/json",
            name: "application/vnd.openstack.messaging-v2+json",
        }],
        links: vec![ApiVersionLink { href: "/v2/", rel: "self" }],
    };
    reply(StatusCode::MULTIPLE_CHOICES, &ApiVersions { versions: vec![version] })
}

/// The path of the resources of version 2.
pub const HOME: &str = "/v2/";

/// The same without the slash, which clients also use, as in Zaqar.
pub const HOME_WITHOUT_SLASH: &str = "/v2";

/// List the resources of version 2
///
/// The answer has their paths, parameters and methods. Source of the form: draft-nottingham-json-home-03, as in Zaqar.
#[utoipa::path(
    get, path = "/v2/", operation_id = "resources_list", tag = "home",
    params(CallerHeaders),
    responses(
        (status = 200, description = "The resources, sent as `application/json-home`.", content(
            (serde_json::Value = "application/json-home"),
            (serde_json::Value = "application/json")
        )),
        Errors
    )
)]
pub async fn home(_: Caller) -> Result<Response, ApiError> {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json-home")),
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=86400")),
    ];
    Ok((headers, resources().to_string()).into_response())
}

/// A resource: its name, its path with the parameters of the query, and its methods.
type HomeResource = (&'static str, &'static str, &'static [&'static str]);

/// The resources, with Zaqar's names. A test compares the paths with those of the router.
const RESOURCES: &[HomeResource] = &[
    ("queues", "/v2/queues{?marker,limit,detailed,with_count,with_stats,name}", &["GET"]),
    ("queue", "/v2/queues/{queue_name}", &["GET", "PUT", "PATCH", "DELETE"]),
    ("queue_stats", "/v2/queues/{queue_name}/stats", &["GET"]),
    ("queue_explain", "/v2/queues/{queue_name}/explain", &["GET"]),
    ("queue_purge", "/v2/queues/{queue_name}/purge", &["POST"]),
    (
        "messages",
        "/v2/queues/{queue_name}/messages{?marker,limit,echo,include_claimed,include_delayed,bodies}",
        &["GET"],
    ),
    ("post_messages", "/v2/queues/{queue_name}/messages", &["POST"]),
    ("messages_delete", "/v2/queues/{queue_name}/messages{?ids,claim_ids,pop}", &["DELETE"]),
    ("message_delete", "/v2/queues/{queue_name}/messages/{message_id}{?claim_id,force}", &["DELETE"]),
    ("messages_batch", "/v2/queues/{queue_name}/messages/batch{?ids,claim_ids}", &["POST", "DELETE"]),
    ("message_hide", "/v2/queues/{queue_name}/messages/{message_id}{?claim_id}", &["PATCH"]),
    ("message_get", "/v2/queues/{queue_name}/messages/{message_id}{?wait}", &["GET"]),
    ("message_explain", "/v2/queues/{queue_name}/messages/{message_id}/explain", &["GET"]),
    ("message_requeue", "/v2/queues/{queue_name}/messages/{message_id}/requeue", &["POST"]),
    ("claim", "/v2/queues/{queue_name}/claims/{claim_id}{?bodies}", &["GET"]),
    ("claims", "/v2/queues/{queue_name}/claims{?marker,limit}", &["GET"]),
    ("post_claim", "/v2/queues/{queue_name}/claims{?limit,bodies}", &["POST"]),
    ("patch_claim", "/v2/queues/{queue_name}/claims/{claim_id}", &["PATCH"]),
    ("delete_claim", "/v2/queues/{queue_name}/claims/{claim_id}", &["DELETE"]),
    ("claim_settle", "/v2/queues/{queue_name}/claims/{claim_id}/settle", &["POST"]),
    ("subscriptions", "/v2/queues/{queue_name}/subscriptions{?marker,limit}", &["GET", "POST"]),
    ("subscription", "/v2/queues/{queue_name}/subscriptions/{subscription_id}", &["GET", "PATCH", "DELETE"]),
    ("confirm_subscription", "/v2/queues/{queue_name}/subscriptions/{subscription_id}/confirm", &["PUT"]),
    ("topics", "/v2/topics{?marker,limit,detailed,with_count,with_stats,name}", &["GET"]),
    ("topic", "/v2/topics/{topic_name}", &["GET", "PUT", "PATCH", "DELETE"]),
    ("topic_stats", "/v2/topics/{topic_name}/stats", &["GET"]),
    ("post_topic_messages", "/v2/topics/{topic_name}/messages", &["POST"]),
    ("topic_subscriptions", "/v2/topics/{topic_name}/subscriptions{?marker,limit}", &["GET", "POST"]),
    (
        "topic_subscription",
        "/v2/topics/{topic_name}/subscriptions/{subscription_id}",
        &["GET", "PATCH", "DELETE"],
    ),
    ("pools", "/v2/pools{?marker,limit,detailed}", &["GET"]),
    ("pool", "/v2/pools/{pool}{?detailed}", &["GET", "PUT", "PATCH", "DELETE"]),
    ("flavors", "/v2/flavors{?marker,limit,detailed}", &["GET"]),
    ("flavor", "/v2/flavors/{flavor}", &["GET", "PUT", "PATCH", "DELETE"]),
    ("quota", "/v2/quota", &["GET"]),
    ("ping", "/v2/ping", &["GET"]),
    ("health", "/v2/health", &["GET"]),
];

fn resources() -> Value {
    let all =
        RESOURCES.iter().map(|(name, template, allow)| (format!("rel/{name}"), resource(template, allow)));
    json!({ "resources": Map::from_iter(all) })
}

fn resource(template: &str, allow: &[&str]) -> Value {
    let mut hints = json!({ "allow": allow, "formats": { "application/json": {} } });
    if allow.contains(&"POST") {
        hints["accept-post"] = json!(["application/json"]);
    }
    let names: Vec<&str> = variables(template).collect();
    if names.is_empty() {
        return json!({ "href": template, "hints": hints });
    }
    let variables = names.into_iter().map(|name| (name.to_owned(), json!(format!("param/{name}"))));
    json!({ "href-template": template, "href-vars": Map::from_iter(variables), "hints": hints })
}

/// Returns the variables of a template.
fn variables(template: &str) -> impl Iterator<Item = &str> {
    let groups = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    groups.flat_map(|(group, _)| group.trim_start_matches('?').split(','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_path_and_query() {
        assert_eq!(variables("/v2/q/{a}/m{?b,c}").collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(variables("/v2/ping").count(), 0);
    }
}
