//! The decisions about copies near the bounds, and the counts of those left out.

use super::*;
use crate::writer::notes::GapPass;

fn amount(messages: u64) -> Amount {
    Amount { messages, bytes: 10 * messages }
}

fn bounds(overflow: Overflow) -> CopyBounds {
    CopyBounds { most: amount(10), overflow }
}

fn found(stored: Amount) -> StoredBacklog {
    StoredBacklog { stored, omissions: OmissionsNote::default(), fill: None, source_keeps: true }
}

fn opened(overflow: Overflow, found: StoredBacklog) -> Backlog {
    Backlog::new(bounds(overflow), found)
}

fn of_queue(overflow: Overflow, stored: u64) -> Backlog {
    opened(overflow, found(amount(stored)))
}

fn of_topic(overflow: Overflow, stored: u64) -> Backlog {
    opened(overflow, StoredBacklog { source_keeps: false, ..found(amount(stored)) })
}

fn left(ids: &[MessageId], copies: Amount) -> LeftOutPost<'_> {
    LeftOutPost { ids, arrived: None, copies }
}

fn id(last: u8) -> MessageId {
    MessageId::from_bytes([last; 16])
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn pending_copies_count_for_the_bounds() {
    let mut backlog = of_queue(Overflow::Suspend, 4);
    assert_eq!(backlog.submit_copies(amount(6)), None);
    assert_eq!(backlog.fate(amount(1)), Fate::LeftOut);
    backlog.bounds = bounds(Overflow::Refuse);
    assert_eq!((backlog.fate(amount(1)), backlog.fate(amount(0))), (Fate::Refused, Fate::Copied));
    backlog.bounds = bounds(Overflow::DropOldest);
    assert_eq!((backlog.fate(amount(1)), backlog.must_drop()), (Fate::Copied, false));
    backlog.submit_copies(amount(1));
    assert!(backlog.must_drop());
    assert_eq!(backlog.excess(), Amount::default(), "none of them is stored");
}

#[test]
fn gap_continues_until_copies_are_made_again() {
    let mut backlog = of_topic(Overflow::Suspend, 10);
    backlog.submit_omission(&left(&[id(1), id(2)], amount(2)), at(5)).unwrap();
    backlog.submit_omission(&left(&[id(3)], amount(1)), at(6)).unwrap();
    let gap = Gap { since: at(5), first: id(1), last: id(3), messages: 3 };
    assert_eq!(backlog.submitted.omissions, Omissions { left_out: 3, dropped: 0, gap: Some(gap) });
    backlog.learn(amount(10));
    assert!(backlog.is_suspended());
    backlog.learn(amount(9));
    assert_eq!((backlog.is_suspended(), backlog.fate(amount(1))), (false, Fate::Copied));
    let note = backlog.submit_copies(amount(1)).unwrap();
    assert!(!OmissionsNote::read(&note).unwrap().is_suspended);
    backlog.submit_omission(&left(&[id(7)], amount(1)), at(9)).unwrap();
    let gap = Gap { since: at(9), first: id(7), last: id(7), messages: 1 };
    assert_eq!(backlog.submitted.omissions, Omissions { left_out: 4, dropped: 0, gap: Some(gap) });
}

#[test]
fn copies_beyond_the_bounds_suspend_and_drop_nothing() {
    for overflow in [Overflow::Suspend, Overflow::DropOldest] {
        let mut backlog = of_queue(overflow, 3);
        assert_eq!(backlog.fate(amount(11)), Fate::LeftOut, "{overflow:?}");
        backlog.submit_omission(&left(&[id(1)], amount(11)), at(5)).unwrap();
        assert!(!backlog.is_suspended && !backlog.submitted.is_suspended, "{overflow:?}");
        assert_eq!(backlog.submitted.omissions.gap.map(|gap| gap.first), Some(id(1)), "{overflow:?}");
    }
}

#[test]
fn new_owner_finds_the_state_of_the_last_one() {
    let suspended = OmissionsNote { is_suspended: true, ..OmissionsNote::default() };
    let is_suspended = |stored, overflow| {
        opened(overflow, StoredBacklog { omissions: suspended, ..found(stored) }).is_suspended()
    };
    assert!(is_suspended(amount(10), Overflow::Suspend));
    assert!(!is_suspended(amount(9), Overflow::Suspend), "there is room again");
    assert!(!is_suspended(amount(10), Overflow::DropOldest));
}

#[test]
fn failed_write_counts_nothing() {
    let mut backlog = of_queue(Overflow::Suspend, 9);
    let note = backlog.submit_omission(&left(&[id(1), id(2)], amount(2)), at(5));
    backlog.settle(&Change::fan_out(Vec::new(), note), false);
    assert!(!backlog.is_suspended());
    assert_eq!(backlog.submitted, OmissionsNote::default());
    let note = backlog.submit_omission(&left(&[id(4)], amount(1)), at(7));
    backlog.settle(&Change::fan_out(Vec::new(), note), true);
    assert_eq!(backlog.view(false).omissions.gap.map(|gap| gap.first), Some(id(4)));
}

#[test]
fn suspension_is_shown_once_its_note_is_durable() {
    let mut backlog = of_queue(Overflow::Suspend, 10);
    let note = backlog.submit_omission(&left(&[id(4)], amount(1)), at(5));
    let shown = |backlog: &Backlog| (backlog.view(false).is_suspended, backlog.view(false).is_filling);
    assert!(backlog.is_suspended(), "posts are left out at once");
    assert_eq!(shown(&backlog), (false, false));
    backlog.settle(&Change::fan_out(Vec::new(), note), true);
    assert_eq!(shown(&backlog), (true, true));
}

#[test]
fn suspension_with_messages_to_copy_lasts() {
    let mut backlog = of_queue(Overflow::Suspend, 10);
    let note = backlog.submit_omission(&left(&[id(4)], amount(1)), at(5));
    assert!(!backlog.may_catch_up(), "it is full");
    backlog.settle(&Change::fan_out(Vec::new(), note.clone()), true);
    backlog.learn(amount(9));
    assert!(backlog.is_suspended() && backlog.may_catch_up());
    assert_eq!(backlog.fate(amount(1)), Fate::LeftOut);
    // One that arrived then is before it by its id alone.
    let arrived = LeftOutPost { ids: &[id(2)], arrived: Some(id(6)), copies: amount(1) };
    backlog.submit_omission(&arrived, at(6)).unwrap();
    let span = GapSpan { from: id(4), last: id(6), lowest: id(2) };
    assert_eq!(backlog.submitted.span, Some(span));
    let omissions = OmissionsNote::read(&note.unwrap()).unwrap();
    for overflow in Overflow::ALL {
        let next = opened(overflow, StoredBacklog { omissions, ..found(amount(0)) });
        assert_eq!(next.is_suspended(), overflow != Overflow::DropOldest, "{overflow:?}");
    }
}

/// As many copies as are far from wide bounds, and more than half of them.
const OVER_HALF: u64 = 600_000;

/// Of so many kilobytes.
fn large(messages: u64) -> Amount {
    Amount { messages, bytes: 1_000 * messages }
}

fn wide(messages: u64) -> CopyBounds {
    CopyBounds { most: large(messages), overflow: Overflow::Refuse }
}

#[test]
fn copies_are_counted_before_a_fill_waits_for_room() {
    let begun = FillProgress { end: id(9), ..FillProgress::NONE };
    let passing = FillProgress { pass: Some(GapPass::NONE), ..begun };
    let ended = FillProgress { after: id(9), ..begun };
    for (fill, stored, is_near) in [
        (Some(begun), OVER_HALF, true),
        (Some(begun), 400_000, false),
        (Some(passing), OVER_HALF, false),
        (Some(ended), OVER_HALF, false),
        (None, OVER_HALF, false),
    ] {
        let backlog = Backlog::new(wide(1_000_000), StoredBacklog { fill, ..found(large(stored)) });
        assert_eq!(backlog.is_near(), is_near, "{fill:?} {stored}");
        assert_eq!(backlog.room_for(&[], None).is_none(), stored == OVER_HALF);
    }
}

#[test]
fn copies_are_counted_again_for_lower_bounds() {
    for (messages, is_uncounted) in [(OVER_HALF, true), (900_000, false)] {
        let mut backlog = Backlog::new(wide(1_000_000), found(large(OVER_HALF)));
        backlog.set_bounds(wide(messages));
        assert_eq!(backlog.is_uncounted(), is_uncounted, "{messages}");
    }
}

#[test]
fn uncounted_copies_are_not_dropped() {
    let mut backlog = of_queue(Overflow::DropOldest, 12);
    assert_eq!(backlog.excess(), amount(2));
    backlog.is_uncounted = true;
    assert_eq!(backlog.excess(), Amount::default());
    backlog.learn(amount(11));
    assert_eq!(backlog.excess(), amount(1));
}
