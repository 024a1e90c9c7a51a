//! The reports of a replica about the parts that it does not reach.

use std::sync::atomic::Ordering;
use std::time::Duration;

use angarium_catalogue::UnreachedParts;
use uuid::Uuid;

use super::faulty::LinkOutage;
use super::outcomes::{Faulty, faulty_with};
use super::transfers::until;

const SESSION: Duration = Duration::from_secs(1);

/// The reports of the registered replicas.
async fn reports(faulty: &Faulty) -> Vec<UnreachedParts> {
    let registry = faulty.catalogue.registry().await.unwrap();
    registry.others(Uuid::nil()).filter_map(|component| component.unreached.clone()).collect()
}

/// The registration after a lost session writes the report of that time. Others would pass the replica over for ever.
#[tokio::test(flavor = "multi_thread")]
async fn report_of_a_registration_ends_with_its_cause() {
    let faulty = faulty_with(Some(SESSION)).await;
    faulty.link.lose(LinkOutage::Refused).await;
    faulty.given.is_gone.store(true, Ordering::SeqCst);
    tokio::time::sleep(4 * SESSION).await;
    faulty.given.is_gone.store(false, Ordering::SeqCst);
    tokio::time::sleep(SESSION).await;
    faulty.link.connect();
    until("the report is empty", async || reports(&faulty).await == [UnreachedParts::default()]).await;
    // A report of the time between, if there is one, is corrected too.
    tokio::time::sleep(2 * SESSION).await;
    until("the report is empty", async || reports(&faulty).await == [UnreachedParts::default()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_out_of_reach_is_reported_until_it_answers() {
    let faulty = faulty_with(Some(SESSION)).await;
    faulty.given.is_gone.store(true, Ordering::SeqCst);
    let pools = vec!["default".to_owned()];
    until("the pool is reported", async || {
        reports(&faulty).await.iter().any(|unreached| unreached.pools == pools)
    })
    .await;
    faulty.given.is_gone.store(false, Ordering::SeqCst);
    until("the report is empty", async || reports(&faulty).await == [UnreachedParts::default()]).await;
}
