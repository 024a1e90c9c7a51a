//! The sealing of the secrets in the tree: its beginning, the change of its key, and the sealing of values that are in
//! the clear.
//!
//! ```text
//!               all registered replicas have the key                  each secret node, at its version
//! in the clear ──────────────────────────────────────▶ begun ───────────────────────────────────────▶ whole
//!               form 13, /meta/seal: one commit                       then /meta/seal again
//! ```
//!
//! In a whole tree a secret in the clear is refused: only a client of the tree that is no replica has put it there.
//! Such a client cannot write the record of a tree that is not whole.
//!
//! A replica that joins reads `/meta/seal` between the registry and its own commit, which the beginning makes fail. So
//! each replica that is registered after the beginning has opened the data key.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::sealed_tree::{SealedTree, sealed_value};
use super::{Catalogue, Registry, Schema, System, failed, layout, to_json};
use angarium_coordination::{Fence, Node, Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::ids::Slot;
use angarium_core::limits;
use angarium_sealing::{DataKey, KeyRing, SealedDataKey, is_sealed};

/// Max attempts when the registry changes at the same time.
const TRIES: usize = 8;
/// Max names of a directory per read.
const PAGE: usize = 1_000;

/// The record at `/meta/seal`.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct SealRecord(SealedDataKey);

impl SealRecord {
    pub(super) fn read(node: &Node) -> Result<Self, TreeError> {
        serde_json::from_slice(&node.data)
            .map_err(|error| TreeError::Damaged(format!("the node {}: {error}", layout::SEAL)))
    }

    pub(super) fn open(&self, ring: &KeyRing, installation: Uuid) -> Result<DataKey, TreeError> {
        self.0.open(ring, installation).map_err(|error| TreeError::Locked(error.to_string()))
    }

    /// Whether every secret of the tree is sealed, if the record opens.
    pub(super) fn is_whole(&self) -> bool {
        self.0.is_whole
    }
}

/// The error for a sealed tree without a key in the settings.
pub(super) fn no_key(record: &SealRecord) -> TreeError {
    let SealedDataKey { generation, key, .. } = &record.0;
    TreeError::Locked(format!(
        "the secrets in the tree are sealed under the key '{generation}' (id {key}): name the file with this key by \
         --secret-key-file"
    ))
}

/// What became of the data key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKeyChange {
    /// It was made: no value was sealed before.
    Created,
    /// It was sealed under another key of the file before.
    Resealed,
    /// It was sealed under the first key of the file already.
    Unchanged,
}

/// Result of [`Catalogue::seal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedSecrets {
    /// The name of the key in the file.
    pub generation: String,
    /// What became of the data key.
    pub data_key: DataKeyChange,
    /// Number of secret nodes.
    pub nodes: u64,
    /// Number of nodes among them that were in the clear.
    pub sealed: u64,
}

impl Catalogue {
    /// Checks that this process can open the secrets in the tree, if they are sealed.
    ///
    /// # Errors
    ///
    /// The name of the key that is missing.
    pub(super) async fn check_key(&self) -> Result<(), Error> {
        self.tree.unlocked().await.map(drop).map_err(failed)
    }

    /// Checks the key as [`Catalogue::check_key`] before the first use of a tree, and that the record of the data key was
    /// not lost, if a key is named.
    ///
    /// # Errors
    ///
    /// As [`Catalogue::check_key`], and the name of a node with a sealed value when there is no record.
    pub(super) async fn check_key_at_start(&self) -> Result<(), Error> {
        self.check_key().await?;
        if self.tree.keys().is_some() { self.check_record().await } else { Ok(()) }
    }

    /// Returns a warning about secrets in the clear although a key is named.
    pub fn sealing_warning(&self) -> Option<String> {
        self.tree.clear_warning()
    }

    /// Returns the operations that create an installation: its record and, if a key is named, its data key, with the form
    /// of records that this needs.
    pub(super) fn founding(&self, system: &mut System) -> (Vec<Op>, Option<DataKey>) {
        let key = self.tree.keys().map(|ring| (ring, DataKey::generate(system.id)));
        let mut ops = Vec::new();
        if let Some((ring, key)) = &key {
            system.schema = Schema::SEALED_WHOLE.0.max(system.schema);
            ops.push(Op::create(layout::SEAL, to_json(&SealRecord(key.sealed_whole_under(ring)))));
        }
        ops.push(Op::create(layout::SYSTEM, to_json(system)));
        (ops, key.map(|(_, key)| key))
    }

    /// Seals the secrets of the tree under the first key of the file, and calls `sealed` with the path of each node that
    /// was in the clear. Replicas may run, and the call may be interrupted and repeated.
    ///
    /// # Errors
    ///
    /// While a registered replica has not shown that it has the key, and for sealed values without the record of their
    /// data key; then nothing was written. For a sealed value that does not open, and for a tree or file that cannot be
    /// used.
    pub async fn seal(&self, sealed: &mut (dyn FnMut(&str) + Send)) -> Result<SealedSecrets, Error> {
        let unavailable = |why: &str| Error::unavailable(Part::Coordination, why.to_owned());
        let ring = self.tree.keys().ok_or_else(|| unavailable("no key is named"))?;
        let generation = ring.first().generation().to_owned();
        let data_key = self.reach_key(ring).await?;
        let mut done = SealedSecrets { generation, data_key, nodes: 0, sealed: 0 };
        for path in [layout::PEER_SECRET, layout::RECEIPTS] {
            self.seal_node(path, &mut done, sealed).await?;
        }
        self.seal_children(layout::POOLS, &mut done, sealed).await?;
        for slot in Slot::all() {
            let queues = layout::slot_queues(slot);
            for project in self.tree.children(&queues).await.map_err(failed)? {
                self.seal_children(&format!("{queues}/{project}"), &mut done, sealed).await?;
            }
        }
        // Since the beginning no replica writes a secret in the clear.
        self.put_key(ring, true).await?;
        Ok(done)
    }

    /// Has the data key be sealed under the first key of the file.
    async fn reach_key(&self, ring: &KeyRing) -> Result<DataKeyChange, Error> {
        self.put_key(ring, false).await
    }

    /// Has the data key be sealed under the first key of the file, in a tree whose secrets are all sealed if
    /// `is_whole`.
    async fn put_key(&self, ring: &KeyRing, is_whole: bool) -> Result<DataKeyChange, Error> {
        for _ in 0..TRIES {
            let registry = self.registry().await?;
            registry.schema().check_known()?;
            check_replicas(&registry, ring)?;
            let stored = self.tree.stored().get(layout::SEAL).await.map_err(failed)?;
            if stored.is_none() {
                self.check_record().await?;
            }
            let (record, version) = match &stored {
                Some(node) => (Some(SealRecord::read(node).map_err(failed)?), Some(node.version)),
                None => (None, None),
            };
            let was_whole = record.as_ref().is_some_and(SealRecord::is_whole);
            let is_whole = is_whole || was_whole;
            let change = match &record {
                None => DataKeyChange::Created,
                Some(record) if record.0.key == ring.first().id() => DataKeyChange::Unchanged,
                Some(_) => DataKeyChange::Resealed,
            };
            let installation = registry.system().id;
            let key = match &record {
                None => DataKey::generate(installation),
                Some(record) => record.open(ring, installation).map_err(failed)?,
            };
            if change == DataKeyChange::Unchanged && is_whole == was_whole {
                self.tree.unlock(key, is_whole);
                return Ok(change);
            }
            let sealed = if is_whole { key.sealed_whole_under(ring) } else { key.sealed_under(ring) };
            let data = to_json(&SealRecord(sealed));
            let schema = registry.schema().0.max(Schema::SEALED_WHOLE.0);
            let put = match version {
                None => Op::create(layout::SEAL, data),
                Some(_) => Op::Set { path: layout::SEAL.into(), data, version },
            };
            let ops = [registry.replace(&System { schema, ..registry.system().clone() }), put];
            match self.tree.stored().commit(&[], &ops).await {
                Ok(_) => {
                    self.tree.unlock(key, is_whole);
                    return Ok(change);
                }
                Err(TreeError::Refused { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::unavailable(Part::Coordination, "the registry of replicas changes all the time"))
    }

    async fn seal_children(
        &self,
        directory: &str,
        done: &mut SealedSecrets,
        sealed: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Error> {
        let mut after: Option<String> = None;
        loop {
            let names = self.tree.children_behind(directory, after.as_deref(), PAGE).await.map_err(failed)?;
            for name in &names {
                let path = format!("{directory}/{name}");
                if layout::is_secret(&path) {
                    self.seal_node(&path, done, sealed).await?;
                }
            }
            match names.into_iter().nth(PAGE - 1) {
                Some(last) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// Seals the value of a node, if it is in the clear. A node that is gone is none.
    async fn seal_node(
        &self,
        path: &str,
        done: &mut SealedSecrets,
        sealed: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Error> {
        match seal_value(&self.tree, path).await.map_err(failed)? {
            None => {}
            Some(Sealed::Before) => done.nodes += 1,
            Some(Sealed::Now) => {
                done.nodes += 1;
                done.sealed += 1;
                sealed(path);
            }
        }
        Ok(())
    }
}

/// The search for sealed values whose data key was lost.
impl Catalogue {
    /// Checks that no value is sealed while there is no record of the data key. Reads all secret nodes if there is none.
    async fn check_record(&self) -> Result<(), Error> {
        if self.has_record().await? {
            return Ok(());
        }
        let Some(path) = self.sealed_node().await? else { return Ok(()) };
        // A sealing may have begun meanwhile. Its record is older than each sealed value.
        if self.has_record().await? { Ok(()) } else { Err(failed(lost_record(&path))) }
    }

    async fn has_record(&self) -> Result<bool, Error> {
        Ok(self.tree.stored().get(layout::SEAL).await.map_err(failed)?.is_some())
    }

    /// Returns the path of a node with a sealed value; none if there is none.
    async fn sealed_node(&self) -> Result<Option<String>, Error> {
        let single = [layout::PEER_SECRET, layout::RECEIPTS].map(str::to_owned);
        if let Some(path) = self.sealed_among(&single).await? {
            return Ok(Some(path));
        }
        if let Some(path) = self.sealed_child(layout::POOLS).await? {
            return Ok(Some(path));
        }
        for slot in Slot::all() {
            let queues = layout::slot_queues(slot);
            for project in self.tree.children(&queues).await.map_err(failed)? {
                if let Some(path) = self.sealed_child(&format!("{queues}/{project}")).await? {
                    return Ok(Some(path));
                }
            }
        }
        Ok(None)
    }

    async fn sealed_child(&self, directory: &str) -> Result<Option<String>, Error> {
        let mut after: Option<String> = None;
        loop {
            let names = self.tree.children_behind(directory, after.as_deref(), PAGE).await.map_err(failed)?;
            let paths = names.iter().map(|name| format!("{directory}/{name}"));
            let paths: Vec<String> = paths.filter(|path| layout::is_secret(path)).collect();
            if let Some(path) = self.sealed_among(&paths).await? {
                return Ok(Some(path));
            }
            match names.into_iter().nth(PAGE - 1) {
                Some(last) => after = Some(last),
                None => return Ok(None),
            }
        }
    }

    async fn sealed_among(&self, paths: &[String]) -> Result<Option<String>, Error> {
        for paths in paths.chunks(limits::TREE_BATCH_OPS) {
            let nodes = self.tree.stored().get_many(paths).await.map_err(failed)?;
            for (path, node) in paths.iter().zip(nodes) {
                if node.is_some_and(|node| is_sealed(&node.data)) {
                    return Ok(Some(path.clone()));
                }
            }
        }
        Ok(None)
    }
}

fn lost_record(path: &str) -> TreeError {
    TreeError::Damaged(format!(
        "the value of the node {path} is sealed, and the record of its data key, {}, is missing: another client of the \
         tree has deleted it. Restore the tree from a backup or an export",
        layout::SEAL
    ))
}

enum Sealed {
    Before,
    Now,
}

/// Seals the value of a node at the version that was read. The fence refuses the value of an earlier node of the same
/// path: each creation of a pool sets that node, and the id of a subscription is never used again.
async fn seal_value(tree: &SealedTree, path: &str) -> Result<Option<Sealed>, TreeError> {
    loop {
        let system = tree.stored().get(layout::SYSTEM).await?;
        let Some(system) = system else { return Err(TreeError::NotSent("the tree is empty".into())) };
        let Some(node) = tree.stored().get(path).await? else { return Ok(None) };
        if is_sealed(&node.data) {
            return tree.get(path).await.map(|found| found.map(|_| Sealed::Before));
        }
        let Some(key) = tree.unlocked().await? else {
            return Err(TreeError::NotSent("the sealing has not begun".into()));
        };
        let data = sealed_value(key, path, &node.data).map_err(|error| match error {
            TreeError::Bounds(why) => TreeError::Locked(format!("the node {path} cannot be sealed: {why}")),
            error => error,
        })?;
        let same = Fence { path: layout::SYSTEM.into(), version: system.version };
        let set = Op::Set { path: path.to_owned(), data: data.into(), version: Some(node.version) };
        match tree.stored().commit(&[same], &[set]).await {
            Ok(_) => return Ok(Some(Sealed::Now)),
            Err(
                TreeError::Fenced(_) | TreeError::Refused { why: Refusal::BadVersion | Refusal::NoNode, .. },
            ) => tree.sync().await?,
            Err(error) => return Err(error),
        }
    }
}

/// Checks that each registered replica has shown the first key of the file, and knows sealed records.
fn check_replicas(registry: &Registry, ring: &KeyRing) -> Result<(), Error> {
    let key = ring.first();
    for replica in registry.all() {
        let (id, address) = (replica.instance, &replica.address);
        let why = if replica.schema < Schema::SEALED_WHOLE.0 {
            format!("runs version {}, which does not know sealed records: upgrade it", replica.version)
        } else if !replica.secret_keys.iter().any(|id| id == key.id()) {
            format!(
                "started without the key {key}: name a file with this key by --secret-key-file, and restart it"
            )
        } else {
            continue;
        };
        return Err(Error::unavailable(Part::Coordination, format!("replica {id} at {address} {why}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use angarium_core::names::QueueKind;

    use super::*;

    #[test]
    fn secret_nodes_are_pools_keys_and_subscriptions() {
        for path in [
            "/meta/peer-secret",
            "/meta/receipts",
            "/meta/pools/fast",
            "/queues/0f/acme/orders%7e0a",
            "/queues/0f/acme/news%7e%7e0a",
        ] {
            assert!(layout::is_secret(path), "{path}");
        }
        for path in [
            "/meta",
            "/meta/pools",
            "/meta/seal",
            "/meta/system",
            "/meta/flavors/fast",
            "/queues/0f/acme/orders",
            "/queues/0f/acme/news%7e",
            "/queues/0f/a%7eb",
            "/queues/0f/a%7eb/orders",
            "/run/0f/holds/acme:orders%7e0a",
        ] {
            assert!(!layout::is_secret(path), "{path}");
        }
        assert_eq!(layout::kind("orders%7e0a"), QueueKind::Subscription);
    }
}
