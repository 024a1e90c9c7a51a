//! Webhooks: one attempt of one delivery. The crate is given an address, a body and secrets, and answers whether the
//! subscriber has accepted the message. It knows no subscription, and never tries again: retries are its caller's.
//!
//! | part | its job |
//! |---|---|
//! | [`url`] | addresses of subscribers, checked when they are made |
//! | [`egress`] | the network addresses that may be reached |
//! | [`signature`] | secrets, and the headers of Standard Webhooks |
//! | [`headers`] | headers of the user, which never replace those of the protocol |
//! | [`delivery`] | a delivery, and its acceptance |
//! | [`error`] | what went wrong |
//! | [`resolver`] | the seam of names: one look-up for each connection |
//! | [`client`] | the attempt: connect, send, read the status |
//!
//! # One delivery walked through
//!
//! 1. [`client::WebhookClient::deliver`] takes an idle connection to the same scheme, host and port, if one is open.
//! 2. Otherwise the name is resolved once. Each of its addresses must pass [`egress::EgressRules`], or nothing is
//!    reached; an address in the URL passes the same check. The connection is made to the addresses that were checked.
//! 3. The request is sent, signed by each secret. The first 1 KiB of the answer is read. A connection with an answer
//!    that ended within it is kept for the next delivery; any other is dropped.
//!
//! # What it never does
//!
//! No redirect is followed, no proxy is asked, no cookie is kept, and no answer is decompressed. An answer costs bounded
//! memory and time, whatever the subscriber sends ([`limits`]). No task is spawned but for look-ups of names: who drops
//! a delivery drops its connection.

mod answer;
pub mod client;
mod connection;
pub mod delivery;
pub mod egress;
pub mod error;
pub mod headers;
mod idle;
pub mod limits;
mod metered;
pub mod resolver;
pub mod signature;
pub mod url;

pub use client::WebhookClient;
pub use delivery::{Accepted, Delivery, DeliveryId};
pub use egress::EgressRules;
pub use error::DeliveryError;
pub use headers::CustomHeaders;
pub use signature::SigningSecret;
pub use url::WebhookUrl;
