//! The typed values that a sender puts beside the body of a message (SQS: message attributes): their names, their types,
//! their bounds. The form they are kept in is the one that SQS clients compute their checksum over.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Attributes by their names, in the order of the bytes of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageAttributes(BTreeMap<String, MessageAttribute>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, and maybe a dot and a label.
    pub data_type: String,
    /// What it states.
    pub value: Value,
}

/// What an attribute states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a `String`, or of a `Number` as it was written.
    Text(String),
    /// Of a `Binary`.
    Binary(Bytes),
}

const TEXT: u8 = 1;
const BINARY: u8 = 2;

impl MessageAttributes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of names, types and values: what SQS adds to the body when it measures a message.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, attribute)| name.len() + attribute.size()).sum()
    }

    /// Those whose name is let through.
    pub fn filtered(&self, wanted: impl Fn(&str) -> bool) -> Self {
        let wanted = self.0.iter().filter(|(name, _)| wanted(name));
        Self(wanted.map(|(name, attribute)| (name.clone(), attribute.clone())).collect())
    }

    /// Name, type and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &MessageAttribute)> {
        self.0.iter()
    }

    /// The bytes that the checksum of SQS is made of: for each in the order of the names the length and the bytes of the
    /// name, those of the type, 1 for text or 2 for bytes, and those of the value; lengths have 4 bytes, the greatest first.
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

    /// Those of which these are the canonical bytes; none when they are something else.
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
