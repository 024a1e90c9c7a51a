//! The key of receipts, as this replica has read it last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracing::info;

use angarium_catalogue::ReceiptKeyRotation;
use angarium_core::error::Error;
use angarium_core::limits as core_limits;
use angarium_core::receipt::ReceiptKey;
use angarium_core::time::Timestamp;

use crate::replica::LocalReplica;

/// Seconds for which receipts are made with a record that was read. A key that was written later is used later than
/// that, by as much as clocks of replicas may differ.
const FRESH_SECONDS: u32 = core_limits::RECEIPT_KEY_LEAD_SECONDS / 2;

/// The key of receipts in memory.
#[derive(Default)]
pub(crate) struct ReceiptKeys {
    /// The key that was read last. The lock is held for single reads or writes.
    last: Mutex<Option<ReadKey>>,
    /// Whether the record may have changed since.
    is_changed: AtomicBool,
    /// Held by the one reader of the record.
    reading: tokio::sync::Mutex<()>,
}

/// A key and when it was read.
#[derive(Clone)]
struct ReadKey {
    key: Arc<ReceiptKey>,
    read: Timestamp,
}

impl ReadKey {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now < self.read.plus_seconds(FRESH_SECONDS)
    }
}

impl ReceiptKeys {
    /// Notes that the record may have changed.
    pub(crate) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    fn last(&self) -> Option<ReadKey> {
        self.last.lock().clone()
    }

    /// Returns the key if it is fresh enough to make receipts.
    fn fresh(&self, now: Timestamp) -> Option<Arc<ReceiptKey>> {
        let last = self.last().filter(|last| last.is_fresh(now))?;
        if self.is_changed.load(Ordering::Acquire) { None } else { Some(last.key) }
    }
}

impl LocalReplica {
    /// Returns the key for receipts of receives until now. Reads its record if that was not read lately.
    pub(crate) async fn receipt_key(&self) -> Result<Arc<ReceiptKey>, Error> {
        if let Some(key) = self.receipt_keys.fresh(self.clock.now()) {
            return Ok(key);
        }
        let _reading = self.receipt_keys.reading.lock().await;
        // Another one may have read it meanwhile.
        match self.receipt_keys.fresh(self.clock.now()) {
            Some(key) => Ok(key),
            None => self.read_receipt_key().await,
        }
    }

    /// Returns the key to open these handles. A handle that does not open may have a key that was written after the
    /// last read; deletions do not need the tree otherwise.
    pub(crate) async fn receipt_key_of<'h>(
        &self,
        mut handles: impl Iterator<Item = &'h str>,
    ) -> Result<Arc<ReceiptKey>, Error> {
        let now = self.clock.now();
        let Some(last) = self.receipt_keys.last() else { return self.receipt_key().await };
        if self.receipt_keys.is_changed.load(Ordering::Acquire) {
            return Ok(self.receipt_key().await.unwrap_or(last.key));
        }
        let is_known = last.is_fresh(now) || handles.all(|handle| last.key.open(handle, now).is_some());
        if is_known { Ok(last.key) } else { self.receipt_key().await }
    }

    /// Reads the record of the key, or creates it. The caller holds the lock of the reader.
    async fn read_receipt_key(&self) -> Result<Arc<ReceiptKey>, Error> {
        let keys = &self.receipt_keys;
        keys.is_changed.store(false, Ordering::Release);
        let (read, fresh) = (self.clock.now(), rand::Rng::random(&mut self.random.clone()));
        let reading = async {
            self.catalogue.catch_up().await?;
            self.catalogue.receipt_key(fresh).await
        };
        match reading.await {
            Ok(key) => {
                let key = Arc::new(key);
                *keys.last.lock() = Some(ReadKey { key: Arc::clone(&key), read });
                Ok(key)
            }
            Err(error) => {
                keys.note_change();
                Err(error)
            }
        }
    }

    /// Has another key of receipts follow the present one.
    pub(crate) async fn rotate_receipt_key(&self) -> Result<ReceiptKeyRotation, Error> {
        let fresh = rand::Rng::random(&mut self.random.clone());
        let rotation = self.catalogue.receipt_key_rotate(fresh, self.clock.now()).await?;
        self.receipt_keys.note_change();
        let (since, expires) = (rotation.since.calendar(), rotation.expires.calendar());
        info!(%since, %expires, "key of receipts replaced");
        Ok(rotation)
    }
}
