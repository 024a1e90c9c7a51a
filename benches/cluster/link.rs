//! What mutual TLS between replicas costs a forwarded request: two replicas of which one serves hardly a slot and gets all
//! requests, so that nearly each is forwarded. Clear text is that of older versions: for its rounds the replicas get
//! records without fingerprints, as such a version has, and the secret that these share.

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use zookeeper_client::{Acls, Client as Raw, CreateMode};

use super::forwarded::{Figures, WEIGHT, load, start};
use crate::support::server::Server;
use angarium_testbed::held::wait_until;
use angarium_testbed::redis::{Redis, SYNCED};
use angarium_testbed::zookeeper::ZooKeeper;

/// How the replicas talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    ClearText,
    Tls,
}

/// CPU of a forwarded request in TLS to that in clear text.
pub struct LinkCost {
    /// The middle of the rounds.
    pub median: f64,
    /// The least and the greatest of the rounds.
    pub extent: (f64, f64),
}

#[expect(clippy::print_stdout, reason = "the result is what a benchmark is for")]
pub fn measure(rounds: usize) -> LinkCost {
    let zookeeper = ZooKeeper::start_as_deployed();
    let redis = Redis::start(SYNCED);
    let mut ratios = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let first = if round % 2 == 0 { Link::ClearText } else { Link::Tls };
        let second = if first == Link::Tls { Link::ClearText } else { Link::Tls };
        let both = [first, second].map(|link| {
            let figures = forward(&zookeeper, &redis, round, link);
            let Figures { requests_per_second, microseconds_per_request } = figures;
            println!(
                "round {round}: {requests_per_second:.0} requests/s in {link:?}, \
                 {microseconds_per_request:.0} us of CPU each"
            );
            microseconds_per_request
        });
        ratios.push(if first == Link::Tls { both[0] / both[1] } else { both[1] / both[0] });
    }
    ratios.sort_by(f64::total_cmp);
    LinkCost { median: ratios[rounds / 2], extent: (ratios[0], ratios[rounds - 1]) }
}

fn forward(zookeeper: &ZooKeeper, redis: &Redis, round: usize, link: Link) -> Figures {
    let (tree, dir) = (zookeeper.fresh_tree().to_string(), TempDir::new().expect("a temporary directory"));
    let pool = redis.uri(&format!("prefix=link-{round}-{link:?}"));
    let servers: Vec<Server> =
        (0..2).map(|number| start(&tree, &pool, &dir, number, [WEIGHT, 1][number])).collect();
    let slots = |component: &Value| component["slots"].as_array().map_or(0, Vec::len);
    wait_until("the first one has nearly every slot", || {
        let view = servers[1].client().get("/v2/components").expect("it answers").json();
        let shares: Vec<usize> = view["components"].as_array().into_iter().flatten().map(slots).collect();
        shares.len() == 2 && shares.iter().sum::<usize>() == 256 && shares.iter().any(|share| *share <= 4)
    });
    if link == Link::ClearText {
        make_older(&tree);
    }
    load(&servers, servers[1..].iter())
}

/// Makes the replicas take each other for programs without certificates, which share a secret in the tree.
fn make_older(tree: &str) {
    let rest = tree.strip_prefix("zookeeper://").expect("an address");
    let (servers, root) = rest.split_at(rest.find('/').expect("a root"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Raw::connector().connect(servers).await.expect("a session");
        let directory = format!("{root}/meta/components/replica");
        let mut starting = Value::Null;
        for name in client.list_children(&directory).await.expect("the registry") {
            let path = format!("{directory}/{name}");
            let (data, _) = client.get_data(&path).await.expect("a record");
            let mut record: Value = serde_json::from_slice(&data).expect("it is JSON");
            record.as_object_mut().expect("an object").remove("fingerprints");
            client.set_data(&path, record.to_string().as_bytes(), None).await.expect("it is written");
            record["state"] = "starting".into();
            starting = record;
        }
        // The registry is read when a replica joins it.
        let another = format!("{directory}/another");
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        client.create(&another, starting.to_string().as_bytes(), &options).await.expect("it is new");
        let secret = format!("{root}/meta/peer-secret");
        while client.check_stat(&secret).await.expect("an answer").is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        client.delete(&another, None).await.expect("it is there");
        // The replicas read the secret.
        tokio::time::sleep(Duration::from_secs(2)).await;
    });
}
