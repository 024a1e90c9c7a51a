//! Pages of listings: how many elements one has, and how many messages a pop takes.

use crate::domain::limits;
use crate::error::{Error, Place};

/// How many elements a page has at most: 1 to 20, 10 when nobody says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit(usize);

impl PageLimit {
    /// Checks a number of elements.
    pub fn new(asked: Option<i64>) -> Result<Self, Error> {
        let Some(asked) = asked else { return Ok(Self(limits::PAGE_DEFAULT)) };
        within(asked, limits::PAGE_MESSAGES, "limit").map(Self)
    }

    /// The number of elements.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// How many messages a pop takes: 1 to 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopCount(usize);

impl PopCount {
    /// Checks a number of messages.
    pub fn new(asked: i64) -> Result<Self, Error> {
        within(asked, limits::CLAIM_MESSAGES, "pop").map(Self)
    }

    /// The number of messages.
    pub const fn get(self) -> usize {
        self.0
    }
}

fn within(asked: i64, most: usize, field: &str) -> Result<usize, Error> {
    match usize::try_from(asked) {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(Error::invalid(Place::Limit, field, format!("{asked} is not between 1 and {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_zaqars() {
        assert_eq!(PageLimit::new(None).unwrap().get(), 10);
        for good in [1, 20] {
            assert!(PageLimit::new(Some(good)).is_ok() && PopCount::new(good).is_ok());
        }
        for bad in [0, 21, -1, i64::MIN, i64::MAX] {
            assert!(PageLimit::new(Some(bad)).is_err() && PopCount::new(bad).is_err());
        }
    }
}
