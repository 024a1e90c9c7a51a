//! Entries in transfer, grouped by the queues at the other end.

use std::sync::Arc;

use angarium_core::message::{Header, Message, Peer, State};

/// Entries in transfer of one queue.
#[derive(Default)]
pub(crate) struct PeerTransfers {
    /// Messages that leave, by target.
    pub(crate) outgoing: Vec<OutgoingMessages>,
    /// Messages that were prepared here, by source.
    pub(crate) prepared: Vec<PreparedMessages>,
}

/// Messages that leave for one target.
pub(crate) struct OutgoingMessages {
    pub(crate) peer: Arc<Peer>,
    pub(crate) messages: Vec<Message>,
}

/// Headers of messages that were prepared here from one source.
pub(crate) struct PreparedMessages {
    pub(crate) peer: Arc<Peer>,
    pub(crate) headers: Vec<Header>,
}

/// Groups entries in transfer by their peer. Leaves out entries in other states.
pub(crate) fn by_peer(messages: Vec<Message>) -> PeerTransfers {
    let PeerTransfers { mut outgoing, mut prepared } = PeerTransfers::default();
    for message in messages {
        match &message.header.state {
            State::Moving(peer) => {
                let peer = Arc::clone(peer);
                match outgoing.iter_mut().find(|group| group.peer == peer) {
                    Some(group) => group.messages.push(message),
                    None => outgoing.push(OutgoingMessages { peer, messages: vec![message] }),
                }
            }
            State::Prepared(peer) => {
                let peer = Arc::clone(peer);
                match prepared.iter_mut().find(|group| group.peer == peer) {
                    Some(group) => group.headers.push(message.header),
                    None => prepared.push(PreparedMessages { peer, headers: vec![message.header] }),
                }
            }
            State::Ready | State::Scheduled | State::NoTarget | State::Done | State::Failed => {}
        }
    }
    PeerTransfers { outgoing, prepared }
}
