//! The data of a message beside its body. It is stored in front of the body, so that no pool has to know it, and a
//! message without such data costs nothing.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 0, with which no JSON text begins: a message with an empty envelope begins with its body |
//! | 1 | the form of the rest: 1 is a trace alone (see [`super::trace`]), 2 is fields |
//! | 4 | form 2: bytes of the fields |
//! | 1 + 4 + any | form 2: a field: its tag, its length, its value; as many fields as there are |
//!
//! | tag | field |
//! |---|---|
//! | 1 | the trace, as in form 1 |
//! | 2 | the attributes that its producer sent through SQS, see [`super::message_attribute`] |
//! | 3 | the AWS X-Ray header of its SQS request |
//! | 4 | its sender, if it was sent through SQS |
//! | 5 | the queue whose dead letter it is |
//! | 6 | number of claims before its transfer to this queue, in 4 bytes |
//! | 7 | the deduplication id that its producer chose |
//!
//! Pools store forms and tags, so they never change. A reader skips tags that it does not know.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::group::DedupId;
use crate::message_attribute::MessageAttributes;
use crate::names::QueueName;
use crate::trace::TraceContext;

const MARK: u8 = 0;
const TRACED: u8 = 1;
const FIELDS: u8 = 2;
/// Bytes before all fields in form 2, and before each field.
const HEAD: usize = 6;
const FIELD_HEAD: usize = 5;

const TRACE: u8 = 1;
const ATTRIBUTES: u8 = 2;
const AWS_TRACE: u8 = 3;
const SENDER: u8 = 4;
const SOURCE: u8 = 5;
const ATTEMPTS: u8 = 6;
const DEDUP: u8 = 7;

/// The data of a message beside its body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The trace of the post.
    pub trace: Option<TraceContext>,
    /// Typed values that the producer sent beside the body, in SQS.
    pub attributes: MessageAttributes,
    /// The header `X-Amzn-Trace-Id` of the SQS request.
    pub aws_trace: Option<String>,
    /// The sender, in SQS.
    pub sender: Option<String>,
    /// The queue whose dead letter it is.
    pub source: Option<QueueName>,
    /// Number of claims before its transfer to this queue. The queue counts from zero again.
    pub attempts: u32,
    /// The deduplication id that the producer chose, in SQS.
    pub dedup: Option<DedupId>,
}

impl Envelope {
    /// Whether there is no data, so the stored form is the body alone.
    pub fn is_empty(&self) -> bool {
        self.trace.is_none() && self.is_only_traced()
    }

    fn is_only_traced(&self) -> bool {
        self.attributes.is_empty()
            && self.aws_trace.is_none()
            && self.sender.is_none()
            && self.source.is_none()
            && self.attempts == 0
            && self.dedup.is_none()
    }

    /// Returns the stored form: this data, then the body.
    pub fn before(&self, body: Bytes) -> Bytes {
        match &self.trace {
            None if self.is_empty() => body,
            Some(trace) if self.is_only_traced() => {
                let mut stored = BytesMut::with_capacity(2 + trace.stored_bytes() + body.len());
                stored.put_slice(&[MARK, TRACED]);
                trace.put(&mut stored);
                stored.put_slice(&body);
                stored.freeze()
            }
            _ => self.fields_before(&body),
        }
    }

    fn fields_before(&self, body: &[u8]) -> Bytes {
        let mut stored = BytesMut::with_capacity(HEAD + body.len() + 128);
        stored.put_slice(&[MARK, FIELDS, 0, 0, 0, 0]);
        if let Some(trace) = &self.trace {
            let mut field = BytesMut::new();
            trace.put(&mut field);
            put(&mut stored, TRACE, &field);
        }
        if !self.attributes.is_empty() {
            put(&mut stored, ATTRIBUTES, &self.attributes.canonical());
        }
        let source = self.source.as_ref().map(QueueName::as_str);
        let dedup = self.dedup.as_ref().map(DedupId::as_str);
        for (tag, text) in [
            (AWS_TRACE, self.aws_trace.as_deref()),
            (SENDER, self.sender.as_deref()),
            (SOURCE, source),
            (DEDUP, dedup),
        ] {
            if let Some(text) = text {
                put(&mut stored, tag, text.as_bytes());
            }
        }
        if self.attempts > 0 {
            put(&mut stored, ATTEMPTS, &self.attempts.to_be_bytes());
        }
        let fields = length(stored.len() - HEAD);
        stored[2..HEAD].copy_from_slice(&fields.to_be_bytes());
        stored.put_slice(body);
        stored.freeze()
    }

    /// Splits the stored form into the envelope and the body.
    pub fn split(stored: Bytes) -> (Self, Bytes) {
        let split = match stored.get(..2) {
            Some([MARK, TRACED]) => Self::split_trace(&stored),
            Some([MARK, FIELDS]) => Self::split_fields(&stored),
            _ => None,
        };
        split.unwrap_or_else(|| (Self::default(), stored))
    }

    fn split_trace(stored: &Bytes) -> Option<(Self, Bytes)> {
        let mut rest = stored.slice(2..);
        let trace = TraceContext::take(&mut rest)?;
        Some((Self { trace: Some(trace), ..Self::default() }, rest))
    }

    fn split_fields(stored: &Bytes) -> Option<(Self, Bytes)> {
        let mut head = stored.get(2..HEAD)?;
        let end = HEAD + usize::try_from(head.get_u32()).ok()?;
        if stored.len() < end {
            return None;
        }
        let mut fields = stored.slice(HEAD..end);
        let mut envelope = Self::default();
        while fields.len() >= FIELD_HEAD {
            let (tag, size) = (fields.get_u8(), usize::try_from(fields.get_u32()).ok()?);
            if fields.len() < size {
                return None;
            }
            envelope.read(tag, fields.split_to(size));
        }
        Some((envelope, stored.slice(end..)))
    }

    fn read(&mut self, tag: u8, mut field: Bytes) {
        let text = |field: &Bytes| std::str::from_utf8(field).ok().map(ToOwned::to_owned);
        match tag {
            TRACE => self.trace = TraceContext::take(&mut field),
            ATTRIBUTES => self.attributes = MessageAttributes::stored(&field).unwrap_or_default(),
            AWS_TRACE => self.aws_trace = text(&field),
            SENDER => self.sender = text(&field),
            DEDUP => self.dedup = text(&field).and_then(|id| DedupId::new(&id, "").ok()),
            ATTEMPTS if field.len() == 4 => self.attempts = field.get_u32(),
            SOURCE => self.source = text(&field).and_then(|name| QueueName::stored(&name).ok()),
            _ => {}
        }
    }
}

fn put(stored: &mut BytesMut, tag: u8, field: &[u8]) {
    stored.put_u8(tag);
    stored.put_u32(length(field.len()));
    stored.put_slice(field);
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("what a request brings is far below 4 GiB")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message_attribute::{MessageAttribute, Value};

    fn trace() -> Option<TraceContext> {
        TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1")
    }

    fn attributes() -> MessageAttributes {
        let text = MessageAttribute { data_type: "String.x".into(), value: Value::Text("ä".into()) };
        let bytes = Bytes::from_static(&[0, 255]);
        let binary = MessageAttribute { data_type: "Binary".into(), value: Value::Binary(bytes) };
        [("b".to_owned(), binary), ("a".to_owned(), text)].into_iter().collect()
    }

    fn whole() -> Envelope {
        Envelope {
            trace: trace(),
            attributes: attributes(),
            aws_trace: Some("Root=1-5759e988-bd862e3fe1be46a994272793".into()),
            sender: Some("AKIDEXAMPLE".into()),
            source: Some(QueueName::new("orders").unwrap()),
            attempts: 3,
            dedup: Some(DedupId::new("once", "").unwrap()),
        }
    }

    #[test]
    fn envelope_survives_its_stored_form() {
        let body = Bytes::from_static(b"{\"a\": 1}");
        for envelope in [
            Envelope::default(),
            Envelope { trace: trace(), ..Envelope::default() },
            Envelope { trace: None, ..whole() },
            whole(),
        ] {
            assert_eq!(Envelope::split(envelope.before(body.clone())), (envelope, body.clone()));
        }
    }

    #[test]
    fn source_may_be_the_queue_of_a_subscription() {
        let queue = QueueName::new("orders").unwrap();
        let source = Some(queue.of_subscription("0a00000000000000000000000000000b".parse().unwrap()));
        let envelope = Envelope { source: source.clone(), ..Envelope::default() };
        assert_eq!(Envelope::split(envelope.before(Bytes::from_static(b"1"))).0.source, source);
    }

    #[test]
    fn lone_trace_keeps_its_first_stored_form() {
        let stored = Envelope { trace: trace(), ..Envelope::default() }.before(Bytes::from_static(b"1"));
        assert_eq!((&stored[..4], &stored[29..]), (&[0, 1, 0, 3][..], &b"a=11"[..]));
    }

    #[test]
    fn tags_of_later_versions_are_passed_over() {
        let stored = Bytes::from_static(b"\0\x02\0\0\0\x0c\x63\0\0\0\x01?\x04\0\0\0\x01s{}");
        let sender = Envelope { sender: Some("s".into()), ..Envelope::default() };
        assert_eq!(Envelope::split(stored), (sender, Bytes::from_static(b"{}")));
    }

    proptest! {
        #[test]
        fn json_body_is_kept_unchanged(body in "[\\[{\"0-9tfn \\-][ -~]{0,60}") {
            let body = Bytes::from(body);
            prop_assert_eq!(Envelope::split(body.clone()), (Envelope::default(), body.clone()));
            prop_assert_eq!(Envelope::split(whole().before(body.clone())), (whole(), body));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), form in 1_u8..3) {
            Envelope::split(Bytes::from([&[0, form], bytes.as_slice()].concat()));
            Envelope::split(Bytes::from(bytes));
        }
    }
}
