//! The placement of the queues of subscriptions. It is stored once, in the record of their source, so that a migration of
//! the source moves all of them in one commit.
//!
//! The record of a subscription's queue names the pools that its source had when the record was written, and no reader
//! uses them: a record is given its placement when it is read. After the deletion of the source the note of that deletion
//! has the placement, until the last subscription is deleted.

use super::dropped::DroppedRecord;
use super::queues::{MigrationRecord, QueueRecord, stored_placement};
use super::{Catalogue, failed, from_json, layout};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot};
use angarium_core::maps::HashMap;
use angarium_core::names::QueueRef;

/// The pools of a source, as its record or the note of its deletion has them.
struct SourcePlacement {
    placement: Vec<String>,
    migration: Option<MigrationRecord>,
}

/// The record of a subscription's queue, with its source.
struct Follower<'a> {
    slot: Slot,
    at: QueueRef,
    source: QueueId,
    record: &'a mut QueueRecord,
}

impl Catalogue {
    /// Gives the records of subscriptions' queues the placement and the migration of their sources. Costs one read for each
    /// source, and a second one for a source that was deleted.
    pub(super) async fn follow_sources<'a>(
        &self,
        records: impl Iterator<Item = (&'a QueueRef, &'a mut QueueRecord)>,
    ) -> Result<(), Error> {
        let follower = |(at, record): (&'a QueueRef, &'a mut QueueRecord)| {
            let source = record.source()?;
            Some(Follower { slot: at.slot(), at: at.source()?, source, record })
        };
        let followers: Vec<Follower<'a>> = records.filter_map(follower).collect();
        if followers.is_empty() {
            return Ok(());
        }
        let mut placements = self.placements_of_sources(&followers).await?;
        self.add_deleted_sources(&followers, &mut placements).await?;
        for Follower { source, record, .. } in followers {
            // Without any the subscription was deleted meanwhile.
            if let Some(SourcePlacement { placement, migration }) = placements.get(&source) {
                (record.placement, record.migration) = (placement.clone(), *migration);
            }
        }
        Ok(())
    }

    /// As `follow_sources`, for one record.
    pub(super) async fn follow_source(&self, at: &QueueRef, record: &mut QueueRecord) -> Result<(), Error> {
        self.follow_sources(std::iter::once((at, record))).await
    }

    async fn placements_of_sources(
        &self,
        followers: &[Follower<'_>],
    ) -> Result<HashMap<QueueId, SourcePlacement>, Error> {
        let mut paths: Vec<String> =
            followers.iter().map(|follower| layout::queue(follower.slot, &follower.at)).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut placements = HashMap::default();
        for node in self.tree.get_many(&paths).await.map_err(failed)?.iter().flatten() {
            let QueueRecord { id, placement, migration, .. } = from_json(node)?;
            placements.insert(id, SourcePlacement { placement, migration });
        }
        Ok(placements)
    }

    /// Adds the placements of sources that were deleted. A deletion moves a queue from its record to its note in one commit,
    /// so the order of the two reads matters.
    async fn add_deleted_sources(
        &self,
        followers: &[Follower<'_>],
        placements: &mut HashMap<QueueId, SourcePlacement>,
    ) -> Result<(), Error> {
        let deleted = followers.iter().filter(|follower| !placements.contains_key(&follower.source));
        let mut deleted: Vec<(Slot, QueueId)> =
            deleted.map(|follower| (follower.slot, follower.source)).collect();
        deleted.sort_unstable();
        deleted.dedup();
        if deleted.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = deleted.iter().map(|(slot, id)| layout::dropped(*slot, *id)).collect();
        let notes = self.tree.get_many(&paths).await.map_err(failed)?;
        for ((_, id), note) in deleted.into_iter().zip(notes) {
            let Some(note) = note else { continue };
            let DroppedRecord { placement, .. } = from_json(&note)?;
            let placement = stored_placement(placement);
            placements.insert(id, SourcePlacement { placement, migration: None });
        }
        Ok(())
    }
}
