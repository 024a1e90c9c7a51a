//! Pages of listings: the number of elements of a page, and of messages of a pop.

use crate::error::Error;
use crate::limits::{Limits, Span};

/// Max number of elements of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit(usize);

impl PageLimit {
    /// Checks a number of elements; an absent one has the default of `span`.
    pub fn new(requested: Option<i64>, span: Span) -> Result<Self, Error> {
        span.count(requested.unwrap_or(span.default_value().into()), "limit").map(Self)
    }

    /// The number of elements.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// Number of messages of a pop: as many as a claim may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopCount(usize);

impl PopCount {
    /// Checks a number of messages.
    pub fn new(requested: i64, limits: &Limits) -> Result<Self, Error> {
        limits.claim_messages.count(requested, "pop").map(Self)
    }

    /// The number of messages.
    pub const fn get(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_zaqars() {
        let page = |requested| PageLimit::new(requested, Limits::ZAQAR.messages_page);
        let pop = |requested| PopCount::new(requested, &Limits::ZAQAR);
        assert_eq!(page(None).unwrap().get(), 10);
        for good in [1, 20] {
            assert!(page(Some(good)).is_ok() && pop(good).is_ok());
        }
        for bad in [0, 21, -1, i64::MIN, i64::MAX] {
            assert!(page(Some(bad)).is_err() && pop(bad).is_err());
        }
    }
}
