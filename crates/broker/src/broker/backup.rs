//! Backups.

use std::sync::Arc;

use angarium_core::error::Error;

use crate::backup::{BackupSource, BackupStream};
use crate::broker::Broker;

impl Broker {
    /// Makes backups by `source`. Without this call the service makes none.
    pub fn backups_made_by(&self, source: Arc<dyn BackupSource>) {
        self.0.backups.make_by(source)
    }

    /// Begins a backup of this moment: everything acknowledged before this call is in it.
    pub async fn backup_create(&self) -> Result<BackupStream, Error> {
        self.0.backups.begin().await
    }
}
