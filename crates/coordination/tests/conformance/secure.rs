//! The closing of an open tree, beside replicas that use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use angarium_coordination::Coordination;
use angarium_coordination::zookeeper::{
    AccessFiles, Address, Protection, SecureError, ZooKeeperTimeouts, ZooKeeperTree,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::access::{Logins, acls, brief, open, open_nodes, patient, raw, root};
use super::support::{Tree, commit, create, create_with, set};
use angarium_testbed::zookeeper::ZooKeeper;

const LOGIN: &str = "digest angarium:secret";
const RAW: &[(&str, &str)] = &[("digest", "angarium:secret")];

async fn bare(address: &Address) -> Tree {
    Arc::new(ZooKeeperTree::open(address.clone(), patient()).await.unwrap())
}

/// An open tree of `/t` with nodes below it, without a session.
async fn open_tree(nodes: usize) -> Address {
    let address = ZooKeeper::shared().fresh_tree();
    let tree = bare(&address).await;
    commit(&tree, &[create("/t")]).await;
    for i in 0..nodes {
        commit(&tree, &[create_with(format!("/t/{i}"), "data")]).await;
    }
    tree.close().await;
    address
}

async fn open_count(address: &Address) -> usize {
    open_nodes(&raw(ZooKeeper::shared(), RAW).await, &root(address), "digest", "angarium:").await.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_tree_is_shared_until_it_is_secured() {
    let (address, logins) = (open_tree(3).await, Logins::new(LOGIN));
    let (with, without) = (open(&address, &logins.files).await, bare(&address).await);
    assert_eq!(with.protection(), Some(Protection::Open));
    assert!(with.warning().unwrap().contains("angarium tree secure"));
    commit(&(Arc::clone(&with) as Tree), &[create("/t/of-with")]).await;
    commit(&without, &[create("/t/of-with/of-without")]).await;
    assert!(with.get("/t/of-with/of-without").await.unwrap().is_some());
    let before = open_count(&address).await;
    let refused = with.secure(&mut |_| {}).await.unwrap_err();
    assert!(matches!(refused, SecureError::Strangers { count: 1, .. }), "{refused}");
    assert_eq!(open_count(&address).await, before, "a refusal closes nothing");
    without.close().await;
    let mut closed = Vec::new();
    let done = with.secure(&mut |path: &str| closed.push(path.to_owned())).await.unwrap();
    assert_eq!(open_count(&address).await, 0);
    assert!(closed.contains(&"/t/of-with/of-without".to_owned()), "{closed:?}");
    assert_eq!((done.closed as usize, done.nodes), (closed.len(), 10), "{closed:?}");
    assert!(done.passes >= 2);
    assert_eq!((with.protection(), with.warning()), (Some(Protection::Closed), None));
    // Now for all nodes that it makes, and for each later session.
    commit(&(Arc::clone(&with) as Tree), &[create("/t/late")]).await;
    let again: Tree = open(&address, &logins.files).await;
    commit(&again, &[create("/t/later")]).await;
    assert_eq!(open_count(&address).await, 0);
    assert!(ZooKeeperTree::open(address.clone(), brief()).await.is_err());
    let nothing = with.secure(&mut |path| panic!("{path} was closed")).await.unwrap();
    assert_eq!(nothing.closed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_without_identity_secures_nothing() {
    let tree = ZooKeeperTree::open(open_tree(1).await, ZooKeeperTimeouts::default()).await.unwrap();
    let refused = tree.secure(&mut |_| {}).await.unwrap_err();
    assert!(matches!(refused, SecureError::NoIdentity), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_closing_continues_after_any_node() {
    let logins = Logins::new(LOGIN);
    for stop_after in 1..=8 {
        let address = open_tree(4).await;
        let replica: Tree = open(&address, &logins.files).await;
        let (killed, count, stop) = (open(&address, &logins.files).await, AtomicUsize::new(0), Notify::new());
        let mut closed = |_: &str| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == stop_after {
                stop.notify_one();
            }
        };
        tokio::select! {
            biased;
            () = stop.notified() => {}
            done = killed.secure(&mut closed) => panic!("{stop_after}: it ended: {done:?}"),
        }
        drop(killed);
        // The replica does not notice.
        commit(&replica, &[create(format!("/t/after-{stop_after}"))]).await;
        assert_eq!(replica.children("/t").await.unwrap().len(), 5);
        let again = open(&address, &logins.files).await;
        // With the first node only the writers' directory is closed.
        assert_eq!(again.is_closed_by_half().await.unwrap(), stop_after > 1);
        again.secure(&mut |_| {}).await.unwrap();
        assert!(!again.is_closed_by_half().await.unwrap());
        assert_eq!(open_count(&address).await, 0, "{stop_after}");
        commit(&replica, &[create("/t/last")]).await;
        assert_eq!(open_count(&address).await, 0, "{stop_after}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_made_between_the_passes_is_closed() {
    let (address, logins) = (open_tree(200).await, Logins::new(LOGIN));
    let replica: Tree = open(&address, &logins.files).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (busy, ended) = (Arc::clone(&replica), Arc::clone(&stop));
    // It creates open nodes until it learns that the tree is closed, which is after the first pass.
    let mut writer = JoinSet::new();
    writer.spawn(async move {
        for i in 0.. {
            if ended.load(Ordering::SeqCst) {
                return i;
            }
            commit(&busy, &[create(format!("/t/new-{i}"))]).await;
        }
        0
    });
    let securer = open(&address, &logins.files).await;
    let mut late = 0;
    let done =
        securer.secure(&mut |path: &str| late += usize::from(path.starts_with("/t/new-"))).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    let made = writer.join_next().await.unwrap().unwrap();
    assert!(late > 0 && made > late, "{late} of {made} were open");
    assert!(done.passes >= 2);
    assert_eq!(open_count(&address).await, 0);
}

/// Any client can make such a node while the tree is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_a_stranger_is_named_and_stops_no_closing() {
    let (address, logins) = (open_tree(100).await, Logins::new(LOGIN));
    let stranger = raw(ZooKeeper::shared(), &[("digest", "stranger:words")]).await;
    let (top, own) = (root(&address), CreateMode::Persistent.with_acls(Acls::creator_all()));
    for path in ["/aaa", "/t/zzz"] {
        stranger.create(&format!("{top}{path}"), b"", &own).await.unwrap();
    }
    let securer = open(&address, &logins.files).await;
    for _ in 0..2 {
        let refused = securer.secure(&mut |_| {}).await.unwrap_err();
        assert!(matches!(refused, SecureError::Foreign { count: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("as /"), "{refused}");
        let all = raw(ZooKeeper::shared(), &[RAW[0], ("digest", "stranger:words")]).await;
        let left = open_nodes(&all, &top, "digest", "angarium:").await;
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(!securer.is_closed_by_half().await.unwrap());
    }
    let admin = raw(ZooKeeper::shared(), RAW).await;
    for path in ["/aaa", "/t/zzz"] {
        admin.delete(&format!("{top}{path}"), None).await.unwrap();
    }
    securer.secure(&mut |_| {}).await.unwrap();
    assert_eq!(open_count(&address).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_is_replaced_in_two_steps() {
    let address = ZooKeeper::shared().fresh_tree();
    let old = open(&address, &Logins::new(LOGIN).files).await;
    commit(&(Arc::clone(&old) as Tree), &[create("/t")]).await;
    let both = Logins::new("digest angarium:fresh\ndigest angarium:secret");
    let replica = open(&address, &both.files).await;
    assert_eq!(replica.protection(), Some(Protection::Closed));
    let replica: Tree = replica;
    old.close().await;
    drop(old);
    // A replica that has the old login alone would lose its nodes, so the new one alone is too early.
    let fresh = Logins::new("digest angarium:fresh");
    assert!(ZooKeeperTree::open_with(address.clone(), fresh.files.clone(), brief()).await.is_err());
    open(&address, &both.files).await.secure(&mut |_| {}).await.unwrap();
    let securer = open(&address, &fresh.files).await;
    // The old login has rights still, and might be that of a stranger.
    assert_eq!(securer.protection(), Some(Protection::Shared));
    assert!(securer.warning().unwrap().contains("another identity has rights"));
    commit(&replica, &[create("/t/a")]).await;
    drop(replica);
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    securer.secure(&mut |_| {}).await.unwrap();
    let stranger = raw(ZooKeeper::shared(), RAW).await;
    assert!(stranger.get_data(&format!("{}/t", root(&address))).await.is_err());
    let admin = raw(ZooKeeper::shared(), &[("digest", "angarium:fresh")]).await;
    let nodes = acls(&admin, &root(&address)).await;
    assert!(nodes.len() > 4 && nodes.iter().all(|(_, acl)| acl.len() == 1), "{nodes:?}");
    assert_eq!(open(&address, &fresh.files).await.protection(), Some(Protection::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_declaration_does_not_count() {
    let (address, logins) = (open_tree(1).await, Logins::new(LOGIN));
    let forger = bare(&address).await;
    commit(&forger, &[set("/run/writers", "closed")]).await;
    forger.close().await;
    let tree = open(&address, &logins.files).await;
    assert_eq!(tree.protection(), Some(Protection::Open));
    tree.secure(&mut |_| {}).await.unwrap();
    assert_eq!((tree.protection(), open_count(&address).await), (Some(Protection::Closed), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_with_nodes_of_others_is_not_new() {
    let (server, logins) = (ZooKeeper::shared(), Logins::new(LOGIN));
    for prepared in ["meta", "run"] {
        let address: Address =
            format!("zookeeper://{}/prepared-{prepared}", server.endpoint()).parse().unwrap();
        let options =
            zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
        let path = format!("/prepared-{prepared}/{prepared}");
        raw(server, &[]).await.mkdir(&path, &options).await.unwrap();
        let tree = open(&address, &logins.files).await;
        assert_eq!(tree.protection(), Some(Protection::Open), "{prepared}");
    }
}

/// An ACL for every client with an IPv4 address, which names no client.
fn any_address() -> Vec<Acl> {
    vec![Acl::new(Permission::ALL, AuthId::new("ip", "0.0.0.0/0"))]
}

/// The ACL of the nodes that a session with this login creates. A login is used once.
async fn own_acl(user: &str, login: &str) -> Vec<Acl> {
    let (client, path) = (raw(ZooKeeper::shared(), &[("digest", login)]).await, format!("/own-acl-{user}"));
    prepare(&client, &path, b"", &Acls::creator_all()).await;
    client.get_acl(&path).await.unwrap().0
}

/// An ACL for the service and for a stranger.
async fn acl_of_both() -> Vec<Acl> {
    [own_acl("service", RAW[0].1).await, own_acl("stranger", "stranger:words").await].concat()
}

/// Creates a node with this ACL, whose parent exists.
async fn prepare(client: &Client, path: &str, data: &[u8], acl: &[Acl]) {
    let options = CreateMode::Persistent.with_acls(Acls::new(acl));
    client.create(path, data, &options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_prepared_for_any_address_is_not_new() {
    let (server, logins, acl) = (ZooKeeper::shared(), Logins::new(LOGIN), any_address());
    let stranger = raw(server, &[]).await;
    for (number, prepared) in
        [&["/run"][..], &["/run", "/run/00"], &["/meta", "/run"]].into_iter().enumerate()
    {
        let top = format!("/any-address-{number}");
        prepare(&stranger, &top, b"", &acl).await;
        for path in prepared {
            prepare(&stranger, &format!("{top}{path}"), b"", &acl).await;
        }
        let address: Address = format!("zookeeper://{}{top}", server.endpoint()).parse().unwrap();
        let tree = open(&address, &logins.files).await;
        assert_eq!(tree.protection(), Some(Protection::Open), "{prepared:?}");
        tree.secure(&mut |_| {}).await.unwrap();
        assert_eq!(
            open(&address, &logins.files).await.protection(),
            Some(Protection::Closed),
            "{prepared:?}"
        );
        assert_eq!(open_count(&address).await, 0, "{prepared:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_prepared_for_two_identities_is_shared() {
    let (server, logins, acl) = (ZooKeeper::shared(), Logins::new(LOGIN), acl_of_both().await);
    assert_eq!(acl.len(), 2);
    let stranger = raw(server, &[("digest", "stranger:words")]).await;
    let nodes: [(&str, &[u8]); 3] = [("", b""), ("/run", b""), ("/run/writers", b"closed")];
    // Only the root, with the directory below it, and a whole declaration.
    for count in 1..=nodes.len() {
        let top = format!("/two-identities-{count}");
        for (path, data) in &nodes[..count] {
            prepare(&stranger, &format!("{top}{path}"), data, &acl).await;
        }
        let address: Address = format!("zookeeper://{}{top}", server.endpoint()).parse().unwrap();
        let tree = open(&address, &logins.files).await;
        assert_eq!(tree.protection(), Some(Protection::Shared), "{count}");
        assert!(tree.warning().unwrap().contains("another identity has rights"), "{count}");
        // Nothing that it creates is open.
        commit(&(Arc::clone(&tree) as Tree), &[create("/t")]).await;
        assert!(stranger.get_data(&format!("{top}/t")).await.is_err(), "{count}");
        tree.secure(&mut |_| {}).await.unwrap();
        assert_eq!(open(&address, &logins.files).await.protection(), Some(Protection::Closed), "{count}");
        assert_eq!(open_count(&address).await, 0, "{count}");
    }
}

/// A stranger prepares the root, and adds a directory when the service has begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_upper_node_of_a_stranger_is_noticed() {
    let (server, logins, acl) = (ZooKeeper::shared(), Logins::new(LOGIN), any_address());
    let (stranger, admin) = (raw(server, &[]).await, raw(server, RAW).await);
    prepare(&stranger, "/late-upper", b"", &acl).await;
    let address: Address = format!("zookeeper://{}/late-upper", server.endpoint()).parse().unwrap();
    let tree = open(&address, &logins.files).await;
    assert_eq!((tree.protection(), open_count(&address).await), (Some(Protection::Closed), 0));
    // As if the root had not been closed in time.
    admin.set_acl("/late-upper", &acl, None).await.unwrap();
    prepare(&stranger, "/late-upper/meta", b"", &acl).await;
    assert_eq!(open(&address, &logins.files).await.protection(), Some(Protection::Shared));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_sessions_close_a_new_tree() {
    let logins = Logins::new(LOGIN);
    for _ in 0..20 {
        let address = ZooKeeper::shared().fresh_tree();
        let (one, other) = tokio::join!(open(&address, &logins.files), open(&address, &logins.files));
        assert_eq!(
            (one.protection(), other.protection()),
            (Some(Protection::Closed), Some(Protection::Closed))
        );
        assert_eq!(open_count(&address).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_made_by_an_operator_is_closed() {
    let (server, logins) = (ZooKeeper::shared(), Logins::new(LOGIN));
    let address: Address = format!("zookeeper://{}/made-by-hand", server.endpoint()).parse().unwrap();
    let options = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    raw(server, &[]).await.create("/made-by-hand", b"", &options).await.unwrap();
    let tree = open(&address, &logins.files).await;
    assert_eq!((tree.protection(), open_count(&address).await), (Some(Protection::Closed), 0));
    let none = AccessFiles::default();
    assert!(ZooKeeperTree::open_with(address, none, brief()).await.is_err());
}
