//! The outlook of an ordered queue for an explanation: whether a claim would find a message, and how many groups are
//! blocked. It settles nothing, so a claim finds the groups as they are.

use super::Groups;
use super::reading::GroupListing;
use crate::blocking::Blocking;
use crate::explain::Availability;
use angarium_core::group::GroupName;
use angarium_core::ids::MessageId;
use angarium_core::message::Header;

impl Groups {
    /// Whether a claim would find a message that `is_fit` for it. Costs a look at each open group in memory.
    pub(crate) fn first_fit(&self, blocking: &Blocking, is_fit: impl Fn(&Header) -> bool) -> Availability {
        let mut found = match self.listing {
            GroupListing::Whole | GroupListing::Blocked => Availability::Nothing,
            GroupListing::On { .. } => Availability::Unknown,
        };
        if self.listing != GroupListing::Whole
            && blocking.freed().iter().any(|name| !self.known.contains_key(name))
        {
            found = Availability::Unknown;
        }
        for name in self.open.values().chain(blocking.freed()) {
            let blocked = self.blocked_at(name, blocking);
            match self.first(name, blocked) {
                Some(header) if is_fit(header) => return Availability::Message,
                Some(_) => found = Availability::Unknown,
                None if self.must_look(name, blocked) => found = Availability::Unknown,
                None => {}
            }
        }
        found
    }

    /// Whether messages of a group that may be taken can exist beyond memory.
    fn must_look(&self, name: &GroupName, blocked: Option<MessageId>) -> bool {
        self.known.get(name).is_some_and(|group| group.can_continue(blocked))
    }

    /// Whether memory has the first messages of a group, or all groups.
    pub(crate) fn knows(&self, name: &GroupName) -> bool {
        self.listing == GroupListing::Whole || self.known.contains_key(name)
    }

    /// Number of groups with a message for which any later ones wait: those with a blocking message, and those that begin
    /// with a delayed message, as far as memory has them.
    pub(crate) fn blocked(&self, blocking: &Blocking) -> usize {
        let is_delayed = |name: &&GroupName| {
            blocking.first(name).is_none()
                && self.known.get(*name).is_some_and(|group| {
                    let delayed = group.delayed.keys().next();
                    delayed
                        .is_some_and(|delayed| group.ready.keys().next().is_none_or(|first| delayed < first))
                })
        };
        blocking.groups() + self.resting.values().filter(is_delayed).count()
    }
}
