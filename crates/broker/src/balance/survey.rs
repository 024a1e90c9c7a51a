//! The placement of all queues, for administrators: read from the records of the tree. Reading changes nothing.

use angarium_catalogue::{EndedMigration, Placement, QueueRecord};
use angarium_core::error::Error;
use angarium_core::ids::{QueueId, Slot};
use angarium_core::names::QueueRef;

use crate::balance::Balance;
use crate::limits;

/// The placement of queues.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The queues that were read.
    pub queues: Vec<SurveyedQueue>,
    /// Whether these are all queues: at most [`limits::SURVEY_QUEUES`] are read.
    pub is_whole: bool,
}

/// The placement of one queue.
#[derive(Clone, Debug)]
pub struct SurveyedQueue {
    /// Its project and name.
    pub at: QueueRef,
    /// Its incarnation.
    pub id: QueueId,
    /// Its pools.
    pub placement: Placement,
    /// Its last migration that ended.
    pub(crate) migrated: Option<EndedMigration>,
}

impl Balance {
    /// Returns the placement of the queues of all projects.
    pub async fn survey(&self) -> Result<Survey, Error> {
        self.0.replica.catalogue.catch_up().await?;
        self.survey_of(Slot::all()).await
    }

    /// Returns the placement of the queues in `slots`, slot by slot.
    pub(crate) async fn survey_of(&self, slots: impl Iterator<Item = Slot>) -> Result<Survey, Error> {
        let mut survey = Survey { queues: Vec::new(), is_whole: true };
        for slot in slots {
            for project in self.0.replica.catalogue.slot_projects(slot).await? {
                let mut queues = self.0.replica.catalogue.project_queues(slot, &project).await?;
                let room = limits::SURVEY_QUEUES - survey.queues.len();
                survey.is_whole &= queues.len() <= room;
                queues.truncate(room);
                let records = self.0.replica.catalogue.queue_records(&queues).await?;
                for (at, record) in queues.into_iter().zip(records) {
                    // The queue was deleted meanwhile.
                    let Some(record) = record else { continue };
                    let placement = record.placement()?;
                    let QueueRecord { id, migrated, .. } = record;
                    survey.queues.push(SurveyedQueue { at, id, placement, migrated });
                }
            }
        }
        Ok(survey)
    }
}
