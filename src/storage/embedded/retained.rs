//! Entries that live by the retention of their queue, from the earliest base time on: their buckets are looked into, and those
//! found empty go.

use super::buckets::{Bucket, Ids};
use super::due::{self, Look, Looked};
use crate::domain::ids::QueueId;
use crate::domain::time::Timestamp;
use crate::journal::{Space, View};
use crate::storage::{Due, StoreError, retained};

/// Looks at the entries of a queue. Returns what it found, and no later time than the earliest base time.
pub(super) fn look(
    view: &View,
    queue: QueueId,
    before: Timestamp,
    limit: usize,
) -> Result<(Looked, Option<Timestamp>), StoreError> {
    let prefix = Bucket::prefix(queue.slot(), Due::Expiry);
    let from = retained::place(queue, Timestamp::default()).to_be_bytes();
    let from = [&prefix[..], &from[..]].concat();
    // The end of a bucket is not in it.
    let past = retained::place(queue, before).saturating_add(1);
    let (mut look, mut oldest) = (Look::new(view, before, limit), None);
    for pair in view.scan(Space::Buckets, &prefix, &from) {
        let (bucket, key, value) = due::bucket(pair)?;
        if bucket.end > retained::last(queue) {
            break;
        }
        if bucket.queue != queue {
            continue;
        }
        let begin = retained::begin(bucket.end, bucket.ttl);
        if look.is_spent() {
            oldest.get_or_insert(begin);
            break;
        }
        let (ids, is_past) = (Ids::decode(&value)?, bucket.end <= past);
        // Of a bucket whose time has not come it is enough to know that it is not empty.
        let mut first = Look::new(view, before, 1);
        let into = if is_past { &mut look } else { &mut first };
        let kept = into.into(&bucket, &key, ids.least, ids.greatest)?;
        if let Some(kept) = kept {
            look.narrow(key, value, ids, kept);
        }
        if kept != Some(None) {
            oldest.get_or_insert(begin);
        }
        if kept.is_none() || (kept.flatten().is_some() && !is_past) {
            break;
        }
    }
    Ok((look.looked, oldest))
}
