//! What SQS refuses to do again at once: to purge a queue twice within a minute, and to make one within a minute of its
//! deletion. It is off unless the settings turn it on. The replica that serves a queue remembers it, until it stops.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::fault::{Fault, Kind};
use crate::domain::limits;
use crate::domain::names::QueueRef;
use crate::domain::time::Timestamp;

/// When queues were purged and deleted lately. Each is held for single looks.
#[derive(Debug, Default)]
pub struct Pauses {
    is_kept: bool,
    purged: Mutex<HashMap<QueueRef, Timestamp>>,
    deleted: Mutex<HashMap<QueueRef, Timestamp>>,
}

impl Pauses {
    /// Pauses that are kept.
    pub fn kept() -> Self {
        Self { is_kept: true, ..Self::default() }
    }

    /// Begins a purge, unless one was begun lately.
    pub fn begin_purge(&self, queue: &QueueRef, now: Timestamp) -> Result<(), Fault> {
        if !self.is_kept {
            return Ok(());
        }
        let mut purged = self.purged.lock();
        forget(&mut purged, now);
        if purged.contains_key(queue) {
            let why = format!("Only one PurgeQueue operation on {} is allowed every 60 seconds.", queue.name);
            return Err(Fault::new(Kind::PurgeQueueInProgress, why));
        }
        purged.insert(queue.clone(), now);
        Ok(())
    }

    /// A queue was deleted.
    pub fn note_deletion(&self, queue: &QueueRef, now: Timestamp) {
        if self.is_kept {
            let mut deleted = self.deleted.lock();
            forget(&mut deleted, now);
            deleted.insert(queue.clone(), now);
            self.purged.lock().remove(queue);
        }
    }

    /// Refuses a queue that was deleted lately.
    pub fn check_creation(&self, queue: &QueueRef, now: Timestamp) -> Result<(), Fault> {
        let mut deleted = self.deleted.lock();
        forget(&mut deleted, now);
        if deleted.contains_key(queue) {
            let why = "You must wait 60 seconds after deleting a queue before you can create another with the same name.";
            return Err(Fault::new(Kind::QueueDeletedRecently, why));
        }
        Ok(())
    }
}

/// Forgets what is longer ago.
fn forget(noted: &mut HashMap<QueueRef, Timestamp>, now: Timestamp) {
    noted.retain(|_, at| now < at.plus_seconds(limits::SQS_PAUSE_SECONDS));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::names::{ProjectId, QueueName};

    fn queue() -> QueueRef {
        QueueRef { project: ProjectId::new("p").unwrap(), name: QueueName::new("q").unwrap() }
    }

    #[test]
    fn a_minute_passes_between_two_purges_and_after_a_deletion() {
        let (pauses, now) = (Pauses::kept(), Timestamp::from_millis(5_000));
        assert!(pauses.begin_purge(&queue(), now).is_ok());
        let soon = now.plus_seconds(59);
        assert_eq!(pauses.begin_purge(&queue(), soon).unwrap_err().kind, Kind::PurgeQueueInProgress);
        assert!(pauses.begin_purge(&queue(), now.plus_seconds(60)).is_ok());
        pauses.note_deletion(&queue(), now);
        assert_eq!(pauses.check_creation(&queue(), soon).unwrap_err().kind, Kind::QueueDeletedRecently);
        assert!(pauses.check_creation(&queue(), now.plus_seconds(60)).is_ok());
    }

    #[test]
    fn without_the_setting_nothing_is_refused() {
        let (pauses, now) = (Pauses::default(), Timestamp::from_millis(5_000));
        pauses.note_deletion(&queue(), now);
        assert!(pauses.check_creation(&queue(), now).is_ok());
        assert!((0..2).all(|_| pauses.begin_purge(&queue(), now).is_ok()));
    }
}
