//! Angarium, a durable message queue: the map of the house. There is no code in this file.
//!
//! # Parts
//!
//! | part | its job | what it never does |
//! |---|---|---|
//! | [`api`] | HTTP: routes, extractors, replies, errors, the OpenAPI document; the endpoint of SQS | sees no store, no tree, no lock |
//! | [`broker`] | what the product does: one file per noun, one method per verb | sees no status code, header or path of the tree |
//! | [`engine`] | what a queue does: ready, hidden, claimed; a deterministic core | never waits, reads a clock or rolls dice |
//! | [`catalogue`] | typed records in the tree: queues, pools, slots, claims | decides nothing |
//! | [`cluster`] | which slots are ours, and the numbers that fence out their owners before | does not know what is in a slot |
//! | [`placement`] | chooses one of several, by weight or otherwise; pure | knows no pool and no queue |
//! | [`coordination`] | seam 1: the tree of small versioned nodes, embedded or in ZooKeeper | knows nothing of queues |
//! | [`storage`] | seam 2: pools of messages | knows nothing of claims, visibility or the tree |
//! | [`journal`] | the embedded database under both seams: one committer, one sync for all that waits | knows no meaning of its bytes |
//! | [`keystone`] | asks OpenStack's identity service whose a token is, and remembers the answers for a while | sees no request |
//! | [`domain`] | words and rules: names, ids, messages, claims, limits, times | no I/O, no clock, no async |
//! | [`error`] | the one error of the core: names the situation | knows no HTTP |
//! | [`budget`] | bounds of the memory that clients make us hold, and whom it is taken from | sees no body, never waits |
//! | [`metrics`] | what is counted and measured, and the page that shows it | decides nothing |
//! | [`server`] | the composition root, and the accept loop with its deadlines | holds no product rule |
//! | [`cli`] | the commands, among them the load generator | is not used by any other part |
//! | [`files`] | reads the files that settings and pools name: regular ones, up to a bound | does not know what is in them |
//! | [`units`] | how people write durations and sizes | knows no setting |
//! | [`spelling`] | hints at slips: the name that a misspelt one probably means | |
//! | [`clock`], [`config`], [`telemetry`] | the one reader of clocks; the settings; the logs | |
//!
//! # Layers
//!
//! `cli → server → api → broker → {catalogue, cluster, placement, engine, storage}`, and `api → keystone`; catalogue
//! and cluster lie on coordination; the embedded tree and the embedded pool lie on the journal; everything may use
//! domain and error. `tests/tidy/tables.rs` holds the table of imports.
//!
//! # One request walked through
//!
//! `POST /v2/queues/orders/messages` from socket to disk and back:
//!
//! 1. [`server::listener`] accepted the connection, [`server::tls`] shook hands; [`server::deadline`] watches its bytes. hyper parses the
//!    header, [`server::exchange`] hands the request to `api::front`, whose one service is all that follows.
//! 2. `api::layers` gives it an id, `api::auth` learns who asks (by a token of the file, or of [`keystone`]) and refuses who may not, `api::admission` refuses what is
//!    too much, `api::bodies` charges the bytes of the body as they come, `api::forward` passes on what another replica serves. `api::extract` makes a [`domain::names::QueueRef`] of project and name,
//!    `api::json` reads the body within its bounds; bodies of messages stay text. `api::v2::messages` makes one
//!    call: [`broker::Broker::messages_post`], which keeps room for them within the project's quota (`broker::quotas`).
//! 3. The queue's name gives its [`domain::ids::Slot`]. If the queue is not open, its record is read from the
//!    tree, or it is created in a pool chosen by [`placement`], in one commit fenced by the slot and the record of
//!    the pool; its pool is fenced for the slot; its claims are loaded.
//! 4. Under the slot's lock the messages get ids that only grow, and go onto the slot's slot writer to the pool
//!    (`broker::slot_writer`). If the slot writer is stopped, a task sends the next batch: all that waits, numbered.
//! 5. [`storage::embedded`] encodes the batch and gives it to the [`journal`]. Its committer takes all work that
//!    gathered during the last sync, runs it in order (the batch checks its slot's record, so an owner that was
//!    replaced is refused), writes one batch to the store and calls fdatasync.
//! 6. The slot writer tells the [`engine`], which makes the messages ready, and then every caller whose post was in the
//!    batch. The handler answers 201.
//!
//! A claim takes the same path up to 3; then the engine hides the oldest ready messages, the claim's record is
//! committed to the tree (through the same journal, under the same sync), the engine grants it, and only then is
//! it answered. A delete hides the message, removes it from the pool through the slot writer, and then is answered; the
//! record of a claim without messages is cleared away later.

pub mod api;
pub mod broker;
pub mod budget;
pub mod catalogue;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod coordination;
pub mod domain;
pub mod engine;
pub mod error;
pub mod files;
pub mod journal;
pub mod keystone;
pub mod metrics;
pub mod placement;
pub mod server;
pub mod spelling;
pub mod storage;
pub mod telemetry;
pub mod units;
