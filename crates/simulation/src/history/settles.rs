//! Settles of messages. An entry is applied whole or not at all: its message leaves or returns, and its forwards exist
//! exactly when it was applied. A delivery of one of them can show whether an entry in doubt was applied.

use std::time::Duration;

use super::records::{Arrival, Delay, Delete, Removal, longest, shortest};
use super::{Certainty, DEAD_LETTERS, History, PostTerms, Span};

/// The shortest time for which a settle can be repeated with the same answer.
const REPEATABLE: Duration = Duration::from_secs(255);

/// The shortest time for which a message of a run is kept that has a time for that.
const KEPT: Duration = Duration::from_secs(500);

/// The effect of an entry on its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It cannot be claimed any more.
    Removed,
    /// It moves to another queue.
    Moved(usize),
    /// It returns after this many seconds, or moves to the dead letters.
    Returned(u64),
}

/// An entry of a settle.
#[derive(Clone, Debug)]
pub struct SettleTerms {
    /// The queue.
    pub queue: usize,
    /// The claim that holds the message.
    pub claim: String,
    /// The number of the message.
    pub number: u64,
    /// What becomes of it.
    pub effect: Effect,
    /// The numbers of the forwarded messages, each with its queue and its delay.
    pub forwards: Vec<(u64, PostTerms)>,
}

/// The answer for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAnswer {
    /// It was applied, with these ids of its forwards.
    Applied(Vec<String>),
    /// The claim does not hold the message.
    NotHeld,
    /// It was refused, and nothing was written.
    Refused,
    /// It may have been applied, or may be applied later.
    Unknown,
}

/// The history of an entry.
#[derive(Clone, Debug)]
pub(super) struct Settle {
    terms: SettleTerms,
    span: Span,
    certainty: Certainty,
    /// Whether a request with the entry had an unknown outcome.
    is_in_doubt: bool,
    ids: Option<Vec<String>>,
    /// The place of its removal among the deletes of the message.
    delete: Option<usize>,
    /// The place of its arrival among the arrivals of the message.
    arrival: Option<usize>,
}

impl History {
    /// Notes that a settle of a message begins. Returns the number of its entry, for its answers.
    pub fn begin_settle(&mut self, terms: SettleTerms, began: Duration) -> usize {
        let entry = self.settles.len();
        for (number, post) in &terms.forwards {
            self.begin_post(*number, post, began);
            if let Some(message) = self.messages.get_mut(number) {
                message.forwarded_by = Some(entry);
            }
        }
        let (delete, arrival) = self.begin_effect(&terms, began);
        let (certainty, span) = (Certainty::Unknown, Span::open(began));
        self.settles.push(Settle { terms, span, certainty, is_in_doubt: false, ids: None, delete, arrival });
        entry
    }

    fn begin_effect(&mut self, terms: &SettleTerms, began: Duration) -> (Option<usize>, Option<usize>) {
        let removals = match terms.effect {
            Effect::Moved(target) => self.pending_removals(target, began),
            Effect::Removed | Effect::Returned(_) => Vec::new(),
        };
        let Some(message) = self.messages.get_mut(&terms.number) else { return (None, None) };
        for delivery in message.deliveries.iter_mut().filter(|delivery| delivery.claim == terms.claim) {
            delivery.released.get_or_insert(began);
            delivery.is_settled = true;
        }
        let why = match terms.effect {
            Effect::Removed => Removal::Delete,
            Effect::Moved(_) => Removal::Move,
            Effect::Returned(_) => return (None, None),
        };
        message.deletes.push(Delete { may_keep: true, ..Delete::begun(terms.queue, began, why) });
        let delete = Some(message.deletes.len() - 1);
        let Effect::Moved(queue) = terms.effect else { return (delete, None) };
        message.deletes.extend(removals);
        message.arrivals.push(Arrival {
            queue,
            span: Span::open(began),
            certainty: Certainty::Unknown,
            is_new: true,
        });
        (delete, Some(message.arrivals.len() - 1))
    }

    /// Notes an answer for an entry. An entry with an unknown outcome may be repeated, and has another answer then.
    pub fn answer_settle(&mut self, entry: usize, ended: Duration, answer: EntryAnswer) {
        let Some(settle) = self.settles.get(entry).cloned() else { return };
        match answer {
            EntryAnswer::Applied(ids) => self.note_applied(entry, ended, ids),
            EntryAnswer::Unknown => {
                if let Some(settle) = self.settles.get_mut(entry) {
                    settle.is_in_doubt = true;
                }
            }
            EntryAnswer::NotHeld if settle.certainty == Certainty::Done => {
                if self.has_note(&settle, ended) {
                    let number = settle.terms.number;
                    self.violation(format!("the repeated settle of message {number} has another answer"));
                }
            }
            // The claim would have the answer of an attempt that was applied.
            EntryAnswer::NotHeld if settle.is_in_doubt && !self.has_note(&settle, ended) => {}
            EntryAnswer::Refused if settle.is_in_doubt || settle.certainty == Certainty::Done => {}
            EntryAnswer::NotHeld | EntryAnswer::Refused => self.conclude(entry, ended, Certainty::NotDone),
        }
    }

    fn note_applied(&mut self, entry: usize, ended: Duration, ids: Vec<String>) {
        let Some(settle) = self.settles.get_mut(entry) else { return };
        let number = settle.terms.number;
        let was_denied = settle.certainty == Certainty::NotDone;
        let differs = settle.ids.as_ref().is_some_and(|first| *first != ids);
        let forwards: Vec<u64> = settle.terms.forwards.iter().map(|(number, _)| *number).collect();
        settle.ids = Some(ids.clone());
        if was_denied {
            self.violation(format!("message {number} was delivered again, and its settle was applied"));
        }
        if differs {
            self.violation(format!("the repeated settle of message {number} forwards other messages"));
        }
        for (number, id) in forwards.iter().zip(&ids) {
            self.check_id(*number, id);
        }
        if !was_denied {
            self.conclude(entry, ended, Certainty::Done);
        }
    }

    /// Whether an attempt that was applied would still be answered as it was then.
    fn has_note(&self, settle: &Settle, ended: Duration) -> bool {
        let is_removed = self.messages.get(&settle.terms.number).is_some_and(|message| {
            let mut others =
                message.deletes.iter().enumerate().filter(|(place, _)| Some(*place) != settle.delete);
            others.any(|(_, delete)| delete.why == Removal::All && delete.certainty != Certainty::NotDone)
        });
        ended < settle.span.began + REPEATABLE && !is_removed && !self.may_have_lost()
    }

    /// Sets the outcome of an entry, of its message and of its forwards.
    fn conclude(&mut self, entry: usize, ended: Duration, certainty: Certainty) {
        let Some(settle) = self.settles.get_mut(entry) else { return };
        let ended = ended.min(settle.span.ended);
        (settle.certainty, settle.span.ended) = (certainty, ended);
        let (settle, span) = (settle.clone(), settle.span);
        for (number, _) in &settle.terms.forwards {
            self.set_posted(*number, ended, certainty);
            if certainty == Certainty::NotDone {
                self.end_copies(*number, ended, certainty);
            }
        }
        let Some(message) = self.messages.get_mut(&settle.terms.number) else { return };
        if let Some(delete) = settle.delete.and_then(|place| message.deletes.get_mut(place)) {
            (delete.certainty, delete.span.ended) = (certainty, ended);
        }
        if let Some(arrival) = settle.arrival.and_then(|place| message.arrivals.get_mut(place)) {
            (arrival.certainty, arrival.span.ended) = (certainty, ended);
        }
        if certainty != Certainty::Done {
            return;
        }
        let own = message.deliveries.iter_mut().filter(|delivery| delivery.claim == settle.terms.claim);
        own.for_each(|delivery| delivery.over = delivery.over.min(ended));
        // Only an answer states that the message returns by this settle.
        if let Effect::Returned(seconds) = settle.terms.effect
            && seconds > 0
            && settle.ids.is_some()
        {
            let (until, over) = (span.began + shortest(seconds), ended + longest(seconds));
            message.delays.push(Delay { queue: settle.terms.queue, since: ended, until, over });
        }
    }

    /// Concludes entries with an unknown outcome from a delivery: of a forward, of a message at the queue that it was
    /// moved to, or of a message under another claim of the queue that it should have left.
    pub(super) fn learn_from_delivery(&mut self, queue: usize, claim: &str, number: u64, span: Span) {
        if self.may_have_lost() {
            return;
        }
        let forwarding = self.messages.get(&number).and_then(|message| message.forwarded_by);
        let is_unknown = |entry: &usize| {
            self.settles.get(*entry).is_some_and(|settle| settle.certainty == Certainty::Unknown)
        };
        if let Some(entry) = forwarding.filter(is_unknown) {
            self.conclude(entry, span.ended, Certainty::Done);
        }
        let own = |(_, settle): &(usize, &Settle)| {
            settle.terms.number == number && settle.certainty == Certainty::Unknown
        };
        let open: Vec<usize> = self.settles.iter().enumerate().filter(own).map(|(entry, _)| entry).collect();
        for entry in open {
            if self.is_applied(entry, queue, number) {
                self.conclude(entry, span.ended, Certainty::Done);
            } else if self.is_denied(entry, queue, claim, span) {
                self.conclude(entry, span.ended, Certainty::NotDone);
            }
        }
    }

    /// Whether a message can be in a queue only by this entry.
    fn is_applied(&self, entry: usize, queue: usize, number: u64) -> bool {
        let (Some(settle), Some(message)) = (self.settles.get(entry), self.messages.get(&number)) else {
            return false;
        };
        let arrivals = message.arrivals.iter().filter(|arrival| arrival.queue == queue);
        // A queue of dead letters also gets messages by itself.
        settle.terms.effect == Effect::Moved(queue)
            && queue < DEAD_LETTERS
            && message.terms.queue != queue
            && arrivals.count() == 1
    }

    /// Whether another claim got the message at its queue after the claim of this entry, which so has ended before the
    /// entry could be applied.
    fn is_denied(&self, entry: usize, queue: usize, claim: &str, span: Span) -> bool {
        let Some(settle) = self.settles.get(entry) else { return false };
        let Some(message) = self.messages.get(&settle.terms.number) else { return false };
        let held = message.deliveries.iter().find(|delivery| delivery.claim == settle.terms.claim);
        let returns = message
            .arrivals
            .iter()
            .any(|arrival| arrival.queue == queue && arrival.certainty != Certainty::NotDone)
            || message.may_be_requeued();
        settle.terms.queue == queue
            && settle.delete.is_some()
            && settle.terms.claim != claim
            && !returns
            && !self.may_be_stored_again(settle.terms.number)
            && held.is_some_and(|held| span.began >= held.span.ended)
    }

    /// Whether the outcome of a kept message can be read now: its time has not passed, and no other request may have
    /// removed it.
    pub fn is_kept(&self, entry: usize, now: Duration) -> bool {
        let Some(settle) = self.settles.get(entry).filter(|_| !self.may_have_lost()) else { return false };
        let Some(message) = self.messages.get(&settle.terms.number) else { return false };
        let mut removals =
            message.deletes.iter().enumerate().filter(|(place, _)| Some(*place) != settle.delete);
        settle.certainty == Certainty::Done
            && settle.terms.effect == Effect::Removed
            && now < settle.span.began + KEPT
            && !message.may_be_requeued()
            && removals.all(|(_, delete)| delete.certainty == Certainty::NotDone)
    }
}
