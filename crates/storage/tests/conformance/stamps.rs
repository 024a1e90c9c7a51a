//! Whose pool a storage is: the promise of `verify`.

use angarium_storage::{Stamp, StoreError};
use uuid::Uuid;

use angarium_testbed::drivers::{STAMP, Storage};

pub async fn storage_is_verified_by_its_stamp(storage: &mut dyn Storage) {
    let store = storage.open().await;
    // Some storages of the tests are registered when they are opened.
    store.register(STAMP).await.unwrap();
    store.verify(STAMP).await.unwrap();
    for other in [Stamp { pool: Uuid::from_u128(9), ..STAMP }, Stamp { system: Uuid::from_u128(9), ..STAMP }]
    {
        let refused = store.verify(other).await;
        assert!(matches!(refused, Err(StoreError::Stamped(found)) if found == STAMP), "{refused:?}");
    }
    // Nor has that stamped the storage.
    store.verify(STAMP).await.unwrap();
}
