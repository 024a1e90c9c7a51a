//! Common parts of listing pages: links, and the parameters that a link repeats.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api::json::reply;
use crate::api::query::{boolean, integer};
use angarium_core::error::Error;
use angarium_core::limits::Span;
use angarium_core::page::PageLimit;

/// Which part of a listing by name.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NamesQuery {
    /// The name after which the page begins.
    #[param(nullable = false)]
    pub marker: Option<String>,
    /// At most this many elements; 10 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 20, nullable = false)]
    limit: Option<String>,
    /// Whether everything is shown of each element; false when absent.
    #[param(value_type = Option<bool>, nullable = false)]
    detailed: Option<String>,
}

impl NamesQuery {
    /// Returns the max elements of the page.
    pub fn limit(&self, span: Span) -> Result<PageLimit, Error> {
        PageLimit::new(integer("limit", self.limit.as_deref())?, span)
    }

    /// Returns the view that the request selects.
    pub fn view<V, R>(&self, brief: fn(V) -> R, detailed: fn(V) -> R) -> Result<fn(V) -> R, Error> {
        view(self.detailed.as_deref(), brief, detailed)
    }

    /// Returns the links of the page of `path` whose last element has this name.
    pub fn links(&self, path: &str, last: Option<String>) -> Vec<Link> {
        let carried = [("limit", self.limit.as_deref()), ("detailed", spelled(self.detailed.as_deref()))];
        links(path, last, &carried)
    }
}

/// Returns the view that the parameter `detailed` selects.
pub fn view<V, R>(asked: Option<&str>, brief: fn(V) -> R, detailed: fn(V) -> R) -> Result<fn(V) -> R, Error> {
    let is_detailed = boolean("detailed", asked)?.unwrap_or(false);
    Ok(if is_detailed { detailed } else { brief })
}

/// Returns a boolean of the query as `true` or `false` for a link, whatever its spelling in the request. Its value must
/// have been checked before.
pub fn spelled(asked: Option<&str>) -> Option<&'static str> {
    boolean("", asked).ok().flatten().map(|is_so| if is_so { "true" } else { "false" })
}

/// Returns an answer with its location, as in Zaqar's pages of pools and flavors.
pub fn located(uri: &Uri, page: &impl Serialize) -> Response {
    ([(header::CONTENT_LOCATION, uri.to_string())], reply(StatusCode::OK, page)).into_response()
}

/// Where to go on.
#[derive(Debug, Serialize, ToSchema)]
pub struct Link {
    /// What is there: `next`, the next page.
    #[schema(example = "next")]
    rel: &'static str,
    /// Its path with the query.
    href: String,
}

/// Returns the links of a page: the next page, if the page has an element. As in Zaqar also the last page has a link,
/// so that a client can come back for elements that are added later.
pub fn links(path: &str, marker: Option<String>, carried: &[(&str, Option<&str>)]) -> Vec<Link> {
    let Some(marker) = marker else { return Vec::new() };
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in carried {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.append_pair("marker", &marker);
    vec![Link { rel: "next", href: format!("{path}?{}", query.finish()) }]
}
