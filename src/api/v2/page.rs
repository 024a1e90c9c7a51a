//! What the pages of listings have in common: links, and the parameters that a link carries on.

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
    /// How many elements the page may have.
    pub fn limit(&self, span: Span) -> Result<PageLimit, Error> {
        PageLimit::new(integer("limit", self.limit.as_deref())?, span)
    }

    /// The one of two views that is asked for.
    pub fn view<V, R>(&self, brief: fn(V) -> R, detailed: fn(V) -> R) -> Result<fn(V) -> R, Error> {
        view(self.detailed.as_deref(), brief, detailed)
    }

    /// The links of the page of `path` that ends with the element of this name.
    pub fn links(&self, path: &str, last: Option<String>) -> Vec<Link> {
        let carried = [("limit", self.limit.as_deref()), ("detailed", spelled(self.detailed.as_deref()))];
        links(path, last, &carried)
    }
}

/// One of two views, as the parameter `detailed` states.
pub fn view<V, R>(asked: Option<&str>, brief: fn(V) -> R, detailed: fn(V) -> R) -> Result<fn(V) -> R, Error> {
    let is_detailed = boolean("detailed", asked)?.unwrap_or(false);
    Ok(if is_detailed { detailed } else { brief })
}

/// A boolean of the query as links have it: `true` or `false`, however the request spelled it. To be used once it was read.
pub fn spelled(asked: Option<&str>) -> Option<&'static str> {
    boolean("", asked).ok().flatten().map(|is_so| if is_so { "true" } else { "false" })
}

/// An answer that states where it is, as Zaqar's pages of pools and flavors do.
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

/// The links of a page: the next one, when there is somewhere to go on. As in Zaqar every page with an element on it
/// has a link, so that a client may come back for what is added later.
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
