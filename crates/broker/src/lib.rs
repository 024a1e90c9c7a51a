//! Queues, messages, claims, pools and migrations: the domain logic of the product. This file is the map of the crate
//! and has no code.
//!
//! [`Broker`] is the facade, with one line for each verb. Each component owns its state and its lock, and holds the
//! components below it that it needs. `start` builds them from the bottom up, so no component can call one above it.
//!
//! | level | component | its job |
//! |---|---|---|
//! | 0 | `replica` | this replica as all components need it: tree, clock, bounds, meter, tasks |
//! | 1 | `stores`, `ledger` | the open storages by pool; the ledger of amounts that accounts hold |
//! | 2 | `writer` | writes to the pools: changes, pending writes, batches |
//! | 3 | `slot` | a slot at its owner: its lock, its open queues, every step under that lock; `QueueHandle` |
//! | 4 | `slots` | the slot table: routing, ownership, recovery, membership |
//! | 5 | `pools` | the pool registry: records, opening and exchange, flavors, choice of a pool |
//! | 6 | `quotas`, `holds`, `backup` | counting and reserving the amounts of accounts; holds of pools and projects; backups |
//! | 7 | `open_queues` | opening, creating and reading the queues of served slots |
//! | 8 | `messages`, `transfer`, `migration`, `counting` | posts, reads and deletes; transfers between queues; changes of a queue's pool; numbers of messages |
//! | 9 | `claims`, `queues`, `explain` | claims and receipts; queues as clients see them; why a claim gets what it gets |
//! | 10 | `redrive`, `balance`, `sweeps`, `health` | tasks that move messages back; drains and balance of pools; expiry and retention; readiness and reach |
//! | 11 | `reports` | pages of metrics, statistics, health |
//! | 12 | `background` | the list of background tasks, and the follow-ups that slots note for the components above |
//! | 13 | `start`, `broker` | construction; the facade |
//!
//! `tests/tidy/tables.rs` enforces this order.
//!
//! # The lock of a slot
//!
//! Engine, slot writers, waiting claims, deadlines and figures of a slot change together, under one lock. Only `slot`
//! takes it: `LockedSlot` has the verbs of one step, `QueueHandle` those of one queue. Components above have the
//! procedures of several durable steps: they wait, and never hold the lock.
//!
//! # Invariants
//!
//! * A slot holds no component from above. It notes work that a component above must do for a queue in a list
//!   (`slot::follow_ups`), which `background` drains.
//! * No change is acknowledged before it is durable, and no unknown outcome is reported as a failure.
//! * A component sees no status code, no header, and no path of the tree.

#![warn(missing_docs)]

mod background;
mod backup;
mod balance;
mod broker;
mod claims;
mod counting;
mod explain;
mod health;
mod holds;
mod ledger;
pub mod limits;
mod messages;
mod migration;
mod open_queues;
mod pools;
mod queues;
mod quotas;
mod redrive;
mod replica;
mod reports;
mod slot;
mod slots;
mod start;
mod stores;
mod subscriptions;
mod sweeps;
mod transfer;
mod webhooks;
mod writer;

pub use angarium_catalogue::{Act, BalanceRecord, ReceiptKeyRotation};
pub use angarium_cluster::peer_client::QueueCounts;
pub use angarium_core::peek_position::{PeekPosition, WrongMarker};
pub use angarium_core::selection::MessageSelection;
pub use angarium_engine::{GroupBlocker, MessageFacts, QueueFacts};
pub use backup::{BackupPool, BackupSource, BackupStream};
pub use balance::automatic::AutomaticBalance;
pub use balance::drain::DrainView;
pub use balance::plan::{BalancePlan, PlannedMove, QueueHolding};
pub use balance::survey::Survey;
pub use broker::Broker;
pub use claims::create::{ClaimView, DeliveryGuard};
pub use claims::list::{ClaimFilter, ClaimPage, ListedClaim};
pub use claims::receipts::{Receive, ReceiveResult, VisibilityResult};
pub use claims::renewal::ClaimStatus;
pub use explain::message::MessageExplanation;
pub use explain::pool_state::PoolState;
pub use explain::queue::{ExplainedCounts, LimitEffect, QueueExplanation, ReachedLimit};
pub use holds::terms::HoldTerms;
pub use ledger::accounts::Quotas;
pub use messages::list::{MessageFilter, MessagePage};
pub use messages::peek::{BodyExtent, PeekFilter, PeekPage, PeekedClaim, PeekedMessage};
pub use messages::posts::PostResults;
pub use messages::send::SendEntry;
pub use messages::view::{MessageStatus, MessageView};
pub use migration::begin::{Destination, MigrationView};
pub use pools::changes::PoolView;
pub use pools::flavors::FlavorView;
pub use pools::health::{PoolHealth, PoolReport};
pub use queues::describe::{QueueDescription, TopicFigures};
pub use queues::list::{QueueFilter, QueuePage, QueueView};
pub use quotas::counting::QuotaView;
pub use redrive::dry_run::SelectionCount;
pub use redrive::tasks::MoveRefusal;
pub use replica::successor::SuccessorProcess;
pub use reports::health::HealthReport;
pub use reports::overview::{PartReport, ReplicaReport, StatsReport};
pub use reports::pool_map::{MappedPool, PoolMap};
pub use slot::backlog::BacklogView;
pub use slot::explain::ClaimRefusal;
pub use slot::post::PostResult;
pub use slot::transfer_targets::TransferTarget;
pub use slots::components::{ClusterView, ComponentView};
pub use slots::table::SlotLocation;
pub use stores::table::{FirstPool, PoolSettings};
pub use subscriptions::confirm::ConfirmationSender;
pub use subscriptions::create::{CreatedSubscription, NewSubscription};
pub use subscriptions::lookup::SubscriptionView;
pub use webhooks::WebhookStatus;
pub use webhooks::sender::{
    ConfirmationTerms, WebhookFailure, WebhookFailureKind, WebhookId, WebhookMessage, WebhookSender,
    WebhookTarget,
};
