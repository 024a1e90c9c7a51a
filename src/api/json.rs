//! JSON input and output: bodies are read within a size and a time, raw text is kept unchanged, and errors name the
//! field.

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

/// A value that a request has as its JSON body.
pub trait RequestBody: DeserializeOwned {
    /// The outermost value of the body.
    const SHAPE: Shape = Shape::Object;
    /// The media types of which `Content-Type` must name one; if there are none, `Content-Type` is ignored.
    const MEDIA_TYPES: &'static [&'static str] = &[];

    /// Returns the max bytes of the body.
    fn most(limits: &Limits) -> usize;

    /// Returns the value of an empty body; none when a body is required.
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
        // The body is read before its media type is checked: a client that is still sending would see a reset instead
        // of the answer.
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

/// Reads a whole body. Fails when it is too long or too late.
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

/// Returns the error for a body of more than `most` bytes.
pub fn too_large(most: usize) -> Error {
    Error::invalid(InvalidPart::Limit, "", format!("the request body is too large: at most {most} bytes"))
}

/// Reads the bytes of a body; none when there are more than `most`.
///
/// Excess bytes are read and dropped up to a bound: a client that is still sending would otherwise see a broken
/// connection instead of the answer.
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

/// Bytes of the blocks in which a long body is collected, so that it takes only as much memory as was received: a
/// single growing buffer exists twice whenever it grows.
const BLOCK: usize = 256 * 1024;

fn gather(blocks: &mut Vec<BytesMut>, mut data: &[u8]) {
    // Most bodies with several pieces have only a few.
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

/// Parses JSON text. An error names the field by its path.
fn parse<T: DeserializeOwned>(bytes: &[u8], shape: Shape) -> Result<T, Error> {
    if is_too_deep(bytes) {
        let why = format!("the body is nested deeper than {} levels", limits::JSON_DEPTH);
        return Err(Error::invalid(InvalidPart::Body, "", why));
    }
    // serde would also read a struct from an array, field by field.
    if shape == Shape::Object && bytes.trim_ascii_start().starts_with(b"[") {
        return Err(Error::invalid(InvalidPart::Body, "", "the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// A value that is read only from a JSON object; serde's own structs are also read from arrays.
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

/// For fields that may be absent but not null, as in Zaqar; serde does not distinguish the two.
pub fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// Whether arrays and objects are nested deeper than the bound. Counts brackets outside of strings, so the result is
/// exact for JSON and harmless for other text.
pub fn is_too_deep(bytes: &[u8]) -> bool {
    // Most texts have fewer brackets in all, and this count checks many bytes at a time.
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

/// Converts JSON text to bytes, without a copy.
pub fn into_bytes(text: Box<RawValue>) -> Bytes {
    Bytes::from(String::from(Box::<str>::from(text)))
}

/// JSON text that is written to an answer unchanged.
#[derive(Debug)]
pub struct RawJson(pub Bytes);

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        text.serialize(serializer)
    }
}

/// Returns an answer with a JSON body. If the body cannot be written (a damaged message from a pool), the answer is an
/// error, not half a body.
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
