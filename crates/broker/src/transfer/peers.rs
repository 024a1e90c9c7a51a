//! Entries in transfer, grouped by the queues at the other end.

use std::sync::Arc;

use angarium_core::message::{Header, Message, Peer, State};

type Outgoing = Vec<(Arc<Peer>, Vec<Message>)>;
type Incoming = Vec<(Arc<Peer>, Vec<Header>)>;

/// Entries that are aside: those that move away by their target, those that were prepared by their source. Failed ones
/// are left out.
pub(crate) fn by_peer(messages: Vec<Message>) -> (Outgoing, Incoming) {
    let (mut away, mut here) = (Outgoing::new(), Incoming::new());
    for message in messages {
        match &message.header.state {
            State::Moving(peer) => {
                let peer = Arc::clone(peer);
                match away.iter_mut().find(|(known, _)| *known == peer) {
                    Some((_, messages)) => messages.push(message),
                    None => away.push((peer, vec![message])),
                }
            }
            State::Prepared(peer) => {
                let peer = Arc::clone(peer);
                match here.iter_mut().find(|(known, _)| *known == peer) {
                    Some((_, headers)) => headers.push(message.header),
                    None => here.push((peer, vec![message.header])),
                }
            }
            State::Ready | State::Scheduled | State::Failed => {}
        }
    }
    (away, here)
}
