//! A wire that tests can cut: a proxy on the loopback between a server and its clients, for all of them or for one
//! process.
//!
//! Data that it holds back is delivered later, as in a network.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The mode of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Transfers everything.
    Whole,
    /// Transfers requests and holds answers back.
    Deaf,
    /// Transfers answers and holds requests back.
    Mute,
    /// Holds everything back.
    Silent,
    /// Holds the requests of connections with smaller numbers back. See [`Proxy::delay_present`].
    Late(usize),
    /// Closes every connection, and new ones too. Data that was held back is lost.
    Cut,
}

/// Direction of a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProxyDirection {
    Requests,
    Answers,
}

impl Wire {
    fn carries(self, direction: ProxyDirection, connection: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Deaf => direction == ProxyDirection::Requests,
            Self::Mute => direction == ProxyDirection::Answers,
            Self::Late(first) => direction == ProxyDirection::Answers || connection >= first,
            Self::Silent | Self::Cut => false,
        }
    }
}

/// The modes of the wire for all processes, and for single ones.
#[derive(Clone)]
struct Rules {
    all: Wire,
    /// By the id of the client process.
    of: HashMap<u32, Wire>,
}

/// A connection, as the rules see it.
#[derive(Clone, Copy)]
struct Connection {
    number: usize,
    /// The process at the client's end, if it is on this machine and visible.
    process: Option<u32>,
}

impl Rules {
    fn wire(&self, connection: Connection) -> Wire {
        connection.process.and_then(|process| self.of.get(&process)).copied().unwrap_or(self.all)
    }
}

/// A proxy. Dropping it cuts the wire for ever.
pub struct Proxy {
    address: SocketAddr,
    rules: watch::Sender<Rules>,
    connections: Arc<AtomicUsize>,
    _stop: DropGuard,
}

impl Proxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (rules, _) = watch::channel(Rules { all: Wire::Whole, of: HashMap::new() });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let (state, all, stopped) = (rules.clone(), tasks.clone(), stop.clone());
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((client, from)) = listener.accept().await {
                let (state, number) = (state.subscribe(), counter.fetch_add(1, Ordering::SeqCst));
                all.spawn(stopped.clone().run_until_cancelled_owned(async move {
                    let process = tokio::task::spawn_blocking(move || process_of(from)).await.unwrap_or(None);
                    carry(client, server, state, Connection { number, process }).await;
                }));
            }
        }));
        Self { address, rules, connections, _stop: stop.drop_guard() }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the mode for all processes.
    pub fn set(&self, wire: Wire) {
        self.rules.send_replace(Rules { all: wire, of: HashMap::new() });
    }

    /// Sets the mode for the connections of one process. [`Proxy::set`] removes it.
    pub fn set_of(&self, process: u32, wire: Wire) {
        self.rules.send_modify(|rules| {
            rules.of.insert(process, wire);
        });
    }

    /// Holds the requests of all present connections back, and transfers those of later connections.
    pub fn delay_present(&self) {
        self.set(Wire::Late(self.connections.load(Ordering::SeqCst)));
    }
}

async fn carry(client: TcpStream, server: SocketAddr, rules: watch::Receiver<Rules>, connection: Connection) {
    if rules.borrow().wire(connection) == Wire::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // When the client closes, both directions end, after its data was transferred. When the server closes, the pipe
    // waits for the client.
    let answering = async {
        pipe(from_server, to_client, rules.clone(), connection, ProxyDirection::Answers).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = pipe(from_client, to_server, rules.clone(), connection, ProxyDirection::Requests) => {}
        () = answering => {}
    }
}

async fn pipe(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut rules: watch::Receiver<Rules>,
    connection: Connection,
    direction: ProxyDirection,
) {
    let mut bytes = [0; 16 * 1024];
    loop {
        let now = rules.borrow_and_update().wire(connection);
        if now == Wire::Cut {
            return;
        }
        // A read that begins after a change of the mode obeys that mode.
        tokio::select! {
            biased;
            changed = rules.changed() => if changed.is_err() { return },
            read = from.read(&mut bytes), if now.carries(direction, connection.number) => {
                let Ok(read @ 1..) = read else { return };
                if to.write_all(&bytes[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The process of this end of a connection, by the tables of the kernel.
fn process_of(end: SocketAddr) -> Option<u32> {
    // An address in that table has the byte order of the machine, the port has not; on the loopback the port is enough.
    let port = format!(":{:04X}", end.port());
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let inode = row.skip(1).find(|row| row[1].ends_with(&port) && row[9] != "0")?[9].to_owned();
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        Some((process, entry.path().join("fd")))
    });
    let holds = |ends: &std::path::Path| {
        let ends = fs::read_dir(ends).into_iter().flatten().flatten();
        ends.filter_map(|end| fs::read_link(end.path()).ok())
            .any(|target| target.as_os_str() == socket.as_str())
    };
    processes.into_iter().find(|(_, ends)| holds(ends)).map(|(process, _)| process)
}

#[test]
fn the_process_at_an_end_is_found() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(process_of(client.local_addr().unwrap()), Some(std::process::id()));
}
