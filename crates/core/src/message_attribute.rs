//! Typed values that a producer sends beside the body of a message (SQS: message attributes): their names, types and
//! sizes. The stored form is the one over which SQS clients compute their checksum.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Attributes by name, in byte order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageAttributes(BTreeMap<String, MessageAttribute>);

/// A message attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, optionally with a dot and a label.
    pub data_type: String,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Value of a `String`, or of a `Number` as the producer wrote it.
    Text(String),
    /// Value of a `Binary`.
    Binary(Bytes),
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;

impl MessageAttributes {
    /// Whether there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of names, types and values: SQS adds them to the body when it measures a message.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, attribute)| name.len() + attribute.size()).sum()
    }

    /// Returns the attributes whose names `wanted` accepts.
    pub fn filtered(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = self.0.iter().filter(|(name, _)| wanted(name));
        Self(wanted.map(|(name, attribute)| (name.clone(), attribute.clone())).collect())
    }

    /// Name and attribute (type and value) of each.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &MessageAttribute)> {
        self.0.iter()
    }

    /// Returns the bytes over which SQS clients compute their checksum. For each attribute in the order of names:
    /// length and bytes of the name, of the type, 1 for text or 2 for bytes, then length and bytes of the value. A
    /// length is 4 bytes, big-endian.
    pub fn canonical(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for (name, attribute) in &self.0 {
            put(&mut bytes, name.as_bytes());
            put(&mut bytes, attribute.data_type.as_bytes());
            match &attribute.value {
                Value::Text(text) => {
                    bytes.put_u8(TEXT);
                    put(&mut bytes, text.as_bytes());
                }
                Value::Binary(binary) => {
                    bytes.put_u8(BINARY);
                    put(&mut bytes, binary);
                }
            }
        }
        bytes.freeze()
    }

    /// Reads canonical bytes; none when `bytes` are something else.
    pub fn stored(bytes: &Bytes) -> Option<Self> {
        let mut rest = bytes.clone();
        let mut attributes = BTreeMap::new();
        while !rest.is_empty() {
            let name = text(take(&mut rest)?)?;
            let data_type = text(take(&mut rest)?)?;
            let kind = rest.first().copied()?;
            rest.advance(1);
            let value = match kind {
                TEXT => Value::Text(text(take(&mut rest)?)?),
                BINARY => Value::Binary(take(&mut rest)?),
                _ => return None,
            };
            attributes.insert(name, MessageAttribute { data_type, value });
        }
        Some(Self(attributes))
    }
}

impl FromIterator<(String, MessageAttribute)> for MessageAttributes {
    fn from_iter<I: IntoIterator<Item = (String, MessageAttribute)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}

impl MessageAttribute {
    fn size(&self) -> usize {
        let value = match &self.value {
            Value::Text(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
        };
        self.data_type.len() + value
    }
}

fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32(u32::try_from(part.len()).expect("what a request brings is far below 4 GiB"));
    bytes.put_slice(part);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    if bytes.len() < 4 {
        return None;
    }
    let length = usize::try_from(bytes.get_u32()).ok()?;
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

fn text(bytes: Bytes) -> Option<String> {
    String::from_utf8(bytes.into()).ok()
}
