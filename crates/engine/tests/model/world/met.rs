//! What a history met.

/// Number of times that a history met the condition of an earlier bug, or a rare state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// A message was deleted under a claim while the pool stored it as scheduled: a release with a delay had not ended
    /// the claim.
    pub stored_otherwise: u32,
    /// A message was removed between the read of the page that showed it as due and its wake.
    pub gone_while_due: u32,
    /// One batch forgot a deduplication id and posted a message with the same id.
    pub forgotten_and_noted: u32,
    /// The record of a claim was deleted, and its owner did not learn it.
    pub records_lost: u32,
    /// A sweep removed a message from a live claim.
    pub swept_claimed: u32,
    /// A record that was restored named a message that is available again, and not under the claim.
    pub stale_records: u32,
    /// A settle was found to be done by an earlier owner, which had not changed the record of the claim.
    pub resumed: u32,
    /// A message that returned stayed under its claim, because the record could not be changed.
    pub returns_failed: u32,
    /// The holder of a claim settled a message that was recalled.
    pub recalled: u32,
    /// A message of another queue was published with a delay.
    pub published_later: u32,
    /// A kept message was made available again.
    pub replayed: u32,
    /// A message of a held group was put aside.
    pub withheld: u32,
    /// A message that was aside was made ready or scheduled.
    pub released: u32,
}

impl Met {
    pub fn all(self) -> Vec<u32> {
        let Self { stored_otherwise, gone_while_due, forgotten_and_noted, records_lost, .. } = self;
        let Self { swept_claimed, stale_records, resumed, returns_failed, .. } = self;
        let Self { recalled, published_later, replayed, .. } = self;
        let Self { withheld, released, .. } = self;
        let first = [stored_otherwise, gone_while_due, forgotten_and_noted, records_lost, swept_claimed];
        let others = [stale_records, resumed, returns_failed, recalled, published_later, replayed];
        first.into_iter().chain(others).chain([withheld, released]).collect()
    }
}

impl std::ops::Add for Met {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            stored_otherwise: self.stored_otherwise + more.stored_otherwise,
            gone_while_due: self.gone_while_due + more.gone_while_due,
            forgotten_and_noted: self.forgotten_and_noted + more.forgotten_and_noted,
            records_lost: self.records_lost + more.records_lost,
            swept_claimed: self.swept_claimed + more.swept_claimed,
            stale_records: self.stale_records + more.stale_records,
            resumed: self.resumed + more.resumed,
            returns_failed: self.returns_failed + more.returns_failed,
            recalled: self.recalled + more.recalled,
            published_later: self.published_later + more.published_later,
            replayed: self.replayed + more.replayed,
            withheld: self.withheld + more.withheld,
            released: self.released + more.released,
        }
    }
}
