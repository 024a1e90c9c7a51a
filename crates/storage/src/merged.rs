//! Merges the answers of two pools for one queue: while a queue migrates it is in both (P6).
//!
//! The caller reads the older pool first, then the newer one. An entry that is copied between the two reads is in at
//! least one of the answers: it may be seen twice, and is never missed. If both have an entry, the newer pool wins.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::Note;
use super::page::{Direction, GroupHead, Order, Page, Position, Totals};
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::Message;

/// Merges two pages of the same scan.
pub fn pages(order: Order, direction: Direction, older: Page, newer: Page) -> Page {
    let place = |message: &Message| match order {
        Order::Ready | Order::Aside => Position::id(message.header.id),
        Order::Schedule | Order::Kept => Position::of(&message.header),
    };
    let compare = |one: Position, other: Position| match direction {
        Direction::Up => one.cmp(&other),
        Direction::Down => other.cmp(&one),
    };
    // After the end of a page that is not the last, the other page is incomplete.
    let end = |page: &Page| page.messages.last().map(&place).filter(|_| !page.is_last);
    let end = [end(&older), end(&newer)].into_iter().flatten().min_by(|one, other| compare(*one, *other));
    let mut messages = newer.messages;
    let known: std::collections::HashSet<MessageId> =
        messages.iter().map(|message| message.header.id).collect();
    messages.extend(older.messages.into_iter().filter(|message| !known.contains(&message.header.id)));
    messages.sort_by(|one, other| compare(place(one), place(other)));
    if let Some(end) = end {
        messages.retain(|message| compare(place(message), end) != Ordering::Greater);
    }
    Page { messages, is_last: end.is_none() }
}

/// Merges the entries of two answers to the same `ids`, in the order of `ids`.
pub fn found(ids: &[MessageId], older: Vec<Message>, newer: Vec<Message>) -> Vec<Message> {
    let entries = older.into_iter().chain(newer).map(|message| (message.header.id, message));
    let mut entries: BTreeMap<MessageId, Message> = entries.collect();
    ids.iter().filter_map(|id| entries.remove(id)).collect()
}

/// Adds the totals of both pools. An entry that is being copied counts twice.
pub fn totals(older: Totals, newer: Totals) -> Totals {
    Totals {
        messages: older.messages + newer.messages,
        bytes: older.bytes + newer.bytes,
        scheduled: older.scheduled + newer.scheduled,
        in_transfer: older.in_transfer + newer.in_transfer,
        kept: older.kept + newer.kept,
        shared: older.shared + newer.shared,
        lent: older.lent + newer.lent,
    }
}

/// Merges two pages of notes of one kind that have at most `limit` each, and returns the first `limit`.
pub fn notes(limit: usize, older: Vec<Note>, newer: Vec<Note>) -> Vec<Note> {
    let named = older.into_iter().chain(newer).map(|note| (note.key.clone(), note));
    named.collect::<BTreeMap<Bytes, Note>>().into_values().take(limit).collect()
}

/// Merges two pages of group heads that have at most `limit` each, and returns the first `limit`.
pub fn heads(limit: usize, older: Vec<GroupHead>, newer: Vec<GroupHead>) -> Vec<GroupHead> {
    let mut merged: BTreeMap<Option<GroupName>, GroupHead> = BTreeMap::new();
    for head in older.into_iter().chain(newer) {
        let head = match merged.remove(&head.message.header.group) {
            None => head,
            Some(older) => {
                let is_same = older.message.header.id == head.message.header.id;
                let is_only = is_same && older.is_only && head.is_only;
                let first = if older.message.header.id < head.message.header.id { older } else { head };
                GroupHead { is_only, ..first }
            }
        };
        merged.insert(head.message.header.group.clone(), head);
    }
    merged.into_values().take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::message::{Header, Life, State};
    use angarium_core::time::Timestamp;

    fn message(rank: u8, size: u32, group: Option<&str>) -> Message {
        let (created, expires) = (Timestamp::from_millis(1), Timestamp::from_millis(3_600_001));
        let group = group.map(|name| GroupName::new(name, "group").unwrap());
        let (id, state) = (MessageId::from_bytes([rank; 16]), State::Ready);
        let (life, attempts, client) = (Life::Own { ttl: 3_600, expires }, 0, None);
        // Scheduled messages are due in the reverse order of their ids.
        let ready = Timestamp::from_millis(1_000 - u64::from(rank));
        let (first_claimed, extras) = (None, None);
        let header =
            Header { id, created, ready, life, attempts, client, size, state, group, first_claimed, extras };
        Message { header, body: Bytes::from_static(b"1") }
    }

    fn page(ranks: &[u8], is_last: bool) -> Page {
        Page { messages: ranks.iter().map(|rank| message(*rank, 1, None)).collect(), is_last }
    }

    fn ranks(page: &Page) -> Vec<u8> {
        page.messages.iter().map(|message| message.header.id.as_bytes()[0]).collect()
    }

    #[test]
    fn merged_page_ends_with_the_shorter_and_has_no_duplicates() {
        let merged = pages(Order::Ready, Direction::Up, page(&[1, 3, 5], false), page(&[2, 3, 9], true));
        assert_eq!((ranks(&merged), merged.is_last), (vec![1, 2, 3, 5], false));
        let merged = pages(Order::Aside, Direction::Up, page(&[1, 3], true), page(&[2], true));
        assert_eq!((ranks(&merged), merged.is_last), (vec![1, 2, 3], true));
        let merged = pages(Order::Ready, Direction::Down, page(&[5, 3, 1], true), page(&[9, 4], false));
        assert_eq!((ranks(&merged), merged.is_last), (vec![9, 5, 4], false));
        for order in [Order::Schedule, Order::Kept] {
            let merged = pages(order, Direction::Up, page(&[5, 3], false), page(&[4, 1], true));
            assert_eq!((ranks(&merged), merged.is_last), (vec![5, 4, 3], false));
        }
    }

    #[test]
    fn newer_pool_wins_for_entries_of_both() {
        let newer = |rank| message(rank, 2, None);
        let older = Page { messages: vec![message(1, 1, None), message(2, 1, None)], is_last: true };
        let merged = pages(
            Order::Ready,
            Direction::Up,
            older.clone(),
            Page { messages: vec![newer(2)], is_last: true },
        );
        assert_eq!(merged.messages.iter().map(|message| message.header.size).collect::<Vec<_>>(), [1, 2]);
        let ids = [2, 7, 1].map(|rank| MessageId::from_bytes([rank; 16]));
        let found = found(&ids, older.messages, vec![newer(2)]);
        assert_eq!(found.iter().map(|message| message.header.size).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn merged_group_head_is_the_earlier_one() {
        let head = |rank, group, is_only| GroupHead { message: message(rank, 1, Some(group)), is_only };
        let older = vec![head(2, "a", true), head(3, "b", true), head(5, "c", true)];
        let newer = vec![head(1, "a", true), head(3, "b", true), head(6, "d", false)];
        let merged = heads(3, older, newer);
        let seen: Vec<(u8, bool)> =
            merged.iter().map(|head| (head.message.header.id.as_bytes()[0], head.is_only)).collect();
        assert_eq!(seen, [(1, false), (3, true), (5, true)]);
    }

    #[test]
    fn a_page_of_notes_is_full_while_there_may_be_more() {
        let note = |key: &'static str, value: &'static str| Note {
            kind: 1,
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from_static(value.as_bytes()),
            expires: Timestamp::from_millis(1),
        };
        let merged =
            notes(2, vec![note("b", "old"), note("c", "old")], vec![note("a", "new"), note("b", "new")]);
        assert_eq!(merged, [note("a", "new"), note("b", "new")]);
    }
}
