//! Deliberate defects of the product, one at a time, to show that the simulation notices each of them.
//!
//! No release build has the feature `mutations`. Without it [`is_on`] is a constant, and every point where the product
//! reads it is compiled away.

#[cfg(feature = "mutations")]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Defines [`Mutation`] by a table: what the code does wrong, the variant, its name, the protocol rule that it breaks.
macro_rules! mutations {
    ($($(#[doc = $text:literal])+ $variant:ident = $name:literal, $rule:literal;)+) => {
        /// A deliberate defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutation {
            $($(#[doc = $text])+ $variant,)+
        }

        impl Mutation {
            /// Every mutation, in order of the rules.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name by which a command line takes the mutation.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// Returns the protocol rule that the mutation breaks.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$variant => $rule),+
                }
            }
        }
    };
}

mutations! {
    /// A slot writer uses the number of an applied batch for the next one too.
    ReuseBatchNumber = "reuse-batch-number", "P1";
    /// A batch without an answer counts as not written, at once.
    FailBatchInDoubt = "fail-batch-in-doubt", "P1";
    /// A batch without an answer counts as written.
    AcknowledgeBatchInDoubt = "acknowledge-batch-in-doubt", "P1";
    /// A batch is repeated under a new number each time.
    RenumberRepeat = "renumber-repeat", "P1";
    /// A batch that a pool refuses because it returned to an older state counts as not written, and the slot continues.
    IgnoreWentBack = "ignore-went-back", "P1";
    /// A batch that is fenced after an attempt without an answer counts as not written.
    FailBatchAfterFence = "fail-batch-after-fence", "P1";
    /// A slot continues with its memory after a batch with an unknown outcome.
    KeepSlotInDoubt = "keep-slot-in-doubt", "P1";

    /// A page of a refill brings back messages that were removed while it was read.
    RestoreRemovalByRefill = "restore-removal-by-refill", "P2";
    /// A page of a refill makes hidden messages ready, for example claimed ones.
    ShowHiddenByRefill = "show-hidden-by-refill", "P2";
    /// A message that becomes ready beyond the cursor while a page is read is not added to the page.
    MissWakeInRefill = "miss-wake-in-refill", "P2";
    /// A message that becomes ready below the cursor does not return to the ready cache.
    ForgetReleaseBelowCursor = "forget-release-below-cursor", "P2";
    /// A message that arrives from another queue with an id beyond the tail does not move the tail.
    IgnoreArrivalBeyondTail = "ignore-arrival-beyond-tail", "P2";
    /// After a wake the delayed messages that are due later are forgotten.
    ForgetLaterWake = "forget-later-wake", "P2";
    /// A delayed message that is removed while it becomes ready is shown as ready.
    ReviveRemovalByWake = "revive-removal-by-wake", "P2";
    /// A purge ends after one pass, even if messages became ready or delayed meanwhile.
    PurgeInOnePass = "purge-in-one-pass", "P2";
    /// Waiting claims are not served after a page was read.
    LoseWakeAfterRefill = "lose-wake-after-refill", "P2";
    /// Waiting claims are not served after a post.
    LoseWakeAfterPost = "lose-wake-after-post", "P2";

    /// A new owner of a slot does not continue behind the greatest id that a fenced pool returned.
    IgnoreLastId = "ignore-last-id", "P3";
    /// Tree time follows a step of the servers' clock at once.
    BelieveClockStep = "believe-clock-step", "P3";
    /// Claims expire right after a suspension of the session.
    ExpireWithoutHold = "expire-without-hold", "P3";
    /// A claim that could not be ended at its deadline gets no other deadline.
    LoseExpiryRetry = "lose-expiry-retry", "P3";

    /// Commits for a slot do not check that the slot still has this owner.
    CommitWithoutSlotFence = "commit-without-slot-fence", "P4";
    /// A pool is used by a new owner without a fence.
    OpenPoolWithoutFence = "open-pool-without-fence", "P4";
    /// A queue is opened without its claims.
    ForgetClaimsAtOpen = "forget-claims-at-open", "P4";
    /// A queue that was closed, and was not deleted after all, is opened again in its lost slot, without its claims.
    OpenInLostSlot = "open-in-lost-slot", "P4";
    /// Two requests may open a queue one after the other; the second one replaces the memory of the first.
    OpenQueueTwice = "open-queue-twice", "P4";
    /// A queue is deleted without the note of the data that must be removed.
    DeleteWithoutNote = "delete-without-note", "P4";
    /// The messages of a deleted queue stay in its pools.
    SkipCleaningOfPools = "skip-cleaning-of-pools", "P4";
    /// The records of the claims of a deleted queue stay in the tree.
    KeepOrphanClaims = "keep-orphan-claims", "P4";
    /// A queue is deleted while operations in it are in progress.
    DeleteQueueInUse = "delete-queue-in-use", "P4";
    /// A replica does not notice that others start or end.
    OverlookReplicas = "overlook-replicas", "P4";
    /// A replica whose state was not published does not publish it again.
    PublishStateOnce = "publish-state-once", "P4";

    /// The source of a transfer removes the message before the target has it.
    RemoveBeforePrepare = "remove-before-prepare", "P5";
    /// The target of a transfer publishes the message before the source has removed it.
    PublishBeforeRemoval = "publish-before-removal", "P5";
    /// The source of a transfer does not remove the message.
    SkipRemovalAtSource = "skip-removal-at-source", "P5";
    /// The owner of a prepared message publishes it whatever the source answers.
    PublishWithoutAsking = "publish-without-asking", "P5";
    /// A request of a replaced owner of the target is carried out.
    IgnoreTargetEpoch = "ignore-target-epoch", "P5";
    /// A message in transfer to another queue can be deleted at its source.
    DeleteMovingMessage = "delete-moving-message", "P5";
    /// A transfer into a queue of the same replica uses what it read before it waited for the gate, so messages that
    /// another transfer has moved there meanwhile arrive again.
    TransferTwice = "transfer-twice", "P5";
    /// A page of a FIFO group that was read before a message was marked in transfer shows the message as ready.
    ReadMovingMessageAgain = "read-moving-message-again", "P5";
    /// Dead letters are marked in transfer, and no task moves them.
    LoseMoveOfDeadLetters = "lose-move-of-dead-letters", "P5";
    /// A settle is written without its note, so a repeat is carried out again.
    SettleWithoutNote = "settle-without-note", "P5";

    /// A message that a crash has left in both pools of a queue stays in both.
    KeepTwoCopies = "keep-two-copies", "P6";
    /// A delete is sent to the newer pool only.
    DeleteInOnePool = "delete-in-one-pool", "P6";
    /// Claimed messages are copied, and are ready afterwards.
    CopyClaims = "copy-claims", "P6";
    /// A message that a client deletes while it is read for the copy is copied nevertheless.
    CopyAfterDelete = "copy-after-delete", "P6";
    /// A queue leaves its older pool although messages are in it.
    LeavePoolEarly = "leave-pool-early", "P6";
    /// A queue leaves a pool when reads of one order after the other find no message.
    LeavePoolByHeads = "leave-pool-by-heads", "P6";
    /// A slot continues after a pool that a queue leaves gave no answer to the removal of its data.
    KeepSlotAfterLateDrop = "keep-slot-after-late-drop", "P6";
    /// The copy phase begins while writes to the older pool are in progress.
    LeavePoolInDoubt = "leave-pool-in-doubt", "P6";

    /// A deletion of a queue does not wait for splits of its claims.
    SplitInClosedQueue = "split-in-closed-queue", "P7";
    /// A message can be claimed while its delete is in progress.
    ClaimDuringDelete = "claim-during-delete", "P7";
    /// A message whose delete is in progress is ready again when its claim ends.
    ShowDeleteAtExpiry = "show-delete-at-expiry", "P7";
    /// The record of a claim is deleted before the headers of its messages are durable.
    DeleteClaimBeforeHeaders = "delete-claim-before-headers", "P7";
    /// A renewal is not recorded, and only memory knows it.
    RenewInMemoryOnly = "renew-in-memory-only", "P7";
    /// A renewal is recorded, and the claim ends in memory at its old deadline.
    RenewInRecordOnly = "renew-in-record-only", "P7";
    /// A message that a settle has taken out of a claim returns under the claim when its queue is opened.
    ClaimKeptMessage = "claim-kept-message", "P7";
    /// A claim whose answer no client takes is not released.
    KeepLostDelivery = "keep-lost-delivery", "P7";
    /// A claim is released although its answer was sent.
    ReleaseDelivery = "release-delivery", "P7";

    /// Answers from memory need no lease.
    IgnoreLease = "ignore-lease", "P8";
    /// A delete of a message that no claim holds is answered and not sent to the pool.
    SkipDeleteWithoutClaim = "skip-delete-without-claim", "P8";
    /// A replica refuses receipts of a FIFO queue from its memory, although another one may own the slot.
    RefuseReceiptFromMemory = "refuse-receipt-from-memory", "P8";
    /// A claim of a held queue gets messages.
    GrantHeld = "grant-held", "P8";
    /// A slot is served without the holds of its queues.
    ForgetHolds = "forget-holds", "P8";
    /// A claim gets messages of a held group.
    GrantHeldGroup = "grant-held-group", "P8";
    /// A slot is served without the holds of the groups of its queues.
    ForgetGroupHolds = "forget-group-holds", "P8";
    /// The release of a group ends without the messages that were put aside.
    ForgetWithheld = "forget-withheld", "P8";
    /// The release of a group ends after one pass, while messages are being put aside.
    ReleaseInOnePass = "release-in-one-pass", "P8";
    /// A message of a held group that is put aside counts an attempt.
    CountWithheld = "count-withheld", "P8";
    /// The hold of a pool or a project is answered before the owners of all slots have confirmed it.
    AnswerUnconfirmedHold = "answer-unconfirmed-hold", "P8";
    /// An owner confirms the hold of a pool or a project before the pools refuse the writes of earlier owners.
    ConfirmWithoutFence = "confirm-without-fence", "P8";
    /// A slot is served without a look at the holds of pools and projects.
    ForgetSharedHolds = "forget-shared-holds", "P8";

    /// A storage is used for a pool whatever its stamp.
    IgnoreStamp = "ignore-stamp", "P9";

    /// The note of a deduplication id expires at once.
    ExpireDedupNoteAtOnce = "expire-dedup-note-at-once", "P10";
    /// A FIFO queue is opened without its deduplication ids.
    ForgetDedupAtOpen = "forget-dedup-at-open", "P10";
    /// A deduplication id is forgotten after a tenth of its time.
    ForgetDedupEarly = "forget-dedup-early", "P10";
    /// A duplicate is answered before the first post is durable.
    AnswerDuplicateInDoubt = "answer-duplicate-in-doubt", "P10";
    /// A batch that removes the note of a deduplication id and then writes a new one ends without a note.
    RemoveNewDedupNote = "remove-new-dedup-note", "P10";
    /// Hidden messages do not block their group.
    IgnoreHiddenInGroup = "ignore-hidden-in-group", "P10";
    /// Delayed messages do not block their group.
    IgnoreDelayInGroup = "ignore-delay-in-group", "P10";

    /// An embedded pool answers a batch before it is synced.
    AnswerBeforeSync = "answer-before-sync", "P11";
    /// The copy of a message for another queue is no more durable than the post to a relaxed queue.
    SendUnsyncedCopies = "send-unsynced-copies", "P11";

    /// A post without an answer from the pool counts as refused when its repeat finds the pool full.
    RefuseDoubtAsFull = "refuse-doubt-as-full", "P12";
    /// Deletes in a batch that a full pool refuses are refused too.
    RefuseDeleteWhenFull = "refuse-delete-when-full", "P12";

    /// A forwarded request without an answer is made again, whatever it does.
    RepeatForwardInDoubt = "repeat-forward-in-doubt", "P13";
    /// A forwarded request without an answer counts as not carried out.
    RefuseForwardInDoubt = "refuse-forward-in-doubt", "P13";
    /// A refusal after an attempt without an answer states that nothing was written.
    ForgetAttemptInDoubt = "forget-attempt-in-doubt", "P13";
    /// A request whose slot has moved is not made again at the new owner.
    StopAtMove = "stop-at-move", "P13";
    /// A waiting claim ends with an error when its slot is recovered.
    EndWaitAtRecovery = "end-wait-at-recovery", "P13";

    /// Messages that were chosen for a claim and put back still count as claimed.
    CountAfterPutBack = "count-after-put-back", "P14";
    /// Claimed messages of a release with a delay that was cut short count as delayed.
    MiscountShortRelease = "miscount-short-release", "P14";
    /// A pool is told that it stores a message as ready after a release with a delay was cut short.
    TrustOldHint = "trust-old-hint", "P14";
    /// A sweep removes messages whose life was extended while it read the pool.
    SweepOldHeaders = "sweep-old-headers", "P14";
    /// A sweep removes claimed messages of queues that are not open.
    SweepUnderClaim = "sweep-under-claim", "P14";
    /// A sweep removes claimed messages of a queue that has just left a removed pool.
    SweepLeftQueue = "sweep-left-queue", "P14";

    /// The messages of a claim whose record is in doubt are ready again at once.
    PutBackClaimInDoubt = "put-back-claim-in-doubt", "P15";
    /// A claim whose record is in doubt is granted.
    GrantClaimInDoubt = "grant-claim-in-doubt", "P15";
    /// A commit to the tree without an answer counts as not made.
    FailCommitInDoubt = "fail-commit-in-doubt", "P15";

    /// The copies of a message that arrives from another queue are left out of the batch that publishes it.
    LeaveOutArrivalCopies = "leave-out-arrival-copies", "P16";
    /// Messages are copied whatever the filter of the subscription.
    CopyIgnoringFilter = "copy-ignoring-filter", "P16";
    /// A page of a fill moves the progress on without its copies.
    SkipFillPage = "skip-fill-page", "P16";
    /// A page of a fill has a copy of a message that was deleted after it was read.
    CopyRemovedByFill = "copy-removed-by-fill", "P16";
    /// Posts are copied before the end of the fill is durable.
    CopyBeforeFillBegins = "copy-before-fill-begins", "P16";
    /// What a full subscription does not get is not counted.
    CountNoOmission = "count-no-omission", "P16";
    /// The first message that is removed takes away the body that it shares with others.
    RemoveSharedBody = "remove-shared-body", "P16";
    /// The note of a deleted queue is removed before its subscriptions are deleted.
    ForgetDroppedSubscriptions = "forget-dropped-subscriptions", "P16";
}

/// The chosen mutation: its place among all of them, counted from one; zero for none.
#[cfg(feature = "mutations")]
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// How often the product has read each point in this process.
#[cfg(feature = "mutations")]
static REACHED: [AtomicU64; Mutation::ALL.len()] = [const { AtomicU64::new(0) }; Mutation::ALL.len()];

/// Chooses the defect of this process, or none.
#[cfg(feature = "mutations")]
pub fn choose(mutation: Option<Mutation>) {
    CHOSEN.store(mutation.map_or(0, |mutation| mutation as usize + 1), Ordering::Relaxed);
}

/// Returns how often the product has reached the point of a mutation in this process: the place where its rule decides
/// something.
#[cfg(feature = "mutations")]
pub fn reached(mutation: Mutation) -> u64 {
    REACHED[mutation as usize].load(Ordering::Relaxed)
}

/// Returns whether this process has the defect.
#[cfg(feature = "mutations")]
#[inline]
pub fn is_on(mutation: Mutation) -> bool {
    REACHED[mutation as usize].fetch_add(1, Ordering::Relaxed);
    CHOSEN.load(Ordering::Relaxed) == mutation as usize + 1
}

/// Returns whether this process has the defect: never, without the feature.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn is_on(_mutation: Mutation) -> bool {
    false
}
