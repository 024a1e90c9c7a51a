//! The trace of a message's post, by W3C Trace Context (level 2): it passes from the producer to the consumer. Its
//! stored form:
//!
//! | bytes | what |
//! |---|---|
//! | 2 | bytes of the state |
//! | 16 + 8 + 1 | trace id, parent id, flags |
//! | any | the state, as the producer sent it |
//!
//! It is a part of the envelope in front of a body (see [`super::envelope`]). Pools store it, so the form never
//! changes.

use bytes::{Buf, BufMut, Bytes};

use crate::limits;

/// Bytes before the state.
const HEAD: usize = 27;
/// Characters of a `traceparent` of version 00.
const PARENT_CHARS: usize = 55;
const SAMPLED: u8 = 1;

/// The content of `traceparent` and `tracestate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    parent: [u8; 8],
    flags: u8,
    state: Bytes,
}

impl TraceContext {
    /// Reads the headers of a request. None when `traceparent` is invalid, as the standard demands: an unreadable trace
    /// is no reason to refuse a request. A `tracestate` that is invalid, or longer than [`limits::TRACE_STATE_BYTES`],
    /// is left out.
    pub fn parse(parent: &str, state: &str) -> Option<Self> {
        let (trace, span, flags) = parse_parent(parent)?;
        let state = if is_state(state) { Bytes::copy_from_slice(state.as_bytes()) } else { Bytes::new() };
        Some(Self { trace, parent: span, flags, state })
    }

    /// `traceparent`, in version 00.
    pub fn parent(&self) -> String {
        let (trace, parent) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.parent));
        format!("00-{trace:032x}-{parent:016x}-{:02x}", self.flags)
    }

    /// `tracestate`, if there is one.
    pub fn state(&self) -> Option<&str> {
        std::str::from_utf8(&self.state).ok().filter(|state| !state.is_empty())
    }

    /// The id that all parts of the trace share.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.trace))
    }

    /// Whether the caller that began the trace records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED == SAMPLED
    }

    /// Bytes of the stored form.
    pub fn stored_bytes(&self) -> usize {
        HEAD + self.state.len()
    }

    /// Writes the stored form.
    pub fn put(&self, stored: &mut impl BufMut) {
        stored.put_u16(u16::try_from(self.state.len()).expect("a state is within its bound"));
        stored.put_slice(&self.trace);
        stored.put_slice(&self.parent);
        stored.put_u8(self.flags);
        stored.put_slice(&self.state);
    }

    /// Takes the stored form from the front. When the bytes are too few, returns none and takes nothing.
    pub fn take(stored: &mut Bytes) -> Option<Self> {
        let mut head = stored.get(..HEAD)?;
        let state = usize::from(head.get_u16());
        if stored.len() < HEAD + state {
            return None;
        }
        let (mut trace, mut parent) = ([0; 16], [0; 8]);
        head.copy_to_slice(&mut trace);
        head.copy_to_slice(&mut parent);
        let flags = head.get_u8();
        stored.advance(HEAD);
        Some(Self { trace, parent, flags, state: stored.split_to(state) })
    }
}

/// Returns trace id, parent id and flags. Of a later version it reads the parts of version 00 (section 3.2.4).
fn parse_parent(text: &str) -> Option<([u8; 16], [u8; 8], u8)> {
    let text = text.trim_matches([' ', '\t']);
    let (known, rest) = text.split_at_checked(PARENT_CHARS)?;
    let mut parts = known.split('-');
    let version = u8::try_from(hex(parts.next()?, 2)?).ok()?;
    let trace = hex(parts.next()?, 32)?;
    let parent = u64::try_from(hex(parts.next()?, 16)?).ok()?;
    let flags = u8::try_from(hex(parts.next()?, 2)?).ok()?;
    let is_whole = parts.next().is_none() && (rest.is_empty() || (version > 0 && rest.starts_with('-')));
    if !is_whole || version == u8::MAX || trace == 0 || parent == 0 {
        return None;
    }
    Some((trace.to_be_bytes(), parent.to_be_bytes(), flags))
}

/// Reads `digits` lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u128::from_str_radix(text, 16).ok() } else { None }
}

/// Whether the text is a list of `key=value` (section 3.3.1) within its bounds.
fn is_state(text: &str) -> bool {
    let is_member = |member: &str| {
        let Some((key, value)) = member.split_once('=') else { return false };
        let is_key = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
        let is_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b',' && byte != b'=';
        !key.is_empty() && key.bytes().all(is_key) && !value.is_empty() && value.bytes().all(is_value)
    };
    let mut members =
        text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|m| !m.is_empty());
    text.len() <= limits::TRACE_STATE_BYTES
        && members.clone().count() <= limits::TRACE_STATE_MEMBERS
        && members.all(is_member)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn trace_survives_its_text_form() {
        let context = TraceContext::parse(PARENT, "vendor=a:b/c, other@x=1").unwrap();
        assert_eq!(context.parent(), PARENT);
        assert_eq!(context.state(), Some("vendor=a:b/c, other@x=1"));
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(context.is_sampled());
        let mut stored = Vec::new();
        context.put(&mut stored);
        assert_eq!(stored.len(), context.stored_bytes());
        stored.extend(b"{}");
        let mut stored = Bytes::from(stored);
        assert_eq!((TraceContext::take(&mut stored), stored), (Some(context), Bytes::from_static(b"{}")));
    }

    #[test]
    fn invalid_parent_is_no_trace() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad, ""), None, "{bad}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes";
        assert_eq!(TraceContext::parse(later, "").unwrap().parent(), PARENT);
    }

    #[test]
    fn invalid_or_long_state_is_dropped() {
        let long = format!("a={}", "x".repeat(limits::TRACE_STATE_BYTES));
        let many = "a=1,".repeat(limits::TRACE_STATE_MEMBERS + 1);
        for bad in ["a", "=1", "a=", "A=1", "a=1=2", "a=\u{e9}", "a b=1", &long, &many] {
            let context = TraceContext::parse(PARENT, bad).unwrap();
            assert_eq!((context.state(), context.parent().as_str()), (None, PARENT), "{bad}");
        }
        for good in ["a=1", "a=1,,b=2", " a=1 ,\tb=2", "0a@b=x y"] {
            assert_eq!(TraceContext::parse(PARENT, good).unwrap().state(), Some(good));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), parent in "\\PC{0,80}") {
            TraceContext::take(&mut Bytes::from(bytes));
            TraceContext::parse(&parent, &parent);
        }
    }
}
