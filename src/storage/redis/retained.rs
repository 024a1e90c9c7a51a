//! Entries that live by the retention of their queue, from the earliest base time on: their buckets are looked into, and those
//! found empty go.

use super::RedisPool;
use super::due::Look;
use super::reads::{bytes, list};
use super::stored::Bucket;
use crate::domain::ids::QueueId;
use crate::domain::limits;
use crate::domain::time::Timestamp;
use crate::storage::{Retained, StoreError, retained};

impl RedisPool {
    /// Looks at the entries of a queue.
    pub(super) async fn look_at_retained(
        &self,
        queue: QueueId,
        before: Timestamp,
        limit: usize,
    ) -> Result<Retained, StoreError> {
        let slot = queue.slot();
        let bound = |sign: &[u8], end: u64| [sign, &end.to_be_bytes()[..]].concat();
        let mut first = bound(b"[", retained::place(queue, Timestamp::default()));
        let last = bound(b"(", retained::last(queue).saturating_add(1));
        // The end of a bucket is not in it.
        let past = retained::place(queue, before).saturating_add(1);
        let (mut look, mut oldest, mut looks) = (Look::new(slot, before, limit), None, 0);
        loop {
            let way = self.reads.way().await?;
            let mut ask = redis::cmd("ZRANGEBYLEX");
            ask.arg(way.keys.of_slot(slot, "buckets")).arg(&first).arg(&last);
            ask.arg("LIMIT").arg(0).arg(limits::REDIS_PAGE);
            let members = list(self.reads.ask_one(way, &ask).await?)?;
            let many = members.len();
            for member in members {
                let member = bytes(member)?;
                first = [b"(", &member[..]].concat();
                let (of, bucket) = Bucket::decode(&member)?;
                if of != queue {
                    continue;
                }
                let begin = retained::begin(bucket.end, bucket.ttl);
                looks += 1;
                // Of a bucket whose time has not come it is enough to know that it is not empty.
                let (is_past, found) = (bucket.end <= past, look.found.len());
                let mut head = Look::new(slot, before, 1);
                self.look_into(if is_past { &mut look } else { &mut head }, &member, None, None).await?;
                if look.found.len() > found || !head.found.is_empty() {
                    oldest.get_or_insert(begin);
                }
                if look.is_full() || !head.found.is_empty() || looks >= limits::DUE_BUCKETS {
                    oldest.get_or_insert(begin);
                    return Ok(retained_of(look, oldest));
                }
            }
            if many < limits::REDIS_PAGE {
                return Ok(retained_of(look, oldest));
            }
        }
    }
}

fn retained_of(look: Look, oldest: Option<Timestamp>) -> Retained {
    Retained { found: look.found.into_iter().map(|(_, header)| header).collect(), oldest }
}
