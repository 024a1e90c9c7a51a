//! Newer forms of stored data, which are used once every replica knows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use angarium_catalogue::Schema;

use crate::limits;
use crate::replica::LocalReplica;

/// When each form was last tried. The lock is held for one access.
#[derive(Debug, Default)]
pub(crate) struct TriedForms(Mutex<BTreeMap<Schema, Instant>>);

impl TriedForms {
    /// Whether a form may be tried now. If so, the next time is [`limits::SCHEMA_TRY`] later.
    fn begin(&self, form: Schema) -> bool {
        let mut tried = self.0.lock();
        if tried.get(&form).is_some_and(|tried| tried.elapsed() < limits::SCHEMA_TRY) {
            return false;
        }
        tried.insert(form, Instant::now());
        true
    }
}

impl LocalReplica {
    /// Whether data of a form that can be done without may be stored: only once every replica knows the form. This is
    /// checked at most once in [`limits::SCHEMA_TRY`].
    pub(crate) async fn may_store(&self, form: Schema) -> bool {
        self.catalogue.is_in_force(form)
            || (self.forms.begin(form) && self.catalogue.schema_reach(form).await.is_ok())
    }

    /// Like [`LocalReplica::may_store`], without a wait for the tree: the check is made beside the request.
    pub(crate) fn may_store_now(self: &Arc<Self>, form: Schema) -> bool {
        let may_store = self.catalogue.is_in_force(form);
        if !may_store && self.forms.begin(form) {
            let replica = Arc::clone(self);
            self.tasks.spawn(async move { drop(replica.catalogue.schema_reach(form).await) });
        }
        may_store
    }
}
