//! A wire that tests can cut: a proxy on the loopback between a server and its clients, for all of them or for one
//! process.
//!
//! Data that it holds back is delivered later, as in a network.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

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
struct Connection {
    number: usize,
    /// The socket at the client's end, if it was found: the rule for all processes applies to any other.
    socket: Option<String>,
    /// The process that holds it, once a rule has named that process.
    process: OnceLock<u32>,
}

impl Rules {
    fn wire(&self, connection: &Connection) -> Wire {
        let process = connection.process.get().copied().or_else(|| {
            let socket = connection.socket.as_ref()?;
            let found = self.of.keys().copied().find(|process| holds(*process, socket))?;
            // Kept, because data that is held back outlives its process.
            Some(*connection.process.get_or_init(|| found))
        });
        process.and_then(|process| self.of.get(&process)).copied().unwrap_or(self.all)
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
                    let socket = tokio::task::spawn_blocking(move || socket_of(from, address)).await;
                    let (socket, process) = (socket.unwrap_or(None), OnceLock::new());
                    carry(client, server, state, &Connection { number, socket, process }).await;
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

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    rules: watch::Receiver<Rules>,
    connection: &Connection,
) {
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
    connection: &Connection,
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

/// Returns the socket at the client's end of a connection to `server`, as links to it name it. None when the client has
/// closed it. The port alone would not name it, because sockets with other peers may share the port.
fn socket_of(client: SocketAddr, server: SocketAddr) -> Option<String> {
    // The table may lack a row if it changes while it is read.
    const TRIES: usize = 5;
    let (client, server) = (kernel_address(client)?, kernel_address(server)?);
    (0..TRIES).find_map(|_| {
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let mut rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        // The kernel reports inode 0 for a socket without a process.
        let row = rows.find(|row| row[1] == client && row[2] == server && row[9] != "0")?;
        Some(format!("socket:[{}]", row[9]))
    })
}

/// Formats an address as in `/proc/net/tcp`: the address in the byte order of the machine, the port as a number.
fn kernel_address(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
}

/// Returns whether a process holds a socket. A search of all processes would take longer than clients wait.
fn holds(process: u32, socket: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut targets = descriptors.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.any(|target| target.as_os_str() == socket)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that holds this descriptor alone.
    fn holder(descriptor: OwnedFd) -> Child {
        Command::new("sleep").arg("60").stdin(Stdio::from(descriptor)).spawn().unwrap()
    }

    #[test]
    fn client_end_is_found_until_it_closes() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let end = client.local_addr().unwrap();
        assert!(holds(std::process::id(), &socket_of(end, server).unwrap()));
        drop(client);
        assert_eq!(socket_of(end, server), None);
    }

    #[test]
    fn client_end_is_found_beside_another_on_its_port() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let end = client.local_addr().unwrap();
        let other = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), end.port())).unwrap();
        let mut holder = holder(OwnedFd::from(other));
        let socket = socket_of(end, server).unwrap();
        let held = (holds(std::process::id(), &socket), holds(holder.id(), &socket));
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(held, (true, false));
    }
}
