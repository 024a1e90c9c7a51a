//! The projects of other regions that have queues in the slots of this replica, by account, so that an account is
//! counted over all its regions. The directory of a slot is read once per recovery of the slot, however many accounts
//! are counted. Only its projects `ACCOUNT@REGION` are kept.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use angarium_core::error::Error;
use angarium_core::ids::Slot as SlotNumber;
use angarium_core::maps::HashMap;
use angarium_core::names::ProjectId;
use angarium_core::region::Accounts;
use angarium_storage::Epoch;

use crate::quotas::QuotaCounts;
use crate::slot::state::Slot;

/// The known projects of each slot. The lock is held for single entries.
#[derive(Default)]
pub(crate) struct RegionalProjects(Mutex<HashMap<SlotNumber, SlotProjects>>);

/// The projects of other regions in a slot.
struct SlotProjects {
    /// The epoch of the slot when its directory was read.
    epoch: Epoch,
    accounts: HashMap<ProjectId, BTreeSet<ProjectId>>,
}

impl RegionalProjects {
    /// Returns the projects of an account in a slot, except the one with the account's own name; none when the slot
    /// must be read first.
    pub(crate) fn of(&self, slot: &Slot, account: &ProjectId) -> Option<Vec<ProjectId>> {
        let known = self.0.lock();
        let projects = known.get(&slot.owned.slot).filter(|projects| projects.epoch == slot.epoch)?;
        Some(projects.accounts.get(account).into_iter().flatten().cloned().collect())
    }

    pub(crate) fn learn(&self, slot: &Slot, projects: Vec<ProjectId>, rule: Accounts) {
        let mut accounts: HashMap<ProjectId, BTreeSet<ProjectId>> = HashMap::default();
        for project in projects {
            let account = rule.of(&project);
            if account != project {
                accounts.entry(account).or_default().insert(project);
            }
        }
        self.0.lock().insert(slot.owned.slot, SlotProjects { epoch: slot.epoch, accounts });
    }

    /// Notes a project that may be about to have its first queue in a slot. The caller holds the slot's `roll`.
    pub(crate) fn note(&self, slot: &Slot, account: ProjectId, project: &ProjectId) {
        if let Some(known) = self.0.lock().get_mut(&slot.owned.slot)
            && known.epoch == slot.epoch
        {
            known.accounts.entry(account).or_default().insert(project.clone());
        }
    }
}

impl QuotaCounts {
    /// Returns the projects of an account that may have queues in a slot. The caller holds the slot's `roll`.
    pub(crate) async fn projects_of(
        &self,
        slot: &Slot,
        account: &ProjectId,
    ) -> Result<Vec<ProjectId>, Error> {
        let mut projects = vec![account.clone()];
        let rule = self.0.ledger.accounts();
        if rule == Accounts::Projects {
            return Ok(projects);
        }
        if self.0.regional_projects.of(slot, account).is_none() {
            let all = self.0.replica.catalogue.slot_projects(slot.owned.slot).await?;
            self.0.slots.check_ours(slot)?;
            self.0.regional_projects.learn(slot, all, rule);
        }
        projects.extend(self.0.regional_projects.of(slot, account).into_iter().flatten());
        Ok(projects)
    }

    /// Returns the projects of an account that may have queues, in the slots of all replicas. For slots of other
    /// replicas it reads the directories.
    pub(crate) async fn projects_of_account(
        &self,
        account: &ProjectId,
    ) -> Result<BTreeSet<ProjectId>, Error> {
        let rule = self.0.ledger.accounts();
        let mut projects = BTreeSet::from([account.clone()]);
        if rule == Accounts::Projects {
            return Ok(projects);
        }
        let own = self.0.slots.own_slots().await?;
        for slot in &own {
            let _roll = slot.roll.lock().await;
            projects.extend(self.projects_of(slot, account).await?);
        }
        for number in SlotNumber::all().filter(|number| own.iter().all(|slot| slot.owned.slot != *number)) {
            let there = self.0.replica.catalogue.slot_projects(number).await?;
            projects.extend(there.into_iter().filter(|project| rule.of(project) == *account));
        }
        Ok(projects)
    }

    /// Returns the slots of this replica in which an account may have queues, and slots of other replicas in which it
    /// has some.
    pub(crate) async fn slots_of_account(&self, account: &ProjectId) -> Result<BTreeSet<SlotNumber>, Error> {
        let mut slots: BTreeSet<SlotNumber> =
            self.0.replica.catalogue.slots_of(account).await?.into_iter().collect();
        if self.0.ledger.accounts() == Accounts::Projects {
            return Ok(slots);
        }
        for slot in self.0.slots.own_slots().await? {
            let _roll = slot.roll.lock().await;
            if self.projects_of(&slot, account).await?.len() > 1 {
                slots.insert(slot.owned.slot);
            }
        }
        Ok(slots)
    }

    /// Returns at most `most` projects `ACCOUNT@REGION` that have, or had, queues. It reads the directories of all
    /// slots.
    pub async fn stored_regional_projects(&self, most: usize) -> Result<BTreeSet<ProjectId>, Error> {
        let mut found = BTreeSet::new();
        for slot in SlotNumber::all() {
            let projects = self.0.replica.catalogue.slot_projects(slot).await?;
            found.extend(projects.into_iter().filter(|project| Accounts::Regions.of(project) != *project));
            if found.len() >= most {
                break;
            }
        }
        Ok(found.into_iter().take(most).collect())
    }

    /// Notes the project of a queue that is about to be created in a slot. The caller holds the slot's `roll`.
    pub(crate) fn note_project(&self, slot: &Slot, project: &ProjectId) {
        let account = self.0.ledger.account_of(project);
        if account != *project {
            self.0.regional_projects.note(slot, account, project);
        }
    }
}
