//! The quota of a project and its use: queues, messages, bytes of their bodies.
//!
//! Every existing queue counts, and every message counts until it is removed from its pool, in any state.

use crate::error::Error;
use crate::maps::HashMap;
use crate::message::NewMessage;
use crate::names::ProjectId;
use crate::region::Accounts;

/// The max amounts that a project may hold; none is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Queues, with or without messages.
    pub queues: Option<u64>,
    /// Messages in all its queues.
    pub messages: Option<u64>,
    /// Bytes of the bodies of those messages.
    pub bytes: Option<u64>,
}

impl Quota {
    /// Bounds nothing.
    pub const NONE: Self = Self { queues: None, messages: None, bytes: None };

    /// Returns the share of a part of the whole, rounded up: the shares of all parts together exceed the quota by less
    /// than their number.
    pub fn share(self, part: u32, whole: u32) -> Self {
        let share = |bound: u64| {
            let share = (u128::from(bound) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self {
            queues: self.queues.map(share),
            messages: self.messages.map(share),
            bytes: self.bytes.map(share),
        }
    }

    /// Whether it bounds any amount.
    pub fn is_bounded(&self) -> bool {
        *self != Self::NONE
    }

    /// Used part of the quota, in thousandths, of the amount that is closest to its bound.
    pub fn permille_used(&self, used: Holdings) -> u64 {
        let parts = [
            (self.queues, used.queues),
            (self.messages, used.amount.messages),
            (self.bytes, used.amount.bytes),
        ];
        let permille = |(bound, used): (Option<u64>, u64)| {
            let permille = u128::from(used) * 1_000 / u128::from(bound?.max(1));
            Some(u64::try_from(permille).unwrap_or(u64::MAX))
        };
        parts.into_iter().filter_map(permille).max().unwrap_or_default()
    }

    /// Checks whether the project may have one more queue.
    pub fn check_queue(&self, used: Holdings) -> Result<(), Error> {
        check("queues", self.queues, used.queues, 1)
    }

    /// Checks whether the project may hold `more` messages and bytes.
    pub fn check_messages(&self, used: Holdings, more: Amount) -> Result<(), Error> {
        check("messages", self.messages, used.amount.messages, more.messages)?;
        check("bytes of messages", self.bytes, used.amount.bytes, more.bytes)
    }

    /// Checks whether the project holds less than twice its bytes. No request is there to be refused for messages that
    /// get bodies of their own when they move, and they may not exceed the quota without bound.
    pub fn check_excess(&self, used: Holdings) -> Result<(), Error> {
        let twice = self.bytes.map(|bound| bound.saturating_mul(2));
        if twice.is_some_and(|twice| used.amount.bytes >= twice) {
            return Err(Error::Busy("the project holds twice the bytes of its quota"));
        }
        Ok(())
    }
}

/// Checks one amount. An addition of zero is always allowed: a project above its quota may do everything that adds
/// nothing.
fn check(what: &'static str, bound: Option<u64>, used: u64, asked: u64) -> Result<(), Error> {
    let Some(bound) = bound else { return Ok(()) };
    if asked == 0 || used.saturating_add(asked) <= bound {
        return Ok(());
    }
    Err(Error::OverQuota { what, bound, used, asked })
}

/// Messages, and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Amount {
    /// Returns the amount of messages that are to be posted.
    pub fn of(messages: &[NewMessage]) -> Self {
        Self {
            messages: messages.len() as u64,
            bytes: messages.iter().map(|message| message.body.len() as u64).sum(),
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_add(other.messages),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// This amount without the other; zero where the other is greater.
    pub fn minus(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// The amounts that a project holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Queues, with or without messages.
    pub queues: u64,
    /// The messages in them.
    pub amount: Amount,
}

/// The quotas of all projects.
#[derive(Clone, Debug, Default)]
pub struct QuotaTable {
    /// The quota of every project that is not in `projects`.
    default: Quota,
    projects: HashMap<ProjectId, Quota>,
    accounts: Accounts,
}

impl QuotaTable {
    /// Returns `default` for every project that is not in `projects`.
    pub fn new(default: Quota, projects: HashMap<ProjectId, Quota>) -> Self {
        Self { default, projects, accounts: Accounts::Projects }
    }

    /// Returns the table with projects counted by their accounts.
    pub fn counted_by(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// How projects are counted.
    pub fn accounts(&self) -> Accounts {
        self.accounts
    }

    /// The projects in the table whose quotas have no effect, because they count for their accounts.
    pub fn without_effect(&self) -> Vec<&ProjectId> {
        let mut named: Vec<_> =
            self.projects.keys().filter(|name| self.accounts.of(name) != **name).collect();
        named.sort_unstable_by_key(|name| name.as_str());
        named
    }

    /// The accounts in the table whose quota bounds something, in order; at most `max` of them.
    pub fn bounded(&self, max: usize) -> Vec<ProjectId> {
        let named = self
            .projects
            .iter()
            .filter(|(name, quota)| quota.is_bounded() && self.accounts.of(name) == **name);
        let mut named: Vec<ProjectId> = named.map(|(name, _)| name.clone()).collect();
        named.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        named.truncate(max);
        named
    }

    /// The quota of a project, which is that of its account.
    pub fn of(&self, project: &ProjectId) -> Quota {
        self.projects.get(&self.accounts.of(project)).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(queues: u64, messages: u64, bytes: u64) -> Holdings {
        Holdings { queues, amount: Amount { messages, bytes } }
    }

    #[test]
    fn a_quota_is_reached_exactly() {
        let quota = Quota { queues: Some(2), messages: Some(10), bytes: Some(100) };
        let more = |messages, bytes| Amount { messages, bytes };
        assert!(quota.check_queue(used(1, 0, 0)).is_ok());
        assert!(matches!(
            quota.check_queue(used(2, 0, 0)),
            Err(Error::OverQuota { what: "queues", bound: 2, used: 2, asked: 1 })
        ));
        assert!(quota.check_messages(used(9, 8, 90), more(2, 10)).is_ok());
        assert!(matches!(
            quota.check_messages(used(0, 8, 90), more(3, 1)),
            Err(Error::OverQuota { what: "messages", bound: 10, used: 8, asked: 3 })
        ));
        assert!(matches!(
            quota.check_messages(used(0, 8, 90), more(1, 11)),
            Err(Error::OverQuota { what: "bytes of messages", bound: 100, used: 90, asked: 11 })
        ));
    }

    #[test]
    fn excess_ends_at_twice_the_bytes() {
        let quota = Quota { bytes: Some(100), ..Quota::NONE };
        assert!(quota.check_excess(used(1, 1, 199)).is_ok());
        assert!(matches!(quota.check_excess(used(1, 1, 200)), Err(Error::Busy(_))));
        assert!(Quota { queues: Some(1), ..Quota::NONE }.check_excess(used(1, 1, u64::MAX)).is_ok());
    }

    #[test]
    fn no_sum_is_too_great() {
        let quota = Quota { bytes: Some(u64::MAX - 1), ..Quota::NONE };
        let more = Amount { messages: 1, bytes: u64::MAX };
        assert!(quota.check_messages(used(0, 0, u64::MAX), more).is_err());
        assert!(Quota::NONE.check_messages(used(0, 0, u64::MAX), more).is_ok());
    }

    #[test]
    fn quota_shares_round_up_and_unbounded_stays() {
        let quota = Quota { queues: Some(10), messages: Some(u64::MAX), bytes: None };
        assert_eq!(quota.share(256, 256), quota);
        assert_eq!(quota.share(85, 256).queues, Some(4));
        assert_eq!(quota.share(1, 256).queues, Some(1));
        assert_eq!(quota.share(0, 256).queues, Some(0));
        assert_eq!(quota.share(128, 256).messages, Some(u64::MAX / 2 + 1));
        assert_eq!(quota.share(1, 256).bytes, None);
    }

    #[test]
    fn quota_of_a_project_in_a_region_has_no_effect() {
        let names = ["ops", "ops@corp", "joe@example.com", "a@eu-west-1"];
        let quotas = names.map(|name| (ProjectId::new(name).unwrap(), Quota::NONE));
        let table = QuotaTable::new(Quota::NONE, HashMap::from_iter(quotas));
        assert!(table.without_effect().is_empty(), "each project is an account");
        let table = table.counted_by(Accounts::Regions);
        let found: Vec<_> = table.without_effect().into_iter().map(ProjectId::as_str).collect();
        assert_eq!(found, ["a@eu-west-1", "ops@corp"]);
    }

    #[test]
    fn use_of_a_quota_is_its_tightest_bound() {
        let quota = Quota { queues: Some(10), messages: Some(1_000), bytes: None };
        assert_eq!(quota.permille_used(used(1, 900, 5)), 900);
        assert_eq!(quota.permille_used(used(11, 0, u64::MAX)), 1_100);
        assert_eq!(Quota::NONE.permille_used(used(1, 1, 1)), 0);
        let empty = Quota { queues: Some(0), ..Quota::NONE };
        assert_eq!((empty.permille_used(used(0, 0, 0)), empty.permille_used(used(1, 0, 0))), (0, 1_000));
    }

    #[test]
    fn only_bounded_accounts_are_named() {
        let project = |name| ProjectId::new(name).unwrap();
        let one = Quota { queues: Some(1), ..Quota::NONE };
        let quotas = [("b", one), ("a", one), ("c", Quota::NONE)];
        let table =
            QuotaTable::new(one, quotas.into_iter().map(|(name, quota)| (project(name), quota)).collect());
        assert_eq!(table.bounded(10), [project("a"), project("b")]);
        assert_eq!(table.bounded(1), [project("a")]);
    }

    #[test]
    fn a_named_project_has_a_quota_of_its_own() {
        let project = |name| ProjectId::new(name).unwrap();
        let (one, other) = (Quota { queues: Some(1), ..Quota::NONE }, Quota::NONE);
        let table = QuotaTable::new(one, HashMap::from_iter([(project("big"), other)]));
        assert_eq!((table.of(&project("big")), table.of(&project("small"))), (other, one));
        assert!(one.is_bounded() && !other.is_bounded());
    }
}
