//! The text that explains a message: its state, and what must happen before a client can claim it.

use angarium_core::settle::MessageState;
use angarium_core::time::Timestamp;
use angarium_engine::GroupBlocker;

use crate::explain::message::MessageExplanation;
use crate::explain::queue_text::under;
use crate::explain::words::date;

/// Returns the text about a message.
pub(super) fn text(message: &MessageExplanation) -> String {
    let text = match message.view.state {
        MessageState::Ready => ready(message),
        MessageState::Delayed => delayed(message),
        MessageState::Held => withheld(message),
        MessageState::Claimed => claimed(message),
        MessageState::InTransfer => in_transfer(message),
        MessageState::Done | MessageState::Failed => kept(message),
    };
    let is_waiting =
        matches!(message.view.state, MessageState::Ready | MessageState::Delayed | MessageState::Held);
    match message.claim_refusal.as_ref().filter(|_| is_waiting) {
        Some(refusal) => format!("{text}. No message of its queue can be claimed now, because {refusal}."),
        None => format!("{text}."),
    }
}

fn ready(message: &MessageExplanation) -> String {
    if message.facts.is_changing {
        return "It is ready, and a request is claiming, moving or removing it at this moment".to_owned();
    }
    if let Some(hold) = message.group_hold.as_ref().filter(|held| held.bars_claims()) {
        return format!("It is ready, but its group is {}", under(&hold.hold));
    }
    if let Some(text) = used_up(message) {
        return format!("It is ready, but it {text}");
    }
    if let Some(blocker) = message.facts.blocker {
        return format!("It is ready, but {}", behind(blocker));
    }
    if !message.facts.is_order_known {
        return "It is ready, and only a claim shows whether it waits for an earlier message of its group"
            .to_owned();
    }
    if message.facts.is_noisy {
        return "It is ready and can be claimed now, after the messages of groups with fewer messages under claims: \
                its own group has many"
            .to_owned();
    }
    "It is ready and can be claimed now, after older messages".to_owned()
}

/// Returns what the next claim does with a message that was claimed as often as its queue allows.
fn used_up(message: &MessageExplanation) -> Option<String> {
    let attempts = message.view.attempts;
    let target = message.dead_letter_queue.as_ref()?;
    message.facts.max_claims.filter(|most| attempts >= *most)?;
    let times = if attempts == 1 { "once".to_owned() } else { format!("{attempts} times") };
    Some(format!(
        "was claimed {times}, as often as its queue allows: the next claim moves it to queue {target}, and a client can \
         claim it there"
    ))
}

fn behind(blocker: GroupBlocker) -> String {
    let (state, end) = match blocker {
        GroupBlocker::Claimed(_) => ("is claimed", "deleted or given back"),
        GroupBlocker::Delayed(_) => ("is delayed", "ready"),
        GroupBlocker::InTransfer(_) => ("is in transfer to another queue", "gone"),
        GroupBlocker::Changing(_) => ("is being changed", "changed"),
    };
    format!(
        "it follows an earlier message of its group, {}, which {state}: it can be claimed once that one is {end}, and \
         after it if it stays in the queue",
        blocker.id()
    )
}

fn withheld(message: &MessageExplanation) -> String {
    match &message.group_hold {
        Some(held) if held.bars_claims() => {
            format!("A claim has put it aside, because its group is {}", under(&held.hold))
        }
        Some(_) => "The hold of its group has ended: it is about to become ready".to_owned(),
        None => "A hold of its group has put it aside, and the record of that hold is lost: a release of the group makes \
                 it ready"
            .to_owned(),
    }
}

fn delayed(message: &MessageExplanation) -> String {
    let at = message.view.ready;
    if at == Timestamp::NEVER {
        return "It is parked: a client can claim it after a requeue".to_owned();
    }
    if at <= message.now || message.facts.is_changing {
        return "Its delay has ended or is being changed: it is about to become ready".to_owned();
    }
    let group = message.facts.blocker.map(|blocker| format!("; besides, {}", behind(blocker)));
    format!("It is delayed: a client can claim it from {} on{}", date(at), group.unwrap_or_default())
}

fn claimed(message: &MessageExplanation) -> String {
    let facts = &message.facts;
    if facts.is_changing {
        return "It is claimed, and its holder or the end of the claim is changing it at this moment"
            .to_owned();
    }
    let by = facts.holder.as_ref().map(|holder| format!(" by {:?}", holder.to_string())).unwrap_or_default();
    let until = match facts.claim_expires {
        Some(at) if at <= message.now => {
            return format!("It is claimed{by}, but the claim has expired: it is about to become ready");
        }
        Some(at) => format!(" until {}", date(at)),
        None => String::new(),
    };
    let next = match used_up(message) {
        Some(_) => message.dead_letter_queue.as_ref().map(|target| {
            format!("the next claim after that moves it to queue {target}, because this claim is the last that its queue allows")
        }),
        None => Some("then the next claim can get it".to_owned()),
    };
    let next = next.unwrap_or_default();
    format!(
        "It is claimed{by}{until}: its holder deletes it, gives it back, or lets the claim expire, and {next}"
    )
}

fn in_transfer(message: &MessageExplanation) -> String {
    let Some(target) = &message.view.target else {
        return "It was claimed as often as its queue allows, and the queue has no other queue for such messages: it is \
                about to be kept as failed"
            .to_owned();
    };
    let text =
        format!("It is in transfer to queue {target}: a client can claim it there once it has arrived");
    match &message.transfer_refusal {
        Some(why) => format!("{text}. The queue could not take it yet: {why}"),
        None => text,
    }
}

fn kept(message: &MessageExplanation) -> String {
    let state = message.view.state.as_str();
    format!(
        "It is {state} and is kept until {}: no claim gets it unless a requeue makes it ready again",
        date(message.view.expires)
    )
}
