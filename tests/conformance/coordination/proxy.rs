//! A wire that can be cut: a proxy on the loopback between a tree and its server.
//!
//! What it holds back it delivers later, as a network does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// What the wire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// It carries everything.
    Whole,
    /// It carries requests and holds answers back.
    Deaf,
    /// It carries answers and holds requests back.
    Mute,
    /// It holds everything back.
    Silent,
    /// It holds the requests of connections with smaller numbers back. See [`Proxy::delay_present`].
    Late(usize),
    /// Every connection is closed, and new ones too. What was held back is gone.
    Cut,
}

/// Which way a pipe goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Answers,
}

impl Wire {
    fn carries(self, way: Way, connection: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Deaf => way == Way::Requests,
            Self::Mute => way == Way::Answers,
            Self::Late(first) => way == Way::Answers || connection >= first,
            Self::Silent | Self::Cut => false,
        }
    }
}

/// Dropping it cuts the wire for good.
pub(super) struct Proxy {
    address: SocketAddr,
    wire: watch::Sender<Wire>,
    connections: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Proxy {
    pub(super) async fn start(server: SocketAddr) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (wire, _) = watch::channel(Wire::Whole);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (state, all, stopped) = (wire.clone(), tasks.clone(), stop.clone());
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = state.subscribe();
                let number = counter.fetch_add(1, Ordering::SeqCst);
                all.spawn(stopped.clone().run_until_cancelled_owned(carry(client, server, state, number)));
            }
        }));
        Self { address, wire, connections, _stop: stop.drop_guard() }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }

    /// Holds the requests of all present connections back, and carries those of connections to come.
    pub(super) fn delay_present(&self) {
        self.set(Wire::Late(self.connections.load(Ordering::SeqCst)));
    }
}

async fn carry(client: TcpStream, server: SocketAddr, wire: watch::Receiver<Wire>, number: usize) {
    if *wire.borrow() == Wire::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests = |wire: Wire| wire.carries(Way::Requests, number);
    let answers = |wire: Wire| wire.carries(Way::Answers, number);
    // The client's end ends both; what it sent before is carried first. The server's end waits for that.
    let answering = async {
        pipe(from_server, to_client, wire.clone(), answers).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = pipe(from_client, to_server, wire.clone(), requests) => {}
        () = answering => {}
    }
}

async fn pipe(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut wire: watch::Receiver<Wire>,
    carries: impl Fn(Wire) -> bool,
) {
    let mut bytes = [0; 16 * 1024];
    loop {
        let now = *wire.borrow_and_update();
        if now == Wire::Cut {
            return;
        }
        // What is asked for after the wire was set is carried as it was set.
        tokio::select! {
            biased;
            changed = wire.changed() => if changed.is_err() { return },
            read = from.read(&mut bytes), if carries(now) => {
                let Ok(read @ 1..) = read else { return };
                if to.write_all(&bytes[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
