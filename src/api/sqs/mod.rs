//! The endpoint of Amazon SQS: the same queues as the REST API, for every program that has an AWS SDK.
//!
//! SQS shares the port with the REST API: it serves `/`, the URLs of queues and other paths; the routes of REST have
//! priority. Both dialects use the same requests and results: `decode` reads requests, `encode` writes answers.
//! Requests use the same pipeline as REST: `endpoint` and `sender` are the parser and the resolver, and `renderer`
//! renders the answers. `resolution` finds the queues of a request once; policies, forwarding and the operation all use
//! its result. The broker defines the effect of each operation.

mod account;
mod arguments;
mod authorization;
mod batch;
mod context;
mod decode;
mod delete;
mod encode;
mod encryption;
mod endpoint;
mod fault;
mod fifo;
mod incoming;
mod lists;
mod message_attributes;
mod move_tasks;
mod operation;
mod page_token;
mod pauses;
mod permissions;
mod policy;
mod queue_attributes;
mod queues;
mod receive;
mod redrive;
mod renderer;
mod resolution;
mod rewrite;
mod send;
mod sender;
mod settings;
mod signature;
mod stored_attributes;
mod tags;
mod visibility;
mod xml;

pub use context::ContextLimits;
pub use decode::Dialect;
pub use endpoint::{Endpoint, SqsCall, check_head};
pub use fault::{Fault, code_of};
pub use incoming::{IncomingRequest, dialect, most_bytes, named_operation};
pub use lists::BoundedList;
pub use operation::{ALL, Operation};
pub use pauses::Pauses;
pub use renderer::SqsRenderer;
pub use sender::ProvenSender;
pub use settings::SqsSettings;
pub use stored_attributes::{check_changes, check_metadata};
