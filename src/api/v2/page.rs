//! What the pages of listings have in common: links, and the parameters that a link carries on.

use serde::Serialize;
use utoipa::ToSchema;

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
