//! What a client sees: connections and their deadlines, and the API over a real socket.

mod auth;
mod bad_requests;
mod balance;
mod batches;
mod bodies;
mod body_budget;
mod body_cost;
mod bounds;
mod bulk;
mod claims;
mod components;
mod config;
mod confirmation;
mod connections;
mod copies;
mod deadlines;
mod defects;
mod delivery_rate;
mod durability;
mod explain;
mod failures;
mod flavors;
mod foreign;
mod groups;
mod h2;
mod h2_memory;
mod health;
mod holds;
mod home;
mod identity_proxy;
mod keystone;
mod late_disk;
mod limits;
mod listing;
mod logs;
mod many_subscriptions;
mod messages;
mod metadata;
mod metrics;
mod migration;
mod outcomes;
mod peek;
mod pool_drain;
mod pool_files;
mod pools;
mod postgres_pools;
mod probes;
mod purge;
mod queue_flavor;
mod queue_list;
mod queues;
mod quotas;
mod redis_pools;
mod requeue;
mod restart;
mod rules;
mod schedule;
mod shapes;
mod shared_holds;
mod start_errors;
mod stored_attributes;
mod subscription_bounds;
mod subscription_queue;
mod subscriptions;
mod tasks;
mod tls;
mod topics;
mod traces;
mod unread;
mod unsent;
mod vanished;
mod webhooks;

use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, ServerBuilder};

/// A service of its own on an empty data directory, which is removed with it.
struct Service {
    client: Client,
    server: Server,
    data: TempDir,
}

fn service() -> Service {
    let data = tempfile::tempdir().expect("there is room for a temporary directory");
    let server = ServerBuilder::new(data.path()).start();
    Service { client: server.client(), server, data }
}
