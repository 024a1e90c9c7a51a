//! Claims that wait for messages, in the order of their arrival.
//!
//! The first waiter of a line gets each message that becomes ready, and a new claim joins at the end while others wait:
//! no waiter is overtaken. A line belongs to a name, so a claim can wait for a queue that does not exist yet.

use std::collections::VecDeque;
use std::hash::Hash;

use angarium_core::maps::HashMap;

/// A position in a line. It is never reused, also not by a later line of the same name: a waiter that leaves late never
/// removes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition(u64);

/// Waiters by the name that they wait for. A name has a line while a waiter is in it.
#[derive(Debug)]
pub struct WaitLines<N, T> {
    next: u64,
    waiting: usize,
    lines: HashMap<N, VecDeque<(u64, T)>>,
}

impl<N, T> Default for WaitLines<N, T> {
    fn default() -> Self {
        Self { next: 0, waiting: 0, lines: HashMap::default() }
    }
}

impl<N: Eq + Hash + Clone, T> WaitLines<N, T> {
    /// Puts a waiter at the end.
    pub fn join(&mut self, name: &N, waiter: T) -> LinePosition {
        let position = self.next;
        self.next += 1;
        self.waiting += 1;
        self.lines.entry(name.clone()).or_default().push_back((position, waiter));
        LinePosition(position)
    }

    /// Removes a waiter at any position. None when it has left already.
    pub fn leave(&mut self, name: &N, position: LinePosition) -> Option<T> {
        self.change(name, |line| line.remove(find(line, position)?)).map(|(_, waiter)| waiter)
    }

    /// Removes the first waiter.
    pub fn take_first(&mut self, name: &N) -> Option<T> {
        self.change(name, VecDeque::pop_front).map(|(_, waiter)| waiter)
    }

    /// Removes the waiters that `holds` accepts, in order.
    pub fn dismiss(&mut self, name: &N, mut holds: impl FnMut(&T) -> bool) -> Vec<T> {
        let gone = self.change(name, |line| {
            let (gone, stay) = std::mem::take(line).into_iter().partition(|(_, waiter)| holds(waiter));
            *line = stay;
            Some(gone)
        });
        gone.unwrap_or_default().into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// The waiter at a position, if it still waits.
    pub fn get_mut(&mut self, name: &N, position: LinePosition) -> Option<&mut T> {
        let line = self.lines.get_mut(name)?;
        let at = find(line, position)?;
        line.get_mut(at).map(|(_, waiter)| waiter)
    }

    /// The first waiter.
    pub fn first(&self, name: &N) -> Option<&T> {
        self.lines.get(name)?.front().map(|(_, waiter)| waiter)
    }

    /// The first waiter, to be changed.
    pub fn first_mut(&mut self, name: &N) -> Option<&mut T> {
        self.lines.get_mut(name)?.front_mut().map(|(_, waiter)| waiter)
    }

    /// Returns the names that have a line, in no order.
    pub fn names(&self) -> impl Iterator<Item = &N> {
        self.lines.keys()
    }

    /// Number of waiters of one line.
    pub fn len_of(&self, name: &N) -> usize {
        self.lines.get(name).map_or(0, VecDeque::len)
    }

    /// Number of waiters behind the first one of their line, of all lines.
    pub fn behind(&self) -> usize {
        self.waiting - self.lines.len()
    }

    /// Number of waiters of all lines.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether no caller waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    fn change<R>(
        &mut self,
        name: &N,
        change: impl FnOnce(&mut VecDeque<(u64, T)>) -> Option<R>,
    ) -> Option<R> {
        let line = self.lines.get_mut(name)?;
        let before = line.len();
        let changed = change(line);
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.lines.remove(name);
        }
        changed
    }
}

fn find<T>(line: &VecDeque<(u64, T)>, position: LinePosition) -> Option<usize> {
    line.binary_search_by_key(&position.0, |(position, _)| *position).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_served_in_join_order() {
        let mut lines = WaitLines::default();
        let positions: Vec<LinePosition> = (0..5).map(|waiter| lines.join(&"q", waiter)).collect();
        assert_eq!(lines.leave(&"q", positions[0]), Some(0));
        assert_eq!(lines.leave(&"q", positions[3]), Some(3));
        assert_eq!(lines.leave(&"q", positions[3]), None);
        assert_eq!(lines.take_first(&"q"), Some(1));
        lines.join(&"q", 5);
        assert_eq!((lines.len_of(&"q"), lines.len()), (3, 3));
        assert_eq!(lines.dismiss(&"q", |waiter| *waiter == 4), [4]);
        let served = [(); 3].map(|()| lines.take_first(&"q"));
        assert_eq!(served, [Some(2), Some(5), None]);
        assert!(lines.is_empty());
    }

    /// Regression: a waiter of an old line, which had been served, left late and removed the first waiter of a new line
    /// of the same name; the client of that one was told that the queue was closed.
    #[test]
    fn position_of_ended_line_is_never_reused() {
        let mut lines = WaitLines::default();
        let old = lines.join(&"q", "old");
        assert_eq!(lines.take_first(&"q"), Some("old"));
        let new = lines.join(&"q", "new");
        assert_eq!(lines.leave(&"q", old), None);
        assert_eq!(lines.get_mut(&"q", new), Some(&mut "new"));
    }

    #[test]
    fn first_waiter_of_a_line_is_behind_no_other() {
        let mut lines = WaitLines::default();
        for (name, behind) in [("a", 0), ("b", 0), ("a", 1), ("c", 1), ("a", 2)] {
            lines.join(&name, ());
            assert_eq!(lines.behind(), behind, "{name}");
        }
        lines.take_first(&"a");
        lines.take_first(&"b");
        assert_eq!((lines.behind(), lines.len()), (1, 3));
    }
}
