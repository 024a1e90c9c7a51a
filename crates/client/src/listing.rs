//! Paging through a listing by the server's links, up to a number of items. A link is never sent to another server, and
//! the same page is never requested twice in a row.

use std::collections::BTreeMap;

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::remote::{ApiRequest, Remote, with_query};

/// Items per page: the max that a Zaqar server with default settings returns.
const PAGE: u64 = 20;

/// How much of a listing.
#[derive(clap::Args, Clone, Debug)]
pub struct ExtentArgs {
    /// At most this many; all of them when not given, page after page
    #[arg(long, value_name = "N", value_parser = check_min_one, conflicts_with = "all")]
    limit: Option<u64>,
    /// All of them: the default, for scripts that name it
    #[arg(long, hide = true)]
    all: bool,
    /// Begin after this one; it is from a listing before
    #[arg(long, value_name = "MARKER")]
    marker: Option<String>,
}

fn check_min_one(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|number| *number > 0).ok_or("it is a number from 1 on")
}

impl ExtentArgs {
    /// Returns the extent of the first `limit` items.
    pub fn first(limit: u64) -> Self {
        Self { limit: Some(limit), all: false, marker: None }
    }
}

/// A listing in progress. One page of items is in memory.
pub struct Listing<'a> {
    remote: &'a Remote,
    key: &'static str,
    next: Option<String>,
    left: u64,
    headers: &'static [(&'static str, &'static str)],
    end: ListingEnd,
}

/// What ends a listing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListingEnd {
    /// An empty page, whether it has a link or not.
    EmptyPage,
    /// A page without a link.
    NoLink,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

impl<'a> Listing<'a> {
    /// Creates a listing of the items under `key` in the responses to `path`, with these query parameters.
    pub fn new(
        remote: &'a Remote,
        path: &str,
        key: &'static str,
        extent: &ExtentArgs,
        parameters: &[(&str, Option<String>)],
    ) -> Self {
        let left = extent.limit.unwrap_or(u64::MAX);
        let mut query = vec![("limit", Some(left.min(PAGE).to_string())), ("marker", extent.marker.clone())];
        query.extend(parameters.iter().cloned());
        let next = Some(with_query(path, &query));
        Self { remote, key, next, left, headers: &[], end: ListingEnd::EmptyPage }
    }

    /// Follows the links of empty pages too: the server ends a page that has cost enough, with no link when there is
    /// nothing behind it.
    pub fn past_empty_pages(self) -> Self {
        Self { end: ListingEnd::NoLink, ..self }
    }

    /// Adds headers to the requests.
    pub fn with_headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// Returns the next items; none at the end. A page may be short or empty.
    pub fn page(&mut self) -> Result<Option<Vec<Box<RawValue>>>, Failure> {
        let Some(path) = self.next.take() else { return Ok(None) };
        let reply = self.remote.call(ApiRequest::new(Method::GET, path.clone()).headers(self.headers))?;
        let mut body: BTreeMap<String, Box<RawValue>> = reply.parse()?;
        let missing = || reply.strange(format!("it has no {}", self.key));
        let items = body.remove(self.key).ok_or_else(missing)?;
        let mut items: Vec<Box<RawValue>> =
            serde_json::from_str(items.get()).map_err(|error| reply.strange(error.to_string()))?;
        items.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= items.len() as u64;
        if items.is_empty() && self.end == ListingEnd::EmptyPage {
            return Ok(None);
        }
        if self.left > 0 {
            let links =
                body.remove("links").map_or(Ok(Vec::new()), |links| serde_json::from_str(links.get()));
            let links: Vec<Link> = links.map_err(|error| reply.strange(error.to_string()))?;
            let next = links.into_iter().find(|link| link.rel == "next").map(|link| link.href);
            // Only a path is followed: the server's base URL is put before it.
            self.next = next.filter(|href| href.starts_with('/') && *href != path);
        }
        Ok(Some(items))
    }
}
