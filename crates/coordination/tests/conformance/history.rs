//! Many callers commit at the same time and record the answers; then the tree itself shows which answers are right.
//!
//! Each caller creates nodes below its own node and sets that node in the same commits. So a commit that is applied
//! twice shows as a refusal or as an extra version.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use angarium_coordination::TreeError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Tree, commit, create, set};

/// Counts of the answers to all callers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) acknowledged: usize,
    pub(super) not_sent: usize,
    pub(super) unknown: usize,
}

/// The answers to one caller, one per commit.
struct Record {
    caller: usize,
    answers: Vec<Result<u32, TreeError>>,
}

/// Running callers.
pub(super) struct Load {
    callers: JoinSet<Record>,
    stop: CancellationToken,
}

impl Load {
    /// Starts callers on a tree.
    pub(super) async fn start(tree: &Tree, callers: usize) -> Self {
        commit(tree, &[create("/t")]).await;
        let stop = CancellationToken::new();
        let mut load = Self { callers: JoinSet::new(), stop: stop.clone() };
        for caller in 0..callers {
            commit(tree, &[create(format!("/t/{caller}"))]).await;
            load.callers.spawn(work(Arc::clone(tree), caller, stop.clone()));
        }
        load
    }

    /// Stops the load once every commit has an answer, and compares the answers with the tree, which it reads through
    /// `witness`.
    pub(super) async fn judge(self, witness: &Tree) -> Tally {
        self.stop.cancel();
        let mut tally = Tally::default();
        for record in self.callers.join_all().await {
            let path = format!("/t/{}", record.caller);
            let names = witness.children(&path).await.expect("the tree can be read again");
            let present: HashSet<String> = names.into_iter().collect();
            let version =
                witness.get(&path).await.expect("the tree can be read again").map(|node| node.version);
            assert_eq!(
                version.map(|version| version as usize),
                Some(present.len()),
                "{path} was set once a commit"
            );
            let mut last = 0;
            for (i, answer) in record.answers.iter().enumerate() {
                let is_present = present.contains(&i.to_string());
                match answer {
                    Ok(version) => {
                        assert!(is_present, "{path}/{i} was acknowledged and is absent");
                        assert!(*version > last, "{path}/{i} has the version {version} after {last}");
                        last = *version;
                        tally.acknowledged += 1;
                    }
                    Err(TreeError::NotSent(why)) => {
                        assert!(!is_present, "{path}/{i} was certainly not sent ({why}) and is present");
                        tally.not_sent += 1;
                    }
                    Err(TreeError::Unknown(_)) => tally.unknown += 1,
                    Err(error) => panic!("{path}/{i}: no other caller writes here, and {error}"),
                }
            }
            assert!(present.len() <= record.answers.len());
        }
        eprintln!("{tally:?}");
        tally
    }
}

async fn work(tree: Tree, caller: usize, stop: CancellationToken) -> Record {
    let mut answers = Vec::new();
    while !stop.is_cancelled() {
        let ops = [create(format!("/t/{caller}/{}", answers.len())), set(format!("/t/{caller}"), "")];
        let answer = tree.commit(&[], &ops).await;
        if answer.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        answers.push(answer.map(|committed| committed[1].expect("a set has a version").version));
    }
    Record { caller, answers }
}
