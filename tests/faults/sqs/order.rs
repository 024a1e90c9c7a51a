//! Owns the judgement of order: in a FIFO queue no process is handed a message while an earlier one of its group is
//! there, unless that is first in the same receive. It accuses only of what is certain.

use std::collections::HashMap;

use super::load::{FIFO, group};
use crate::faults::history::{Grant, Moment, Outcome, Record, Tag};

/// An acknowledged message of a group.
struct Member<'a> {
    tag: Tag,
    id: &'a str,
    /// When the first delete of it began that may have taken effect.
    gone: Option<Moment>,
}

/// Messages that were handed out before their time.
pub fn overtaken(record: &Record) -> Vec<String> {
    let mut gone: HashMap<&str, Moment> = HashMap::new();
    for delete in record.deletes.iter().filter(|delete| delete.outcome != Outcome::Refused) {
        let first = gone.entry(&delete.id).or_insert(delete.span.start);
        *first = delete.span.start.min(*first);
    }
    let mut groups: HashMap<_, Vec<Member>> = HashMap::new();
    let acked = record.posts.iter().filter(|post| post.queue == FIFO && post.outcome == Outcome::Acked);
    for (tag, id) in acked.flat_map(|post| post.tags.iter().zip(&post.ids)) {
        groups.entry(group(*tag)).or_default().push(Member {
            tag: *tag,
            id,
            gone: gone.get(id.as_str()).copied(),
        });
    }
    groups.values_mut().for_each(|members| members.sort_by_key(|member| member.tag));
    let grants: Vec<&Grant> = record.grants.iter().filter(|grant| grant.queue == FIFO).collect();
    let mut faults = Vec::new();
    for (place, grant) in grants.iter().enumerate() {
        let Some(tag) = grant.messages.first().and_then(|message| message.tag) else { continue };
        let earlier = groups.get(&group(tag)).into_iter().flatten().take_while(|member| member.tag < tag);
        let is_there = |member: &Member| member.gone.is_none_or(|gone| gone > grant.span.end);
        // The messages of a receive follow each other in the record.
        let of_the_same =
            |other: &&&Grant| (other.consumer, other.span.start) == (grant.consumer, grant.span.start);
        let before: Vec<_> = grants[..place].iter().rev().take_while(of_the_same).collect();
        let comes_first =
            |member: &Member| before.iter().any(|grant| grant.messages.iter().any(|m| m.id == member.id));
        for member in earlier.filter(|member| is_there(member) && !comes_first(member)) {
            let (first, id) = (member.tag, member.id);
            faults.push(format!("{tag:?} at {:?} while {first:?} ({id}) is there", grant.span));
        }
    }
    faults
}

/// Deletes that were refused since their receive had ended.
pub fn refused_late(record: &Record) -> usize {
    let ends: HashMap<&str, Moment> = record
        .grants
        .iter()
        .filter(|grant| grant.queue == FIFO)
        .map(|grant| (grant.claim.as_str(), grant.span.start + grant.ttl))
        .collect();
    let refused = record.deletes.iter().filter(|delete| delete.outcome == Outcome::Refused);
    refused
        .filter(|delete| ends.get(delete.claim.as_str()).is_some_and(|end| *end < delete.span.start))
        .count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::faults::history::{Delete, Post, ShownMessage, Span};

    fn at(second: u64) -> Span {
        Span { start: Duration::from_secs(second), end: Duration::from_secs(second + 1) }
    }

    /// Two messages of one group, each granted at these seconds by these consumers, and the first deleted at this one.
    fn record(grants: [(u64, u32); 2], deleted: u64, outcome: Outcome) -> Record {
        let tags = [0, 3].map(|number| Tag { producer: 1, number });
        let ids = ["a", "b"].map(str::to_owned);
        let mut record = Record::default();
        let post = Post {
            queue: FIFO,
            tags: tags.to_vec(),
            span: at(0),
            outcome: Outcome::Acked,
            ids: ids.to_vec(),
        };
        record.posts.push(post);
        for ((second, consumer), (tag, id)) in grants.into_iter().zip(tags.into_iter().zip(&ids)) {
            let messages = vec![ShownMessage { id: id.clone(), tag: Some(tag) }];
            let (ttl, claim) = (Duration::from_secs(5), id.clone());
            record.grants.push(Grant { queue: FIFO, consumer, claim, ttl, span: at(second), messages });
        }
        let [first, _] = ids;
        record.deletes.push(Delete { claim: first.clone(), id: first, span: at(deleted), outcome });
        record
    }

    #[test]
    fn a_message_is_overtaken_while_it_is_there() {
        assert_eq!(overtaken(&record([(10, 1), (12, 1)], 20, Outcome::Acked)).len(), 1);
        assert_eq!(overtaken(&record([(10, 1), (10, 2)], 20, Outcome::Acked)).len(), 1);
        assert_eq!(overtaken(&record([(10, 1), (12, 1)], 11, Outcome::Refused)).len(), 1);
    }

    #[test]
    fn messages_after_in_doubt_delete_are_in_order() {
        assert!(overtaken(&record([(10, 1), (10, 1)], 20, Outcome::Acked)).is_empty());
        assert!(overtaken(&record([(10, 1), (12, 2)], 11, Outcome::Acked)).is_empty());
        assert!(overtaken(&record([(10, 1), (12, 2)], 11, Outcome::Unknown)).is_empty());
    }

    #[test]
    fn a_delete_is_late_when_its_receive_is_over() {
        assert_eq!(refused_late(&record([(10, 1), (10, 1)], 16, Outcome::Refused)), 1);
        assert_eq!(refused_late(&record([(10, 1), (10, 1)], 12, Outcome::Refused)), 0);
        assert_eq!(refused_late(&record([(10, 1), (10, 1)], 16, Outcome::Acked)), 0);
    }
}
