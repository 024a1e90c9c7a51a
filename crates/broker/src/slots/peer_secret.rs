//! The shared secret of replicas without certificates: known while one is registered, and removed from the tree when
//! none forwards requests any more. Only programs of older releases need it.

use tracing::info;

use angarium_catalogue::Registry;
use angarium_core::access::{PeerSecret, new_token};
use angarium_core::error::Error;

use crate::limits;
use crate::slots::Slots;

impl Slots {
    /// Reads the secret if another registered replica has no certificate. If there is none in the tree, creates it, as
    /// it was last: a replica that was registered before has that one in memory.
    pub(in crate::slots) async fn learn_peer_secret(&self, registry: &Registry) -> Result<(), Error> {
        if !registry.has_clear_text(self.0.replica.owner.instance) {
            return Ok(());
        }
        let trust = self.0.membership.trust();
        let fresh = match trust.last_secret() {
            Some(secret) => secret.as_str().to_owned(),
            None => new_token(&mut self.0.replica.random.clone()),
        };
        trust.learn_secret(PeerSecret::new(&self.0.replica.catalogue.peer_secret(&fresh).await?));
        Ok(())
    }

    /// Removes the secret when no replica needs it, until the service stops.
    pub(crate) async fn remove_peer_secret(&self) {
        let replica = &self.0.replica;
        while replica.sleep_tick(limits::PEER_SECRET_LOOK).await {
            if !self.0.membership.trust().has_outlived_clear_text() {
                continue;
            }
            match replica.catalogue.peer_secret_remove(replica.owner.instance).await {
                Ok(true) => info!("shared secret of replicas removed"),
                Ok(false) => {}
                Err(error) => replica.task_failed("remove shared secret", "registry", &error),
            }
        }
    }
}
