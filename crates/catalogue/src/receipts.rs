//! The key of the receipts. It is created once per installation, and all replicas share it.

use serde::{Deserialize, Serialize};

use super::{Catalogue, failed, from_json, layout, to_json};
use angarium_coordination::{Op, Refusal, TreeError};
use angarium_core::error::{Error, Part};
use angarium_core::receipt::ReceiptKey;

#[derive(Serialize, Deserialize)]
struct KeyRecord {
    key: [u8; 32],
}

impl Catalogue {
    /// Returns the key of the receipts. Creates it as `fresh` when there is none.
    pub async fn receipt_key(&self, fresh: [u8; 32]) -> Result<ReceiptKey, Error> {
        if let Some(node) = self.node(layout::RECEIPTS).await? {
            return from_json::<KeyRecord>(&node).map(|record| ReceiptKey::new(record.key));
        }
        let op = Op::create(layout::RECEIPTS, to_json(&KeyRecord { key: fresh }));
        match self.tree.commit(&[], &[op]).await {
            Ok(_) | Err(TreeError::Refused { why: Refusal::NodeExists, .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let missing = || Error::unavailable(Part::Coordination, "the key of the receipts is not there");
        let node = self.node(layout::RECEIPTS).await?.ok_or_else(missing)?;
        from_json::<KeyRecord>(&node).map(|record| ReceiptKey::new(record.key))
    }
}
