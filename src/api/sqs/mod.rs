//! The endpoint of Amazon SQS: the same queues as the REST API, for every program that has an AWS SDK.
//!
//! It is on the same port, on `/`, on the URLs of queues and on any path below, beside the routes of REST, which win.
//! Both protocols end in the same requests and answers: `decode` makes the one of what came, `encode` writes the other.
//! Its requests pass the same pipeline as those of REST, for which `endpoint` and `sender` are parser and resolver and
//! `renderer` writes the answers. Which queues a request names is found once, by `resolution`; what is asked of policies, where it is served and what
//! the operation is done with is that value. What an operation means to the product is the broker's to say.

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
