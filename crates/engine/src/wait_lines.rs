//! Claims that wait for messages, in the order in which they came.
//!
//! Whatever becomes ready moves to the first of the line at once, and a claim that arrives while others wait is put at its end:
//! no caller is overtaken. A line belongs to a name, so that one can wait for a queue that does not exist yet.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A place in a line. No other one is ever the same, also when its line ended and another began under that name: who
/// gives up a place late gives up no other caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition(u64);

/// Those who wait, by the name of what they wait for. A name has a line while a caller is in it.
#[derive(Debug)]
pub struct WaitLines<N, T> {
    next: u64,
    waiting: usize,
    lines: HashMap<N, VecDeque<(u64, T)>>,
}

impl<N, T> Default for WaitLines<N, T> {
    fn default() -> Self {
        Self { next: 0, waiting: 0, lines: HashMap::new() }
    }
}

impl<N: Eq + Hash + Clone, T> WaitLines<N, T> {
    /// Puts a caller at the end.
    pub fn join(&mut self, name: &N, who: T) -> LinePosition {
        let place = self.next;
        self.next += 1;
        self.waiting += 1;
        self.lines.entry(name.clone()).or_default().push_back((place, who));
        LinePosition(place)
    }

    /// A caller leaves, wherever he is. None when he was gone already.
    pub fn leave(&mut self, name: &N, place: LinePosition) -> Option<T> {
        self.change(name, |line| line.remove(find(line, place)?)).map(|(_, who)| who)
    }

    /// It is the first one's turn.
    pub fn take_first(&mut self, name: &N) -> Option<T> {
        self.change(name, VecDeque::pop_front).map(|(_, who)| who)
    }

    /// Those of whom this holds leave, in order.
    pub fn dismiss(&mut self, name: &N, mut holds: impl FnMut(&T) -> bool) -> Vec<T> {
        let gone = self.change(name, |line| {
            let (gone, stay) = std::mem::take(line).into_iter().partition(|(_, who)| holds(who));
            *line = stay;
            Some(gone)
        });
        gone.unwrap_or_default().into_iter().map(|(_, who)| who).collect()
    }

    /// Who is there still.
    pub fn get_mut(&mut self, name: &N, place: LinePosition) -> Option<&mut T> {
        let line = self.lines.get_mut(name)?;
        let at = find(line, place)?;
        line.get_mut(at).map(|(_, who)| who)
    }

    /// Who is first.
    pub fn first(&self, name: &N) -> Option<&T> {
        self.lines.get(name)?.front().map(|(_, who)| who)
    }

    /// Who is first, to be changed.
    pub fn first_mut(&mut self, name: &N) -> Option<&mut T> {
        self.lines.get_mut(name)?.front_mut().map(|(_, who)| who)
    }

    /// How many stand in one line.
    pub fn len_of(&self, name: &N) -> usize {
        self.lines.get(name).map_or(0, VecDeque::len)
    }

    /// How many wait in all.
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

fn find<T>(line: &VecDeque<(u64, T)>, place: LinePosition) -> Option<usize> {
    line.binary_search_by_key(&place.0, |(place, _)| *place).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_served_in_join_order() {
        let mut lines = WaitLines::default();
        let places: Vec<LinePosition> = (0..5).map(|who| lines.join(&"q", who)).collect();
        assert_eq!(lines.leave(&"q", places[0]), Some(0));
        assert_eq!(lines.leave(&"q", places[3]), Some(3));
        assert_eq!(lines.leave(&"q", places[3]), None);
        assert_eq!(lines.take_first(&"q"), Some(1));
        lines.join(&"q", 5);
        assert_eq!((lines.len_of(&"q"), lines.len()), (3, 3));
        assert_eq!(lines.dismiss(&"q", |who| *who == 4), [4]);
        let turns = [(); 3].map(|()| lines.take_first(&"q"));
        assert_eq!(turns, [Some(2), Some(5), None]);
        assert!(lines.is_empty());
    }

    /// The first of a line that began again was sent away by one of the old line who had had his turn, and was told
    /// that the queue was closed.
    #[test]
    fn position_of_ended_line_is_never_reused() {
        let mut lines = WaitLines::default();
        let old = lines.join(&"q", "old");
        assert_eq!(lines.take_first(&"q"), Some("old"));
        let new = lines.join(&"q", "new");
        assert_eq!(lines.leave(&"q", old), None);
        assert_eq!(lines.get_mut(&"q", new), Some(&mut "new"));
    }
}
