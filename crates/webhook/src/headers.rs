//! Headers of the user.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::limits::{CUSTOM_HEADER_BYTES, CUSTOM_HEADERS};

/// Headers that a user adds to deliveries. They never replace those of the protocol or of the signature.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(HeaderMap);

/// Why headers are refused. The text has no value: it may be a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("{name:?} is no name of a header")]
    Name { name: String },
    #[error("the value of the header {name} has characters that a header cannot have")]
    Value { name: HeaderName },
    #[error("the header {name} is set by the service")]
    Reserved { name: HeaderName },
    #[error("there are more than {CUSTOM_HEADERS} headers")]
    Count,
    #[error("the headers have more than {CUSTOM_HEADER_BYTES} bytes")]
    Bytes,
}

/// Headers of the protocol, of connections and of proxies. Names with the prefix `webhook-` are reserved too.
const RESERVED: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl CustomHeaders {
    /// Reads headers. Of a repeated name each value is sent.
    pub fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, HeaderError> {
        let mut map = HeaderMap::new();
        let mut bytes = 0;
        for (name, value) in headers {
            bytes += name.len() + value.len();
            if bytes > CUSTOM_HEADER_BYTES {
                return Err(HeaderError::Bytes);
            }
            if map.len() == CUSTOM_HEADERS {
                return Err(HeaderError::Count);
            }
            let header =
                name.parse::<HeaderName>().map_err(|_| HeaderError::Name { name: name.to_owned() })?;
            if RESERVED.contains(&header.as_str()) || header.as_str().starts_with("webhook-") {
                return Err(HeaderError::Reserved { name: header });
            }
            let mut value =
                HeaderValue::try_from(value).map_err(|_| HeaderError::Value { name: header.clone() })?;
            value.set_sensitive(true);
            map.append(header, value);
        }
        Ok(Self(map))
    }

    pub(crate) fn map(&self) -> &HeaderMap {
        &self.0
    }
}

/// Shows the names only: values may be credentials.
impl std::fmt::Debug for CustomHeaders {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.keys()).finish()
    }
}
