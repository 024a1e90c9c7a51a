//! JSON in and out: bodies read within a bound and a time, text kept as it came, errors that name the field.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::error::ApiError;
use super::explain::explain;
use angarium_broker::Broker;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::limits::{self, Limits};

/// A value that arrives as a JSON body.
pub trait RequestBody: DeserializeOwned {
    /// What the outermost value of the body is.
    const SHAPE: Shape = Shape::Object;
    /// The media types one of which the body must be said to have; without any no client looks at `Content-Type`.
    const MEDIA_TYPES: &'static [&'static str] = &[];

    /// Bytes that the body may have.
    fn most(limits: &Limits) -> usize;

    /// What an empty body means; none when there must be one.
    fn when_empty() -> Option<Self> {
        None
    }
}

/// The outermost value of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{…}`
    Object,
    /// `[…]`
    List,
}

/// The JSON body of a request.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: RequestBody> FromRequest<Broker> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, broker: &Broker) -> Result<Self, Self::Rejection> {
        let (head, body) = request.into_parts();
        // First the body, whatever is said of it: who is still sending would see a reset in place of the answer.
        let bytes = read(body, T::most(broker.limits())).await?;
        check_media_type(&head.headers, T::MEDIA_TYPES)?;
        if bytes.is_empty()
            && let Some(value) = T::when_empty()
        {
            return Ok(Self(value));
        }
        parse(&bytes, T::SHAPE).map(Self).map_err(ApiError::from)
    }
}

fn check_media_type(headers: &HeaderMap, wanted: &[&str]) -> Result<(), Error> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    if wanted.is_empty() || wanted.iter().any(|wanted| given.eq_ignore_ascii_case(wanted)) {
        return Ok(());
    }
    Err(Error::invalid(InvalidPart::MediaType, "Content-Type", format!("it must be {}", wanted.join(" or "))))
}

/// Reads a body whole, or none of it when it is too long or too late.
pub async fn read(body: Body, most: usize) -> Result<Bytes, Error> {
    match tokio::time::timeout(limits::BODY_DEADLINE, collect(body, most)).await {
        Ok(Ok(Some(whole))) => Ok(whole),
        Ok(Ok(None)) => Err(too_large(most)),
        Ok(Err(error)) if Error::is_late(&error) => Err(Error::Late),
        Ok(Err(error)) if Error::is_bodies_full(&error) => Err(Error::BodiesFull),
        Ok(Err(_)) => Err(Error::invalid(InvalidPart::Body, "", "the request body broke off")),
        Err(_) => Err(Error::Late),
    }
}

/// A body has more than `most` bytes.
pub fn too_large(most: usize) -> Error {
    Error::invalid(InvalidPart::Limit, "", format!("the request body is too large: at most {most} bytes"))
}

/// The bytes of a body, or none when there are more than `most`.
///
/// What is too much is read and dropped up to a bound: a client that is still sending would otherwise see a
/// broken connection in place of the answer.
async fn collect(mut body: Body, most: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut first = Bytes::new();
    let mut blocks = Vec::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        if length > most.saturating_add(limits::EXCESS_BYTES) {
            break;
        }
        if length > most {
            first = Bytes::new();
            blocks = Vec::new();
        } else if length == data.len() {
            first = data;
        } else {
            gather(&mut blocks, &std::mem::take(&mut first));
            gather(&mut blocks, &data);
        }
    }
    let bytes = if blocks.is_empty() { first } else { joined(blocks) };
    Ok((length <= most).then_some(bytes))
}

/// Bytes of the blocks that a long body is gathered in, so that it takes as much memory as came of it: one buffer that
/// grows is there twice whenever it does.
const BLOCK: usize = 256 * 1024;

fn gather(blocks: &mut Vec<BytesMut>, mut data: &[u8]) {
    // Most bodies of several pieces have few.
    let mut next = if blocks.is_empty() { (4 * data.len()).min(BLOCK) } else { BLOCK };
    while !data.is_empty() {
        if let Some(block) = blocks.last_mut().filter(|block| block.len() < block.capacity()) {
            let (fits, rest) = data.split_at(data.len().min(block.capacity() - block.len()));
            block.extend_from_slice(fits);
            data = rest;
        } else {
            blocks.push(BytesMut::with_capacity(next));
            next = BLOCK;
        }
    }
}

fn joined(mut blocks: Vec<BytesMut>) -> Bytes {
    if blocks.len() == 1 {
        return blocks.swap_remove(0).freeze();
    }
    let mut whole = BytesMut::with_capacity(blocks.iter().map(BytesMut::len).sum());
    blocks.into_iter().for_each(|block| whole.extend_from_slice(&block));
    whole.freeze()
}

/// The value of JSON text. An error names the field by its path.
fn parse<T: DeserializeOwned>(bytes: &[u8], shape: Shape) -> Result<T, Error> {
    if is_too_deep(bytes) {
        let why = format!("the body is nested deeper than {} levels", limits::JSON_DEPTH);
        return Err(Error::invalid(InvalidPart::Body, "", why));
    }
    // serde reads structs from arrays too, field by field.
    if shape == Shape::Object && bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Error::invalid(InvalidPart::Body, "", "the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// A value that is read from a JSON object only; serde's own structs are read from arrays too.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Keys<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Keys(PhantomData))
    }
}

/// For fields that may be absent but not null, as in Zaqar; serde takes the one for the other.
pub fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// Whether arrays and objects are nested deeper than the bound. Counts brackets outside of strings, so it is
/// exact for JSON and harmless for anything else.
pub fn is_too_deep(bytes: &[u8]) -> bool {
    // Most texts have fewer brackets in all, and those are counted many bytes at a time.
    if bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() <= limits::JSON_DEPTH {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > limits::JSON_DEPTH {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// JSON text as its own bytes, without another copy.
pub fn into_bytes(text: Box<RawValue>) -> Bytes {
    Bytes::from(String::from(Box::<str>::from(text)))
}

/// JSON text written into an answer byte for byte.
#[derive(Debug)]
pub struct RawJson(pub Bytes);

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        text.serialize(serializer)
    }
}

/// An answer with a JSON body. What cannot be written (a damaged body from a pool) is an error, not half a body.
pub fn reply(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body)
            .into_response(),
        Err(error) => {
            ApiError::from(Error::unavailable(angarium_core::error::Part::Storage, error)).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(!is_too_deep(&nested(limits::JSON_DEPTH)));
        assert!(is_too_deep(&nested(limits::JSON_DEPTH + 1)));
        let text = format!(r#"["{}\"{}"]"#, "[".repeat(500), "{".repeat(500));
        assert!(!is_too_deep(text.as_bytes()));
        assert!(!is_too_deep("[],".repeat(500).as_bytes()));
    }

    #[test]
    fn pieces_are_gathered_in_their_order() {
        for (piece, pieces) in [(1, 3), (1_000, 700), (100_000, 9), (600_000, 2)] {
            let data: Vec<u8> = (0..piece * pieces).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut blocks = Vec::new();
            data.chunks(piece).for_each(|piece| gather(&mut blocks, piece));
            assert!(blocks.iter().map(BytesMut::capacity).sum::<usize>() <= data.len() + 2 * BLOCK);
            assert_eq!(joined(blocks), data);
        }
    }
}
