//! Conditions on messages: their state, their fields and their body.

use angarium_core::group::GroupName;
use angarium_core::message::Header;
use angarium_core::outcome::Holder;
use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;

use crate::messages::pool_page::EntriesById;

/// The messages that a request selects: those that fulfil each condition. An absent condition is fulfilled.
#[derive(Clone, Debug, Default)]
pub struct MessageSelection {
    /// It has one of these states; empty: any.
    pub states: Vec<MessageState>,
    /// It belongs to this group.
    pub group: Option<GroupName>,
    /// It has this tag.
    pub tag: Option<String>,
    /// The holder of its claim has this name; for a kept message, the holder that settled it.
    pub by: Option<String>,
    /// Min whole seconds since its post.
    pub min_age: Option<u32>,
    /// Max whole seconds since its post.
    pub max_age: Option<u32>,
    /// Min number of its claims.
    pub min_attempts: Option<u32>,
    /// Its body, a JSON text, has these bytes.
    pub contains: Option<String>,
}

/// A message as far as it is known without its body.
pub(in crate::messages) struct MessageFacts<'a> {
    pub(in crate::messages) header: &'a Header,
    pub(in crate::messages) state: MessageState,
    /// The holder of the claim, if there is one that named itself.
    pub(in crate::messages) holder: Option<&'a Holder>,
}

impl MessageSelection {
    /// Returns the stored entries without an outcome that may fulfil the conditions; none if none can.
    pub(in crate::messages) fn entries(&self) -> Option<EntriesById> {
        let wants = |state| self.states.is_empty() || self.states.contains(&state);
        let (ready, delayed) = (wants(MessageState::Ready), wants(MessageState::Delayed));
        // A claimed message is stored as ready, or as scheduled while a release with a delay is cut short.
        if wants(MessageState::Claimed) {
            return Some(EntriesById::NotKept);
        }
        match (ready, delayed || wants(MessageState::InTransfer)) {
            (true, true) => Some(EntriesById::NotKept),
            (true, false) => Some(EntriesById::Ready),
            (false, true) => Some(EntriesById::NotReady),
            (false, false) => None,
        }
    }

    /// Whether kept messages may fulfil the conditions.
    pub(in crate::messages) fn wants_kept(&self) -> bool {
        self.states.is_empty() || self.states.iter().any(|state| state.is_final())
    }

    /// Whether a message fulfils each condition but the one on its body.
    pub(in crate::messages) fn accepts(&self, message: &MessageFacts<'_>, now: Timestamp) -> bool {
        let MessageFacts { header, state, .. } = message;
        let age = now.seconds_since(header.created);
        let is_tagged =
            |tag: &String| header.extras.as_ref().is_some_and(|extras| extras.tags.as_slice().contains(tag));
        (self.states.is_empty() || self.states.contains(state))
            && self.group.as_ref().is_none_or(|group| header.group.as_ref() == Some(group))
            && self.tag.as_ref().is_none_or(is_tagged)
            && self.by.as_ref().is_none_or(|by| message.by().is_some_and(|holder| holder.as_str() == by))
            && self.min_age.is_none_or(|seconds| age >= seconds.into())
            && self.max_age.is_none_or(|seconds| age <= seconds.into())
            && self.min_attempts.is_none_or(|attempts| header.attempts >= attempts)
    }

    /// Whether a body fulfils the condition on it. A stored body is JSON and so UTF-8.
    pub(in crate::messages) fn accepts_body(&self, body: &[u8]) -> bool {
        let Some(part) = &self.contains else { return true };
        str::from_utf8(body).is_ok_and(|body| body.contains(part))
    }
}

impl<'a> MessageFacts<'a> {
    fn by(&self) -> Option<&'a Holder> {
        let of_outcome = || self.header.extras.as_ref().and_then(|extras| extras.by.as_ref());
        self.holder.or_else(|| self.state.is_final().then(of_outcome).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(states: &[MessageState]) -> MessageSelection {
        MessageSelection { states: states.to_vec(), ..MessageSelection::default() }
    }

    #[test]
    fn only_orders_of_selected_states_are_read() {
        use MessageState::{Claimed, Delayed, Done, Failed, InTransfer, Ready};
        for (states, entries, kept) in [
            (&[][..], Some(EntriesById::NotKept), true),
            (&[Ready], Some(EntriesById::Ready), false),
            (&[Delayed], Some(EntriesById::NotReady), false),
            (&[InTransfer, Failed], Some(EntriesById::NotReady), true),
            (&[Ready, Delayed], Some(EntriesById::NotKept), false),
            (&[Claimed], Some(EntriesById::NotKept), false),
            (&[Done, Failed], None, true),
        ] {
            assert_eq!((of(states).entries(), of(states).wants_kept()), (entries, kept), "{states:?}");
        }
    }

    #[test]
    fn body_is_searched_with_its_case_and_its_escapes() {
        let contains = |part: &str| MessageSelection { contains: Some(part.to_owned()), ..of(&[]) };
        let body = "{\"name\": \"Ärger \\\"x\\\"\"}".as_bytes();
        assert!(contains("Ärger").accepts_body(body) && contains("\\\"x").accepts_body(body));
        assert!(!contains("ärger").accepts_body(body) && !contains(" \"x").accepts_body(body));
        assert!(of(&[]).accepts_body(body));
    }
}
