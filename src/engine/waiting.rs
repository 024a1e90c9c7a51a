//! Claims that wait for messages, in the order in which they came.
//!
//! Whatever becomes ready goes to the first of the line at once, and who comes while others wait goes to its end: nobody is
//! overtaken. The line belongs to a name, so that one can wait for a queue that does not exist yet.

use std::collections::VecDeque;

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u64);

/// Those who wait for one queue, each with what is kept of him.
#[derive(Debug)]
pub struct Line<T> {
    next: u64,
    waiting: VecDeque<(u64, T)>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { next: 0, waiting: VecDeque::new() }
    }
}

impl<T> Line<T> {
    /// Puts somebody at the end.
    pub fn join(&mut self, who: T) -> Place {
        let place = self.next;
        self.next += 1;
        self.waiting.push_back((place, who));
        Place(place)
    }

    /// Somebody leaves, wherever he stands. None when it was his turn already.
    pub fn leave(&mut self, place: Place) -> Option<T> {
        let at = self.waiting.binary_search_by_key(&place.0, |(place, _)| *place).ok()?;
        self.waiting.remove(at).map(|(_, who)| who)
    }

    /// Who stands there still.
    pub fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let at = self.waiting.binary_search_by_key(&place.0, |(place, _)| *place).ok()?;
        self.waiting.get_mut(at).map(|(_, who)| who)
    }

    /// Who is first.
    pub fn first(&self) -> Option<&T> {
        self.waiting.front().map(|(_, who)| who)
    }

    /// It is the first one's turn.
    pub fn take_first(&mut self) -> Option<T> {
        self.waiting.pop_front().map(|(_, who)| who)
    }

    /// Those of whom this holds leave, in order.
    pub fn dismiss(&mut self, mut holds: impl FnMut(&T) -> bool) -> Vec<T> {
        let (gone, stay) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, who)| holds(who));
        self.waiting = stay;
        VecDeque::into_iter(gone).map(|(_, who)| who).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_of_joining_whoever_leaves() {
        let mut line = Line::default();
        let places: Vec<Place> = (0..5).map(|who| line.join(who)).collect();
        assert_eq!(line.leave(places[0]), Some(0));
        assert_eq!(line.leave(places[3]), Some(3));
        assert_eq!(line.leave(places[3]), None);
        assert_eq!(line.take_first(), Some(1));
        line.join(5);
        assert_eq!(line.dismiss(|who| *who == 4), [4]);
        assert_eq!([line.take_first(), line.take_first(), line.take_first()], [Some(2), Some(5), None]);
    }
}
