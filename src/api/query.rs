//! The query of a request, by Zaqar's rules: a blank value counts as absent, a list is separated by commas or given in
//! several parameters, and an invalid number or boolean is refused.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::limits;

/// The parameters of a query, as text. Unknown ones are dropped, unless `T` keeps them.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parse(parts.uri.query().unwrap_or_default())?))
    }
}

/// Refuses a query that is longer than any valid one.
pub fn check_length(uri: &Uri) -> Result<(), Error> {
    if uri.query().is_none_or(|query| query.len() <= limits::QUERY_BYTES) {
        return Ok(());
    }
    let why = format!("it has more than {} bytes", limits::QUERY_BYTES);
    Err(Error::invalid(InvalidPart::Query, "query", why))
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Error> {
    let mut values = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        // Invalid UTF-8 becomes the replacement character, which no name and no number contains.
        if name.contains('\u{fffd}') {
            return Err(Error::invalid(InvalidPart::Query, "", "the name of a parameter is not UTF-8 text"));
        }
        if value.contains('\u{fffd}') {
            return Err(Error::invalid(InvalidPart::Query, name, "it is not UTF-8 text"));
        }
        if value.is_empty() {
            continue;
        }
        match values.get_mut(&*name) {
            Some(Value::String(list)) => {
                list.push(',');
                list.push_str(&value);
            }
            _ => {
                values.insert(name.into_owned(), Value::String(value.into_owned()));
            }
        }
    }
    serde_json::from_value(Value::Object(values))
        .map_err(|error| Error::invalid(InvalidPart::Query, "", error.to_string()))
}

/// Parses a whole number of the query.
pub fn integer(field: &'static str, text: Option<&str>) -> Result<Option<i64>, Error> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.parse();
    number.map(Some).map_err(|_| Error::invalid(InvalidPart::Query, field, "it is not a whole number"))
}

/// Checks a whole number that is not negative.
pub fn not_negative(field: impl Into<String>, number: i64) -> Result<u32, Error> {
    let why = || format!("it is not between 0 and {}", u32::MAX);
    u32::try_from(number).map_err(|_| Error::invalid(InvalidPart::Limit, field, why()))
}

/// Returns a required parameter.
pub fn required<'a>(field: &'static str, text: Option<&'a str>) -> Result<&'a str, Error> {
    text.ok_or_else(|| Error::invalid(InvalidPart::Query, field, "it is missing"))
}

/// Parses a boolean of the query, in the spellings of Zaqar's framework.
pub fn boolean(field: &'static str, text: Option<&str>) -> Result<Option<bool>, Error> {
    match text {
        None | Some("") => Ok(None),
        Some("true" | "True" | "t" | "yes" | "y" | "1" | "on") => Ok(Some(true)),
        Some("false" | "False" | "f" | "no" | "n" | "0" | "off") => Ok(Some(false)),
        Some(_) => Err(Error::invalid(InvalidPart::Query, field, "it is neither true nor false")),
    }
}

/// Returns the elements of a list in the query that are not blank.
pub fn list(text: Option<&str>) -> Vec<&str> {
    text.unwrap_or_default().split(',').map(str::trim).filter(|element| !element.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn values(query: &str) -> BTreeMap<String, String> {
        parse(query).unwrap()
    }

    #[test]
    fn blank_values_are_absent_and_repeated_ones_are_a_list() {
        assert!(values("a=&b&=").is_empty());
        let lists = values("ids=a,b&ids=&ids=c&x=%2C+");
        assert_eq!(list(lists.get("ids").map(String::as_str)), ["a", "b", "c"]);
        assert!(list(lists.get("x").map(String::as_str)).is_empty());
    }

    #[test]
    fn non_text_query_value_is_refused_by_name() {
        let error = parse::<BTreeMap<String, String>>("limit=%ff").unwrap_err();
        assert!(error.to_string().starts_with("limit:"), "{error}");
    }

    #[test]
    fn booleans_have_the_spellings_of_zaqar() {
        for text in ["true", "True", "t", "yes", "y", "1", "on"] {
            assert_eq!(boolean("b", Some(text)).unwrap(), Some(true));
        }
        for text in ["false", "False", "f", "no", "n", "0", "off"] {
            assert_eq!(boolean("b", Some(text)).unwrap(), Some(false));
        }
        for text in ["TRUE", "2", "nope", "true,true"] {
            assert!(boolean("b", Some(text)).is_err(), "{text}");
        }
    }
}
