//! Angarium, a durable message queue: a map of the code. There is no code in this file.
//!
//! # Crates
//!
//! This package is the program: its API, its commands and its settings. Its inner parts are crates of the workspace,
//! each with its own tests beside it.
//!
//! | crate | its job | what it never does |
//! |---|---|---|
//! | [`angarium_core`] | words and rules: names, ids, messages, claims, limits, times; the one error | no I/O, no clock, no async, no HTTP |
//! | [`angarium_settings`] | how people write settings: durations, sizes, files; hints at slips | knows no setting |
//! | [`angarium_clock`] | the one reader of clocks: tree time | knows no tree |
//! | [`angarium_metrics`] | what is counted and measured, and the page that shows it | decides nothing |
//! | [`angarium_engine`] | what a queue does: ready, hidden, claimed; the choice of a pool or a replica | never waits, reads a clock or owns dice |
//! | `angarium_filter` | filter policies: which messages a subscription accepts | knows no subscription; never waits, reads a clock or owns dice |
//! | `angarium_webhook` | one attempt of one delivery: a signed request to an address that may be reached | knows no subscription; follows no redirect, never tries again |
//! | [`angarium_journal`] | the embedded database under both seams: one committer, one sync for all waiters | knows no meaning of its bytes |
//! | [`angarium_storage`] | seam 1: pools of messages | knows nothing of claims, visibility or the tree |
//! | [`angarium_coordination`] | seam 2: the tree of small versioned nodes, embedded or in ZooKeeper | knows nothing of queues |
//! | `angarium_sealing` | secrets in the tree: keys of a file, the data key, sealed values | knows no tree, and no secret by name |
//! | [`angarium_catalogue`] | typed records in the tree: queues, pools, slots, claims | decides nothing |
//! | [`angarium_cluster`] | which replica serves which slot, and requests between replicas | does not know what is in a slot |
//! | [`angarium_broker`] | what the product does, in components: queues, messages, claims, pools, migrations | sees no status code, header or path of the tree |
//! | [`angarium_backup`] | the form of a backup: written from views of journals, read with every check | knows no queue, no tree, no HTTP |
//! | [`angarium_client`] | the commands that are clients of the REST API | sees no part of the service, but the keys of attributes, the stores that `doctor` reads and the form of backups |
//! | [`angarium_bench`] | the load generator | sees no part of the service |
//! | `angarium_testbed` | private servers and stand-ins of the seams for tests | is in no release |
//!
//! # Parts of the program
//!
//! | part | its job | what it never does |
//! |---|---|---|
//! | [`api`] | HTTP: routes, extractors, replies, errors, the OpenAPI document; the SQS endpoint | sees no store, no tree, no lock |
//! | [`keystone`] | asks OpenStack's identity service about tokens, and remembers the answers for a while | sees no request |
//! | [`budget`] | bounds of the memory that clients take, and the user that must give some back | sees no body, never waits |
//! | [`server`] | the composition root, and the accept loop with its deadlines | holds no product rule |
//! | [`config`], [`telemetry`] | the settings; the logs | |
//! | [`commands`] | the commands of the program | is not used by any other part |
//!
//! # Layers
//!
//! `commands → server → api → broker → {catalogue, cluster, engine, storage}`, and `api → keystone`; catalogue and cluster
//! use coordination, and the catalogue sealing; the embedded tree and the embedded pool use the journal; everything may use core.
//! `tests/tidy/tables.rs` has the table of imports.
//!
//! # One request walked through
//!
//! `POST /v2/queues/orders/messages` from socket to disk and back:
//!
//! 1. [`server::listener`] accepts the connection, [`server::tls`] performs the handshake; [`server::deadline`] watches
//!    its bytes. hyper parses the header, [`server::exchange`] passes the request to `api::front`, whose one service is
//!    the pipeline of both protocols.
//! 2. `api::pipeline` is that pipeline, with a file for each step: `frame` gives the request an id and a span,
//!    `identity` authenticates the caller (by a token of the file, or of [`keystone`]) and checks its role, `admission`
//!    refuses requests above the limits, `bodies` charges the bytes of the body as they arrive, `deadline` bounds the
//!    time, `forward` sends a request to the replica that owns its queue. `protocol` has the methods of the protocols.
//!    A protocol is a parser, a resolver and a renderer: those of REST are in `api::rest`, those of SQS in `api::sqs`,
//!    whose requests are resolved from their bodies (`resolution`).
//!
//!    `api::extract` makes a [`angarium_core::names::QueueRef`] of project and name, `api::json` reads the body within
//!    its bounds; bodies of messages stay text. `api::v2::messages` makes one call:
//!    [`angarium_broker::Broker::messages_post`], which reserves room for them within the project's quota (the broker's
//!    `quotas`).
//! 3. The queue's name gives its [`angarium_core::ids::Slot`]. If the queue is not open, its record is read from the
//!    tree, or it is created in a pool chosen by [`angarium_engine::placement`], in one commit fenced by the slot and
//!    the record of the pool; its pool is fenced for the slot; its claims are loaded.
//! 4. Under the lock of the slot, the messages get increasing ids and are queued for the slot writer, which sends them
//!    to the pool (the broker's `writer`). If the slot writer is idle, a task sends the next batch: all waiting writes,
//!    numbered.
//! 5. [`angarium_storage::embedded`] encodes the batch and gives it to the [`angarium_journal`]. Its committer takes
//!    all batches that were queued during the last sync, runs them in order (each batch checks its slot's record, so a
//!    replaced owner is refused), writes one batch to the store and calls fdatasync.
//! 6. The slot writer tells the [`angarium_engine`], which makes the messages ready, and then answers every caller
//!    whose post was in the batch. The handler answers 201.
//!
//! A claim takes the same path up to step 3. Then the engine hides the oldest ready messages, the claim's record is
//! committed to the tree (through the same journal, under the same sync), the engine grants the claim, and only then
//! the client gets its answer. A delete hides the message, removes it from the pool through the slot writer, and is
//! then answered; the record of a claim without messages is removed later.

pub mod api;
pub mod budget;
pub mod commands;
pub mod config;
pub mod keystone;
pub mod server;
pub mod telemetry;
