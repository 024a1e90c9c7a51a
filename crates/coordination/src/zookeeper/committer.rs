//! Group commit to ZooKeeper. A session has one multi in flight; the next one takes all commits that gathered
//! meanwhile.
//!
//! There is no timer: an idle committer sends at once. If the answer of a multi is lost, the writer's node settles its
//! outcome before the next multi is sent (P15). So no caller is told that a commit failed that is applied later.
//! Without a connection nothing is sent, so waiting callers can still be told that their commit was not sent.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use zookeeper_client::{Error as ZkError, MultiWriteError};

use super::errors::{Verdict, not_sent, verdict};
use super::multi::Multi;
use super::pieces::{PendingPieces, Piece};
use super::recall::recall;
use super::session::{Connection, Session, SessionLoss};
use super::writer::{LostMulti, Writer};
use super::{CommitResult, TreeError};

/// Pause between two attempts to settle a multi on a connection that seems to be up.
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// The committer of one session.
pub(super) struct Committer<'a> {
    pub(super) session: &'a Session,
    pub(super) writer: Writer,
    pub(super) waiting: &'a mut PendingPieces,
    /// Number of versions after which a writer's node is replaced, because versions are signed 32-bit numbers.
    pub(super) writer_commits: i32,
}

impl Committer<'_> {
    /// Commits arriving pieces until the session is lost or the tree is closed.
    pub(super) async fn run(mut self, stop: &CancellationToken) -> Result<(), SessionLoss> {
        let mut connection = self.session.connection();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                changed = connection.changed() => changed?,
                () = self.session.outdates(&self.writer) => {}
                is_open = self.waiting.any() => if !is_open { return Ok(()) },
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                up = connection.up() => up?,
            }
            let is_outdated = self.writer.protection() != self.session.protection();
            if is_outdated || self.writer.version() >= self.writer_commits {
                self.replace_writer().await;
            }
            let pieces = self.waiting.take();
            if !pieces.is_empty() {
                self.commit(pieces, &mut connection).await?;
            }
        }
    }

    /// Creates a new writer's node for later commits. If this fails, the old node stays in use, for a moment at least.
    async fn replace_writer(&mut self) {
        let (client, has_identity) = (&self.session.client, self.session.identity.is_some());
        match Writer::create(client, has_identity, self.session.protection()).await {
            Ok(fresh) => {
                let old = std::mem::replace(&mut self.writer, fresh);
                if let Err(error) = client.delete(old.path(), None).await {
                    debug!(%error, "old writer node left to its session");
                }
            }
            Err(error) => {
                warn!(%error, "zookeeper writer node not replaced");
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
        }
    }

    async fn commit(&mut self, pieces: Vec<Piece>, connection: &mut Connection) -> Result<(), SessionLoss> {
        let (client, directories) = (&self.session.client, &self.session.directories);
        if let Err(error) = directories.load(client, &pieces).await {
            match verdict(&error) {
                Verdict::Unknown => self.waiting.put_back(pieces),
                Verdict::Refused(_) | Verdict::NotDone => answer_all(pieces, || not_sent(&error)),
            }
            return Ok(());
        }
        let mut multi = Multi::of(&pieces);
        let failure = match multi.send(client, &self.writer, directories).await {
            Ok(results) => {
                let Some((version, committed)) = multi.committed(results) else {
                    let lost = SessionLoss("an answer of ZooKeeper has not the form of its request".into());
                    answer_all(pieces, || unknown(&lost));
                    return Err(lost);
                };
                self.writer.settled(version);
                directories.count(&pieces);
                pieces.into_iter().zip(committed).for_each(|(piece, committed)| piece.answer(Ok(committed)));
                return Ok(());
            }
            Err(failure) => failure,
        };
        match failure {
            MultiWriteError::OperationFailed { index, source } => match multi.refusals(index, &source) {
                Some(refusals) => {
                    self.refuse(pieces, refusals);
                    Ok(())
                }
                None => {
                    self.waiting.put_back(pieces);
                    Err(self.writer.loss())
                }
            },
            MultiWriteError::RequestFailed { source } => match verdict(&source) {
                Verdict::Refused(_) | Verdict::NotDone => {
                    answer_all(pieces, || not_sent(&source));
                    Ok(())
                }
                Verdict::Unknown => self.settle(pieces, &source, connection).await,
            },
        }
    }

    /// Answers the pieces that caused the refusal, and puts the others back: nothing of the multi was applied, and the
    /// refusal does not concern them.
    fn refuse(&mut self, pieces: Vec<Piece>, refusals: Vec<Option<TreeError>>) {
        let mut rest = Vec::with_capacity(pieces.len());
        for (piece, refusal) in pieces.into_iter().zip(refusals) {
            match refusal {
                Some(error) => piece.answer(Err(error)),
                None => rest.push(piece),
            }
        }
        self.waiting.put_back(rest);
    }

    /// Settles a multi whose answer was lost: answers its pieces, or puts them back. If the session is lost first, the
    /// outcome stays unknown.
    async fn settle(
        &mut self,
        pieces: Vec<Piece>,
        cause: &ZkError,
        connection: &mut Connection,
    ) -> Result<(), SessionLoss> {
        info!(error = %cause, commits = pieces.len(), "zookeeper commit in doubt");
        let found = loop {
            let found = match connection.up().await {
                Ok(()) => self.writer.settle(&self.session.client).await,
                Err(lost) => Err(lost),
            };
            match found {
                Ok(Some(found)) => break found,
                Ok(None) => tokio::time::sleep(SETTLE_PAUSE).await,
                Err(lost) => {
                    warn!(error = %lost, commits = pieces.len(), "zookeeper commit outcome unknown");
                    answer_all(pieces, || unknown(&lost));
                    return Err(lost);
                }
            }
        };
        let is_applied = matches!(found, LostMulti::Applied(_));
        info!(is_applied, commits = pieces.len(), "zookeeper commit settled");
        match found {
            LostMulti::NotApplied => self.waiting.put_back(pieces),
            LostMulti::Applied(transaction) => {
                self.session.directories.count(&pieces);
                for piece in pieces {
                    let outcome = self.recalled(&piece, transaction, connection).await;
                    piece.answer(outcome);
                }
            }
        }
        Ok(())
    }

    /// Returns the result of an applied piece. This only reads, so a lost connection only costs time.
    async fn recalled(
        &self,
        piece: &Piece,
        transaction: u64,
        connection: &mut Connection,
    ) -> Result<CommitResult, TreeError> {
        loop {
            match recall(&self.session.client, &piece.ops, transaction).await {
                Ok(Some(committed)) => return Ok(committed),
                Ok(None) => return Err(TreeError::Unknown("it was applied, and changed since".into())),
                Err(error) if verdict(&error) != Verdict::Unknown => return Err(unknown(&error)),
                Err(_) => connection.up().await.map_err(|lost| unknown(&lost))?,
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
    }
}

fn answer_all(pieces: Vec<Piece>, error: impl Fn() -> TreeError) {
    pieces.into_iter().for_each(|piece| piece.answer(Err(error())));
}

fn unknown(cause: &dyn std::error::Error) -> TreeError {
    TreeError::Unknown(cause.to_string())
}
