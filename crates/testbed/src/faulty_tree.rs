//! A tree in front of another one, whose commits, connection, session and watches fail as planned. Without a plan it
//! keeps every promise of a tree.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use angarium_clock::Clock;
use angarium_coordination::{
    CommitResult, Coordination, Event, Fence, Link, Mailbox, Mode, Node, Op, Refusal, Session, TreeError,
    Watch, numbered,
};
use angarium_core::time::Timestamp;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The fault of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is certainly not sent.
    NotSent,
    /// It is not applied, and its outcome is reported as unknown.
    UnknownBefore,
    /// It is applied, and its outcome is reported as unknown.
    UnknownAfter,
    /// It waits until [`Plan::release`], and is then applied.
    Held,
    /// It waits until [`Plan::release`], and is then not sent.
    HeldAndLost,
    /// The call panics.
    Panic,
    /// It has no fault.
    None,
}

/// The faults of the next commits, one for each; later commits have none.
#[derive(Clone, Default)]
pub struct Plan {
    faults: Arc<Mutex<VecDeque<Fault>>>,
    held: Arc<Notify>,
    is_cut: Arc<AtomicBool>,
}

impl Plan {
    pub fn next(&self, faults: &[Fault]) {
        self.faults.lock().extend(faults);
    }

    /// Plans no more faults.
    pub fn clear(&self) {
        self.faults.lock().clear();
    }

    /// Lets this many commits pass before the planned faults.
    pub fn skip(&self, commits: usize) {
        let mut faults = self.faults.lock();
        (0..commits).for_each(|_| faults.push_front(Fault::None));
    }

    /// Ends the lease of the tree.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// Releases one held commit.
    pub fn release(&self) {
        self.held.notify_one();
    }

    /// Waits for [`Plan::release`].
    pub async fn held(&self) {
        self.held.notified().await;
    }

    pub fn is_done(&self) -> bool {
        self.faults.lock().is_empty()
    }

    /// Number of faults that are left.
    pub fn left(&self) -> usize {
        self.faults.lock().len()
    }

    /// Takes the fault of the next commit.
    pub fn take(&self) -> Fault {
        self.faults.lock().pop_front().unwrap_or(Fault::None)
    }
}

/// Behaviour of a call while there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkOutage {
    /// It is certainly not sent.
    Refused,
    /// It waits until there is a connection.
    Held,
}

/// The manually set clock of servers, and its value at the last write of each node through the trees that share it.
#[derive(Clone)]
pub struct ServersClock {
    pub clock: Clock,
    written: Arc<Mutex<HashMap<String, Timestamp>>>,
}

impl ServersClock {
    pub fn new(millis: u64) -> Self {
        Self { clock: Clock::manual(millis), written: Arc::default() }
    }

    /// From now on the servers have another clock, as after a change of the leader.
    pub fn step_to(&mut self, millis: u64) {
        self.clock = Clock::manual(millis);
    }
}

/// A tree with a plan of faults. Its session is separate: the session of the tree behind it never ends.
pub struct FaultyTree {
    tree: Arc<dyn Coordination>,
    plan: Plan,
    /// Reads of the children of `held_directory` that are held: they are answered after the release.
    pub reads: Plan,
    pub held_directory: Mutex<Option<String>>,
    session: watch::Sender<Session>,
    outage: Mutex<LinkOutage>,
    /// Ephemeral nodes that were created in the session.
    ephemerals: Mutex<BTreeSet<String>>,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    feeders: Mutex<JoinSet<()>>,
    /// If set, replaces the clock of the tree behind it, and makes this one a tree with a clock of its own.
    pub servers: Mutex<Option<ServersClock>>,
    /// If set, the timeout of its sessions; it then counts as a tree of several replicas.
    pub timeout: Mutex<Option<Duration>>,
}

impl FaultyTree {
    pub fn new(tree: Arc<dyn Coordination>, plan: Plan) -> Self {
        let session = watch::Sender::new(*tree.session().borrow());
        Self {
            tree,
            plan,
            reads: Plan::default(),
            held_directory: Mutex::default(),
            session,
            outage: Mutex::new(LinkOutage::Refused),
            ephemerals: Mutex::default(),
            mailboxes: Mutex::default(),
            feeders: Mutex::default(),
            servers: Mutex::default(),
            timeout: Mutex::default(),
        }
    }

    /// Suspends the connection; the session stays.
    pub fn suspend(&self, outage: LinkOutage) {
        *self.outage.lock() = outage;
        self.session.send_modify(|session| session.link = Link::Suspended);
    }

    /// Ends the session and removes its ephemeral nodes.
    pub async fn lose(&self, outage: LinkOutage) {
        *self.outage.lock() = outage;
        self.session.send_modify(|session| session.link = Link::Lost);
        let gone = std::mem::take(&mut *self.ephemerals.lock());
        for path in gone {
            match self.tree.commit(&[], &[Op::Delete { path }]).await {
                Ok(_) | Err(TreeError::Refused { why: Refusal::NoNode, .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        self.notify(&Event::Lost);
    }

    /// Connects again, in a new session if the last one was lost.
    pub fn connect(&self) {
        self.session.send_modify(|session| {
            session.generation += u64::from(session.link == Link::Lost);
            session.link = Link::Connected;
        });
        self.notify(&Event::Resync);
    }

    fn notify(&self, event: &Event) {
        self.mailboxes.lock().iter().for_each(|mailbox| mailbox.post(event.clone()));
    }

    fn check_connected(&self) -> Result<(), TreeError> {
        match self.session.borrow().link {
            Link::Connected => Ok(()),
            link => Err(TreeError::NotSent(format!("{link:?} as planned"))),
        }
    }

    /// Waits for the connection, if calls wait during an outage.
    async fn connected(&self) -> Result<(), TreeError> {
        if *self.outage.lock() == LinkOutage::Refused {
            return self.check_connected();
        }
        let mut session = self.session.subscribe();
        let connected = session.wait_for(|session| session.link == Link::Connected).await;
        connected.map(drop).map_err(|_| TreeError::NotSent("the tree is gone".into()))
    }

    async fn await_release(&self, directory: &str) {
        let is_held = self.held_directory.lock().as_deref() == Some(directory);
        if is_held && self.reads.take() == Fault::Held {
            self.reads.held().await;
        }
    }

    async fn apply(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        let committed = self.tree.commit(fences, ops).await?;
        if let Some(servers) = &*self.servers.lock() {
            let now = servers.clock.now();
            servers.written.lock().extend(ops.iter().map(|op| (op.path().to_owned(), now)));
        }
        let mut ephemerals = self.ephemerals.lock();
        for (op, stat) in ops.iter().zip(&committed) {
            match op {
                Op::Create { path, mode: Mode::Ephemeral, .. } => drop(ephemerals.insert(path.clone())),
                Op::Create { path, mode: Mode::Numbered, .. } => {
                    let number = stat.and_then(|stat| stat.number).expect("a numbered node has a number");
                    ephemerals.insert(numbered(path, number));
                }
                Op::Delete { path } => drop(ephemerals.remove(path)),
                Op::Create { .. } | Op::Set { .. } => {}
            }
        }
        Ok(committed)
    }
}

#[async_trait]
impl Coordination for FaultyTree {
    async fn get(&self, path: &str) -> Result<Option<Node>, TreeError> {
        self.connected().await?;
        let mut node = self.tree.get(path).await?;
        let shown =
            self.servers.lock().as_ref().and_then(|servers| servers.written.lock().get(path).copied());
        if let (Some(node), Some(shown)) = (&mut node, shown) {
            node.time = shown;
        }
        Ok(node)
    }

    async fn get_many(&self, paths: &[String]) -> Result<Vec<Option<Node>>, TreeError> {
        self.connected().await?;
        self.tree.get_many(paths).await
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, TreeError> {
        self.connected().await?;
        self.await_release(path).await;
        self.tree.children(path).await
    }

    async fn children_behind(
        &self,
        path: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<String>, TreeError> {
        self.connected().await?;
        self.await_release(path).await;
        self.tree.children_behind(path, after, most).await
    }

    async fn commit(&self, fences: &[Fence], ops: &[Op]) -> Result<CommitResult, TreeError> {
        self.connected().await?;
        let unknown = || TreeError::Unknown("as planned".into());
        match self.plan.take() {
            Fault::None => self.apply(fences, ops).await,
            Fault::Held => {
                self.plan.held().await;
                self.apply(fences, ops).await
            }
            Fault::NotSent => Err(TreeError::NotSent("as planned".into())),
            Fault::Panic => panic!("as planned"),
            Fault::HeldAndLost => {
                self.plan.held().await;
                Err(TreeError::NotSent("as planned".into()))
            }
            Fault::UnknownBefore => Err(unknown()),
            Fault::UnknownAfter => {
                self.apply(fences, ops).await?;
                Err(unknown())
            }
        }
    }

    /// Changes while there is no connection are not reported: the `Resync` at the next connection covers them.
    fn watch_tree(&self, path: &str) -> Result<Watch, TreeError> {
        let mut behind = self.tree.watch_tree(path)?;
        let (mailbox, watch) = Mailbox::open(path);
        self.mailboxes.lock().push(Arc::clone(&mailbox));
        let session = self.session.subscribe();
        self.feeders.lock().spawn(async move {
            loop {
                tokio::select! {
                    () = mailbox.abandoned() => return,
                    event = behind.next() => match event {
                        Some(event) if session.borrow().link == Link::Connected => mailbox.post(event),
                        Some(_) => {}
                        None => return mailbox.end(),
                    },
                }
            }
        });
        Ok(watch)
    }

    fn session(&self) -> watch::Receiver<Session> {
        self.session.subscribe()
    }

    fn session_timeout(&self) -> Option<Duration> {
        *self.timeout.lock()
    }

    fn check_open(&self) -> Result<(), TreeError> {
        self.check_connected()?;
        self.tree.check_open()
    }

    fn check_lease(&self) -> Result<(), TreeError> {
        self.check_connected()?;
        if self.plan.is_cut() {
            return Err(TreeError::NotSent("as planned".into()));
        }
        self.tree.check_lease()
    }

    fn keeps_time(&self) -> bool {
        self.servers.lock().is_some() || self.tree.keeps_time()
    }

    fn check_alive(&self) -> Result<(), TreeError> {
        self.tree.check_alive()
    }

    async fn close(&self) {
        self.tree.close().await;
    }
}
