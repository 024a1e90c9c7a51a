//! Whether messages may be stored with the retention of their queue as their lifetime.

use tokio::time::Instant;

use angarium_catalogue::Schema;

use crate::limits;
use crate::messages::Messages;

impl Messages {
    /// Whether messages may be stored as retained: only once every replica knows that form. This is checked at most
    /// once in [`limits::SCHEMA_TRY`].
    pub(crate) async fn may_retain(&self) -> bool {
        if self.0.replica.catalogue.is_in_force(Schema::RETENTION) {
            return true;
        }
        {
            let mut tried = self.0.retention_tried.lock();
            if tried.is_some_and(|tried| tried.elapsed() < limits::SCHEMA_TRY) {
                return false;
            }
            *tried = Some(Instant::now());
        }
        self.0.replica.catalogue.schema_reach(Schema::RETENTION).await.is_ok()
    }
}
