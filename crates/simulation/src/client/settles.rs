//! Settles: a client repeats one whose outcome it does not know.

use std::time::Duration;

use serde_json::Value;

use super::{Client, certainty, numbers_of, terms};
use crate::history::{Certainty, Effect, EntryAnswer, SettleTerms};
use crate::requests::{ApiRequest, Outcome, SettleEntry, Verdict};

/// How often a settle without a certain outcome is sent.
const ATTEMPTS: usize = 3;

/// An entry, with its place in the history and its effect there.
pub struct PlannedEntry {
    /// The entry.
    pub entry: SettleEntry,
    /// Its effect.
    pub effect: Effect,
    /// The queues of its forwards.
    pub targets: Vec<usize>,
}

impl Client {
    /// Settles messages of a claim. Repeats the settle while an outcome is unknown, with the entries that may have been
    /// applied.
    pub async fn settle(&self, queue: usize, claim: &str, planned: Vec<PlannedEntry>) {
        let began = self.world().elapsed();
        let begin = |plan: PlannedEntry| {
            let forwards = plan.entry.forwards.iter().zip(&plan.targets);
            let forwards = forwards.map(|((_, posting), target)| (posting.number, terms(*target, posting)));
            let terms = SettleTerms {
                queue,
                claim: claim.to_owned(),
                number: plan.entry.number,
                effect: plan.effect,
                forwards: forwards.collect(),
            };
            (self.history.lock().begin_settle(terms, began), plan.entry)
        };
        let mut open: Vec<(usize, SettleEntry)> = planned.into_iter().map(begin).collect();
        for (_, SettleEntry { number, verdict, forwards, .. }) in &open {
            let forwards = numbers_of(forwards.iter().map(|(_, posting)| posting));
            self.world().note(|| format!("{} settles {number}: {verdict:?}, forwards {forwards}", self.name));
        }
        for attempt in 1..=ATTEMPTS {
            let entries = open.iter().map(|(_, entry)| entry);
            let outcome = self.send(&ApiRequest::settle(&self.address(queue), claim, entries)).await;
            let ended = self.world().elapsed();
            let mut is_in_doubt = false;
            let mut refused = Vec::new();
            for (place, (number, _)) in open.iter().enumerate() {
                let answer = answer_of(&outcome, place);
                is_in_doubt |= answer == EntryAnswer::Unknown;
                refused.extend((answer == EntryAnswer::Refused && attempt == 1).then_some(*number));
                self.history.lock().answer_settle(*number, ended, answer);
            }
            // What was refused at first is refused for good.
            open.retain(|(number, _)| !refused.contains(number));
            if !is_in_doubt {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.world().below(3_000))).await;
        }
        for (number, entry) in &open {
            if entry.is_kept && matches!(entry.verdict, Verdict::Done) && self.world().below(4) == 0 {
                self.check_outcome(queue, *number, entry).await;
            }
        }
    }

    /// Reads the outcome of a message that is done and kept.
    async fn check_outcome(&self, queue: usize, number: usize, entry: &SettleEntry) {
        if !self.history.lock().is_kept(number, self.world().elapsed()) {
            return;
        }
        let outcome = self.send(&ApiRequest::outcome(&self.address(queue), &entry.id)).await;
        let mut history = self.history.lock();
        let is_right = match &outcome {
            Outcome::Done(body) => body["outcome"]["result"].as_u64() == Some(entry.number),
            Outcome::Missing => false,
            Outcome::Refused(_) | Outcome::Unknown => true,
        };
        // Another request may have removed it meanwhile.
        if !is_right && history.is_kept(number, self.world().elapsed()) {
            history.violation(format!("the outcome of message {} is {outcome:?}", entry.number));
        }
    }
}

fn answer_of(outcome: &Outcome, place: usize) -> EntryAnswer {
    let result = match outcome {
        Outcome::Done(body) => &body["results"][place],
        other if certainty(other) == Certainty::NotDone => return EntryAnswer::Refused,
        _ => return EntryAnswer::Unknown,
    };
    let error = &result["error"];
    match (result["status"].as_u64(), error["nothing_written"].as_bool()) {
        (Some(200), _) => {
            EntryAnswer::Applied(result["ids"].as_array().map(|all| ids(all)).unwrap_or_default())
        }
        (Some(404), Some(true)) => EntryAnswer::NotHeld,
        (_, Some(true)) => EntryAnswer::Refused,
        _ => EntryAnswer::Unknown,
    }
}

fn ids(ids: &[Value]) -> Vec<String> {
    ids.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
