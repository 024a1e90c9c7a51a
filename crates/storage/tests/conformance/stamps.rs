//! Whose pool a storage is: the promises of `verify` and of `replace_tenant`.

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

pub async fn tenant_is_replaced_only_as_it_was_read(storage: &mut dyn Storage) {
    let store = storage.open().await;
    store.register(STAMP).await.unwrap();
    assert_eq!(store.tenant().await.unwrap(), None);
    assert!(store.replace_tenant(None, "first one").await.unwrap());
    let Some(kept) = store.tenant().await.unwrap() else {
        // A storage that one process locks keeps none.
        assert!(store.replace_tenant(Some("other"), "second").await.unwrap());
        return;
    };
    assert_eq!(kept, "first one");
    assert!(!store.replace_tenant(None, "second").await.unwrap());
    assert!(!store.replace_tenant(Some("other"), "second").await.unwrap());
    assert_eq!(store.tenant().await.unwrap().as_deref(), Some("first one"));
    assert!(store.replace_tenant(Some("first one"), "second").await.unwrap());
    // As another process finds it.
    assert_eq!(storage.open().await.tenant().await.unwrap().as_deref(), Some("second"));
}
