//! The admission pipeline: what each request passes before it is served, whatever protocol it speaks, and what becomes
//! of its answer. A file is a step.

pub mod admission;
pub mod bodies;
pub mod credentials;
pub mod deadline;
pub mod failures;
pub mod forward;
pub mod frame;
pub mod identity;
pub mod origin;
pub mod unread;
