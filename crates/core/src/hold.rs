//! Holds: an operator stops deliveries or posts for a time, with a reason, and loses nothing.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::access::Role;
use crate::error::{Error, InvalidPart};
use crate::limits;
use crate::names::{PoolName, ProjectId};
use crate::time::Timestamp;

/// The effects of a hold. At least one of them is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldEffects {
    claim: bool,
    post: Option<PostEffect>,
    /// Whether no message leaves: of pools alone.
    transfer: bool,
}

/// What becomes of posts under a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostEffect {
    /// They are refused.
    Refused,
    /// Those of REST are answered and dropped; those of SQS are refused, because SQS has no answer for a dropped one.
    Discarded,
}

impl HoldEffects {
    /// No message is granted, posts are refused, and no message leaves.
    pub const ALL: Self = Self { claim: true, post: Some(PostEffect::Refused), transfer: true };

    /// No message is granted, and posts are stored.
    pub const CLAIMS: Self = Self { claim: true, post: None, transfer: false };

    /// No message leaves for another queue or another pool. Messages are granted, and posts are stored.
    pub const TRANSFERS: Self = Self { claim: false, post: None, transfer: true };

    /// Checks a combination of effects.
    ///
    /// # Errors
    ///
    /// When there is none, or when posts would be refused and discarded.
    pub fn new(claim: bool, post: bool, discard: bool) -> Result<Self, Error> {
        let post = match (post, discard) {
            (true, true) => {
                let why = "posts are refused already, so there is none to discard";
                return Err(Error::invalid(InvalidPart::Limit, "discard", why));
            }
            (true, false) => Some(PostEffect::Refused),
            (false, true) => Some(PostEffect::Discarded),
            (false, false) => None,
        };
        if !claim && post.is_none() {
            let why = "a hold has one of claim, post and discard";
            return Err(Error::invalid(InvalidPart::Limit, "claim", why));
        }
        Ok(Self { claim, post, transfer: false })
    }

    /// As [`HoldEffects::new`], and no message leaves for another queue or another pool. That alone is enough.
    pub fn with_transfers(claim: bool, post: bool, discard: bool) -> Result<Self, Error> {
        if !claim && !post && !discard {
            return Ok(Self::TRANSFERS);
        }
        Ok(Self { transfer: true, ..Self::new(claim, post, discard)? })
    }

    /// These effects, and no message leaves for another queue or another pool.
    #[must_use]
    pub const fn and_transfers(self) -> Self {
        Self { transfer: true, ..self }
    }

    /// Whether no message leaves for another queue or another pool.
    pub const fn bars_transfers(self) -> bool {
        self.transfer
    }

    /// Whether clients meet it.
    pub const fn stops_clients(self) -> bool {
        self.claim || self.post.is_some()
    }

    /// Whether no message is granted.
    pub const fn bars_claims(self) -> bool {
        self.claim
    }

    /// What becomes of posts; none when they are stored as always.
    pub const fn posts(self) -> Option<PostEffect> {
        self.post
    }
}

/// The reason of a hold, for the people who meet it: 1 to [`limits::HOLD_REASON_BYTES`] bytes without control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldReason(String);

impl HoldReason {
    /// Checks a reason.
    pub fn new(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::invalid(InvalidPart::Limit, "reason", why);
        if text.trim().is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        if text.len() > limits::HOLD_REASON_BYTES {
            return Err(wrong(format!("it has more than {} bytes", limits::HOLD_REASON_BYTES)));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("it has a control character".to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The reason as it was stored, which was checked then.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its effects.
    pub effects: HoldEffects,
    /// Why it was made.
    pub reason: HoldReason,
    /// The caller that made it, if it has a name.
    pub by: Option<String>,
    /// When it was made.
    pub since: Timestamp,
    /// When it ends by itself; none when a request must end it.
    pub until: Option<Timestamp>,
}

impl Hold {
    /// Whether it is in force at this time.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Seconds after which a refused caller may try again, 1 to [`limits::HOLD_RETRY_SECONDS`].
    pub fn retry_after(&self, now: Timestamp) -> u32 {
        let Some(until) = self.until else { return limits::HOLD_RETRY_DEFAULT };
        let left = until.as_millis().saturating_sub(now.as_millis()).div_ceil(1_000);
        u32::try_from(left).unwrap_or(u32::MAX).clamp(1, limits::HOLD_RETRY_SECONDS)
    }

    /// Checks that posts are stored at this time.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] when it refuses or discards them.
    pub fn check_post(&self, now: Timestamp) -> Result<(), Error> {
        match self.effects.posts().filter(|_| self.is_in_force(now)) {
            None => Ok(()),
            Some(effect) => Err(self.refusal(effect, now)),
        }
    }

    /// Returns the error of a post that it refuses or discards.
    fn refusal(&self, effect: PostEffect, now: Timestamp) -> Error {
        Error::Held {
            reason: self.reason.to_string(),
            retry_after: self.retry_after(now),
            is_discarded: effect == PostEffect::Discarded,
        }
    }
}

/// A resource with many queues that can be held: its hold is in force for each of them. Pools are before projects, each in
/// the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldTarget {
    /// All queues in a pool, also while they move into it or out of it.
    Pool(PoolName),
    /// All queues of a project, also later ones.
    Project(ProjectId),
}

impl HoldTarget {
    /// Returns its name, without its kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Pool(pool) => pool.as_str(),
            Self::Project(project) => project.as_str(),
        }
    }
}

impl fmt::Display for HoldTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Project(project) => write!(f, "project {project}"),
        }
    }
}

/// A hold that is in force for a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedHold {
    /// The resource that is held; none when it is the queue itself.
    pub target: Option<HoldTarget>,
    /// Its hold.
    pub hold: Hold,
}

/// All holds that are in force for a queue: its own first, then those of its pools and of its project. The strictest
/// counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedHolds(pub Vec<AppliedHold>);

impl AppliedHolds {
    /// Returns them as callers with this role see them: only administrators see the names of administrators, who hold pools
    /// and projects.
    pub fn shown_to(mut self, role: Role) -> Self {
        let names = self.0.iter_mut().filter(|applied| role < Role::Admin && applied.target.is_some());
        names.for_each(|applied| applied.hold.by = None);
        self
    }

    /// Returns the first hold because of which no message is granted.
    pub fn barring_claims(&self) -> Option<&AppliedHold> {
        self.0.iter().find(|applied| applied.hold.effects.bars_claims())
    }

    /// Returns the first hold that refuses posts, or else the first one that discards them.
    pub fn strictest_for_posts(&self) -> Option<(&AppliedHold, PostEffect)> {
        let with = |effect| self.0.iter().find(|applied| applied.hold.effects.posts() == Some(effect));
        let effects = [PostEffect::Refused, PostEffect::Discarded];
        effects.into_iter().find_map(|effect| Some((with(effect)?, effect)))
    }

    /// Checks that posts are stored at this time.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] when a hold refuses or discards them.
    pub fn check_post(&self, now: Timestamp) -> Result<(), Error> {
        match self.strictest_for_posts() {
            None => Ok(()),
            Some((applied, effect)) => Err(applied.hold.refusal(effect, now)),
        }
    }
}

/// The id of a hold of a group: the mark of the messages that it has put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldId(pub Uuid);

/// A hold of one group of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHold {
    /// Its id.
    pub id: HoldId,
    /// Its terms.
    pub hold: Hold,
    /// Whether it has ended, and messages that it has put aside may not be ready again.
    pub is_releasing: bool,
}

impl GroupHold {
    /// Whether no message of the group is given to a claim.
    pub const fn bars_claims(&self) -> bool {
        self.hold.effects.bars_claims() && !self.is_releasing
    }

    /// Whether it was released, or has ended by itself.
    pub fn is_ended(&self, now: Timestamp) -> bool {
        self.is_releasing || !self.hold.is_in_force(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(until: Option<u64>) -> Hold {
        Hold {
            effects: HoldEffects::new(true, true, false).unwrap(),
            reason: HoldReason::new("bad deploy").unwrap(),
            by: None,
            since: Timestamp::from_millis(0),
            until: until.map(Timestamp::from_millis),
        }
    }

    #[test]
    fn hold_has_an_effect_and_one_for_posts_at_most() {
        assert!(HoldEffects::new(false, false, false).is_err());
        assert!(HoldEffects::new(true, true, true).is_err());
        let discard = HoldEffects::new(false, false, true).unwrap();
        assert_eq!((discard.bars_claims(), discard.posts()), (false, Some(PostEffect::Discarded)));
        assert_eq!(HoldEffects::with_transfers(false, false, false).unwrap(), HoldEffects::TRANSFERS);
        assert!(HoldEffects::with_transfers(true, true, true).is_err());
        let both = HoldEffects::with_transfers(true, false, false).unwrap();
        assert!(both.bars_claims() && both.bars_transfers() && both.stops_clients());
        assert!(!HoldEffects::CLAIMS.bars_transfers() && !HoldEffects::TRANSFERS.stops_clients());
    }

    #[test]
    fn reason_is_one_line_with_a_bound() {
        for bad in ["", "  ", "a\nb", "\u{7f}", &"x".repeat(limits::HOLD_REASON_BYTES + 1)] {
            assert!(HoldReason::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(HoldReason::new("déploiement 1.4.2").unwrap().as_str(), "déploiement 1.4.2");
    }

    #[test]
    fn hold_ends_at_its_time() {
        let hold = hold(Some(10_000));
        assert!(hold.is_in_force(Timestamp::from_millis(9_999)));
        assert!(!hold.is_in_force(Timestamp::from_millis(10_000)));
    }

    fn applied(effects: HoldEffects, reason: &str) -> AppliedHold {
        let reason = HoldReason::new(reason).unwrap();
        AppliedHold { target: None, hold: Hold { effects, reason, ..hold(None) } }
    }

    #[test]
    fn strictest_of_several_holds_counts() {
        let now = Timestamp::from_millis(0);
        let effects = |claim, post, discard| HoldEffects::new(claim, post, discard).unwrap();
        let discards = applied(effects(false, false, true), "discards");
        let refuses = applied(effects(true, true, false), "refuses");
        assert!(AppliedHolds::default().check_post(now).is_ok());
        for holds in [vec![discards.clone(), refuses.clone()], vec![refuses, discards.clone()]] {
            let holds = AppliedHolds(holds);
            let refused = holds.check_post(now).unwrap_err();
            assert!(
                matches!(&refused, Error::Held { reason, is_discarded: false, .. } if reason == "refuses"),
                "{refused:?}"
            );
            assert!(holds.barring_claims().is_some());
        }
        let holds = AppliedHolds(vec![discards]);
        assert!(holds.barring_claims().is_none());
        assert!(matches!(holds.check_post(now), Err(Error::Held { is_discarded: true, .. })));
    }

    #[test]
    fn refused_post_names_reason_and_time_to_retry() {
        for (until, retry) in [(None, 60), (Some(500), 1), (Some(9_001), 10), (Some(u64::MAX), 3_600)] {
            let holds = AppliedHolds(vec![AppliedHold { target: None, hold: hold(until) }]);
            let refused = holds.check_post(Timestamp::from_millis(0)).unwrap_err();
            assert!(
                matches!(&refused, Error::Held { reason, retry_after, is_discarded: false }
                    if reason == "bad deploy" && *retry_after == retry),
                "{refused:?}"
            );
            assert!(refused.nothing_written() && refused.may_retry());
        }
    }
}
