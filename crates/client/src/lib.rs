//! The client commands: requests of a person or a script to a server, over HTTP.
//!
//! ```text
//! mod (which command) → queue, topic, subscription, message, claim, pool, flavor, project, quota, component, health, backup, doctor, top (one file
//!                          per noun)
//!                         → caller (flags, context) → context_file
//!                         → remote (one request, one response) → failure (errors, exit codes), tls_words
//!                         → listing (page after page), setting (KEY=VALUE), attributes (checks keys of metadata)
//!                         → printer (table, JSON, plain) → table, screen; progress, notice (standard error)
//! ```
//!
//! This crate uses only the REST API. Of the inner parts of the product it names the keys of attributes, the stores
//! that `doctor` reads, and the form of backups. So it works with any server of this API, including Zaqar.

mod attributes;
mod backup;
mod balance;
mod caller;
mod claim;
mod component;
mod context;
mod context_file;
mod doctor;
mod failure;
mod flavor;
mod health;
mod hold;
mod listing;
mod message;
mod message_filter;
mod migration;
mod notice;
mod pool;
mod pool_drain;
mod printer;
mod progress;
mod project;
mod queue;
mod queue_counts;
mod queue_explain;
mod queue_tasks;
mod quota;
mod receipts;
mod remote;
mod screen;
mod setting;
mod subscription;
mod table;
mod tls_words;
mod top;
mod topic;

use clap::Subcommand;

pub use failure::{EXIT_CODES, Failure};

/// The commands that speak to a server.
#[derive(Subcommand, Clone, Debug)]
pub enum ClientCommand {
    /// Queues and their metadata
    Queue(queue::QueueArgs),
    /// Topics: queues that keep nothing, and copy each message for their subscriptions
    Topic(topic::TopicArgs),
    /// Subscriptions: who gets a copy of each message that is posted to a queue
    Subscription(subscription::SubscriptionArgs),
    /// Messages: post, list, get, delete, pop, consume, settle, requeue
    Message(message::MessageArgs),
    /// Claims: messages that a consumer holds for a time
    Claim(claim::ClaimArgs),
    /// Storage pools (administrators)
    Pool(pool::PoolArgs),
    /// Flavors: names for sets of pools
    Flavor(flavor::FlavorArgs),
    /// Projects: hold and release (administrators)
    Project(project::ProjectArgs),
    /// Show the quota and the usage of the project
    Quota(quota::QuotaArgs),
    /// Show the replicas of the service, and how many of the 256 slots each serves (administrators)
    Components(component::ComponentsArgs),
    /// Hand the queues of a replica over to the others, and wait until it has none (administrators)
    Drain(component::DrainArgs),
    /// Replace the key of SQS receipts while the service runs (administrators)
    RotateReceipts(receipts::RotateReceiptsArgs),
    /// Ask whether a server can be used
    Ping(health::PingArgs),
    /// Show the health of the service and of its pools (administrators)
    Health(health::HealthArgs),
    /// Show queues and replicas live
    Top(top::TopArgs),
    /// Back up a running service on one machine: all queues, claims and messages at one moment (administrators)
    Backup(backup::BackupArgs),
    /// Check a server for faults, and advise how to mend them
    Doctor(doctor::DoctorArgs),
    /// Named servers, with project and token
    Context(context::ContextArgs),
}

/// A function that returns the address of the service started by the settings of this environment, or the error in
/// them.
pub type LocalAddress = fn() -> Result<String, String>;

/// Runs a command.
pub fn run(command: ClientCommand, here: LocalAddress) -> Result<(), Failure> {
    match command {
        ClientCommand::Queue(args) => queue::run(&args),
        ClientCommand::Topic(args) => topic::run(args),
        ClientCommand::Subscription(args) => subscription::run(&args),
        ClientCommand::Message(args) => message::run(&args),
        ClientCommand::Claim(args) => claim::run(&args),
        ClientCommand::Pool(args) => pool::run(&args),
        ClientCommand::Flavor(args) => flavor::run(&args),
        ClientCommand::Project(args) => project::run(&args),
        ClientCommand::Quota(args) => quota::run(&args),
        ClientCommand::Components(args) => component::components(&args),
        ClientCommand::Drain(args) => component::drain(&args),
        ClientCommand::RotateReceipts(args) => receipts::rotate(&args),
        ClientCommand::Ping(args) => health::ping(&args, here),
        ClientCommand::Health(args) => health::health(&args),
        ClientCommand::Top(args) => top::run(&args),
        ClientCommand::Backup(args) => backup::run(&args),
        ClientCommand::Doctor(args) => doctor::run(&args),
        ClientCommand::Context(args) => context::run(args),
    }
}
