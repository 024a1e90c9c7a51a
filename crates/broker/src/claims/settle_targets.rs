//! Checks of the queues that a settle names, before it begins.
//!
//! They are best effort: another caller may create, change or delete such a queue before the messages reach it. What is
//! accepted waits in transfer then, until the target takes it.

use angarium_catalogue::QueueRecord;
use angarium_core::error::{Error, InvalidPart};
use angarium_core::names::{QueueName, QueueRef};
use angarium_core::queue::Metadata;
use angarium_core::settle::{SettleEntry, Verdict};

use crate::claims::Claims;
use crate::slot::queue_handle::QueueHandle;

/// A queue that a settle names.
struct Target {
    name: QueueName,
    /// Max bytes of its messages; none when it does not exist.
    message_bytes: Option<usize>,
}

impl Claims {
    /// Checks that the queues of a settle may be created, if they do not exist, and that they take messages as long as the
    /// forwarded ones.
    pub(super) async fn check_targets(&self, queue: &QueueHandle, entry: &SettleEntry) -> Result<(), Error> {
        let own = &queue.at().name;
        let mut names: Vec<QueueName> = entry.forwards.iter().map(|forward| forward.target.clone()).collect();
        if let Verdict::Move { target, .. } = &entry.verdict {
            names.push(target.clone());
        }
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        names.dedup();
        let limits = &self.0.replica.limits;
        let mut targets = self.find_targets(queue, names.into_iter().filter(|name| name != own)).await?;
        let mut missing = 0;
        for target in targets.iter().filter(|target| target.message_bytes.is_none()) {
            target.name.check_creatable().map_err(|error| at_field(error, entry, &target.name))?;
            let at = QueueRef { project: queue.at().project.clone(), name: target.name.clone() };
            let checked = self.0.open_queues.check_target(&at, "").await;
            checked.map_err(|error| at_field(error, entry, &target.name))?;
            missing += 1;
        }
        if missing > 0 {
            self.0.quotas.check_queues(&queue.at().project, missing).await?;
        }
        targets.push(Target { name: own.clone(), message_bytes: queue.message_bytes(limits) });
        for (number, forward) in entry.forwards.iter().enumerate() {
            let target = targets.iter().find(|target| target.name == forward.target);
            let most = target.and_then(|target| target.message_bytes).unwrap_or(limits.message_bytes);
            let bytes = forward.bytes();
            if bytes > most {
                let why = format!(
                    "a message of queue {} has at most {most} bytes, and this one has {bytes}",
                    forward.target
                );
                return Err(Error::invalid(InvalidPart::Limit, format!("forward[{number}].body"), why));
            }
        }
        Ok(())
    }

    async fn find_targets(
        &self,
        queue: &QueueHandle,
        names: impl Iterator<Item = QueueName>,
    ) -> Result<Vec<Target>, Error> {
        let at = |name: QueueName| QueueRef { project: queue.at().project.clone(), name };
        let named: Vec<QueueRef> = names.map(at).collect();
        if named.is_empty() {
            return Ok(Vec::new());
        }
        let records = self.0.replica.catalogue.queue_records(&named).await?;
        let limits = &self.0.replica.limits;
        let target = |(at, record): (QueueRef, Option<QueueRecord>)| {
            let metadata = record.map(|record| Metadata::stored(record.metadata)).transpose()?;
            let message_bytes = metadata.map(|metadata| metadata.attributes().message_bytes(limits));
            Ok(Target { name: at.name, message_bytes })
        };
        named.into_iter().zip(records).map(target).collect()
    }
}

/// The error of the name of a queue, at the field of the entry that has it first.
fn at_field(error: Error, entry: &SettleEntry, name: &QueueName) -> Error {
    let Error::Invalid { why, .. } = error else { return error };
    let number = entry.forwards.iter().position(|forward| forward.target == *name);
    let field = number.map_or_else(|| "move.queue".to_owned(), |number| format!("forward[{number}].queue"));
    Error::Invalid { place: InvalidPart::Limit, field, why }
}
