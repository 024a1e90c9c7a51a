//! Check of the accepted media types. All answers of Zaqar are JSON, so a client that does not accept JSON is refused
//! before its request has any effect. Source of the rules of `Accept`: RFC 9110, section 12.5.1.

use axum::http::{HeaderMap, header};

use crate::api::versions::{HOME, HOME_WITHOUT_SLASH};
use angarium_core::error::{Error, InvalidPart};

/// Answers other than JSON: a path, and the media type of its answer.
const OTHERS: &[(&str, &str)] = &[
    (HOME, HOME_TYPE),
    (HOME_WITHOUT_SLASH, HOME_TYPE),
    ("/v2/docs", "text/html"),
    ("/v2/backup", "application/octet-stream"),
];

const HOME_TYPE: &str = "application/json-home";

const JSON: &str = "application/json";

/// Refuses a request under the API whose client accepts neither JSON nor the media type of the path.
pub fn check(path: &str, headers: &HeaderMap) -> Result<(), Error> {
    if path != "/" && !path.starts_with("/v2") {
        return Ok(());
    }
    let values: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let other = OTHERS.iter().find(|(at, _)| *at == path).map_or(JSON, |(_, media_type)| media_type);
    if admits(&values, JSON) || admits(&values, other) {
        return Ok(());
    }
    Err(Error::invalid(InvalidPart::Accept, "Accept", format!("the answer is {other}")))
}

/// Whether a client accepts metrics only in the older text form of Prometheus, and not in OpenMetrics.
pub fn wants_plain_metrics(headers: &HeaderMap) -> bool {
    let values: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let ranges =
        || values.iter().flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    let names = |media_type: &str| {
        ranges().any(|range| range.trim().eq_ignore_ascii_case(media_type)) && admits(&values, media_type)
    };
    names("text/plain") && !names("application/openmetrics-text")
}

/// Whether the values of `Accept` admit a media type. The most specific matching range decides.
fn admits(values: &[&str], media_type: &str) -> bool {
    let ranges = values.iter().flat_map(|value| value.split(',')).map(str::trim).filter(|r| !r.is_empty());
    let mut best: Option<(u8, bool)> = None;
    let mut is_empty = true;
    for range in ranges {
        is_empty = false;
        let mut parts = range.split(';').map(str::trim);
        let Some(precision) = matches(parts.next().unwrap_or_default(), media_type) else { continue };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let is_wanted = quality.is_none_or(|quality| quality.parse::<f32>().is_ok_and(|q| q > 0.0));
        best = best.max(Some((precision, is_wanted)));
    }
    is_empty || best.is_some_and(|(_, is_wanted)| is_wanted)
}

/// Returns how specifically a range names a media type; none when it does not match.
fn matches(range: &str, media_type: &str) -> Option<u8> {
    let (kind, _) = media_type.split_once('/')?;
    if range.eq_ignore_ascii_case(media_type) {
        Some(2)
    } else if range.strip_suffix("/*").is_some_and(|range| range.eq_ignore_ascii_case(kind)) {
        Some(1)
    } else {
        (range == "*/*" || range == "*").then_some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_range_decides() {
        for good in [
            "",
            "*/*",
            "application/*",
            "text/html, application/json;q=0.1",
            "Application/JSON",
            "text/html,*/*;q=0.8",
            "application/json;charset=utf-8",
            "application/*;q=0, application/json",
        ] {
            assert!(admits(&[good], JSON), "{good}");
        }
        for bad in ["text/html", "application/xml", "application/json;q=0, */*", "text/*", "json"] {
            assert!(!admits(&[bad], JSON), "{bad}");
        }
        assert!(admits(&[], JSON));
        assert!(admits(&["text/html", "application/json"], JSON));
    }
}
