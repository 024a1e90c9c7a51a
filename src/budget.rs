//! Bounds of the memory that clients make the service hold: the bytes of their bodies, or of answers they do not read.
//! Owns who holds how much, and whom it is taken from when it is short. Never sees a body, and never waits.
//!
//! ```text
//!   open            add, slow               add, no room
//!  ──────▶ Open ───────────────▶ Evicted        and no caller is slow: refused
//!            │ keep
//!            ▼
//!          Kept: no caller takes it away; its bytes are free when it is dropped
//! ```
//!
//! The common case is one addition and one subtraction of an atomic ([`Budget::reserve`]). A lock is held when a holder
//! is opened and dropped, and while a caller is looked for who must go.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes after which a holder has made progress. Less does not count: single bytes now and then keep nothing for ever.
const STEP: usize = 16 * 1024;

/// How much is held, by whom at most, and who is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes in all.
    pub total: usize,
    /// Bytes of them that holders leave to what is only reserved ([`Budget::reserve`]).
    pub reserve: usize,
    /// Bytes of one user.
    pub share: usize,
    /// A holder is slow that has not made progress for this long.
    pub max_wait: Duration,
}

/// Why a holder may hold no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// There is no room, and no slow holder to take it from.
    Full,
    /// This holder was the slowest of the user that holds the most, of those with a slow one.
    Slow,
}

/// How a budget is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes held now.
    pub used: usize,
    /// Bytes that may be held.
    pub total: usize,
    /// How often more was refused.
    pub refused: u64,
    /// How many slow holders were evicted.
    pub evicted: u64,
}

/// A budget of bytes, shared by users of the kind `U`.
pub struct Budget<U>(Arc<Ledger<U>>);

/// Bytes of a budget that no caller takes away; they are free when it is dropped.
pub struct Reservation<'a, U> {
    budget: &'a Budget<U>,
    bytes: usize,
}

/// What holds bytes of a budget for a user; they are free when it is dropped.
pub struct Holder<U: Clone + Eq + Hash> {
    budget: Budget<U>,
    user: U,
    account: Arc<Account>,
    id: u64,
    entry: Arc<Entry>,
}

struct Ledger<U> {
    bounds: Bounds,
    began: Instant,
    /// Bytes of all holders.
    held: AtomicUsize,
    /// Bytes that are too few to count for a user.
    reserved: AtomicUsize,
    next: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    /// Held for single changes, and while a slow holder is looked for.
    users: Mutex<HashMap<U, Holders>>,
}

/// What a user holds.
#[derive(Default)]
struct Holders {
    account: Arc<Account>,
    entries: HashMap<u64, Arc<Entry>>,
}

#[derive(Default)]
struct Account {
    used: AtomicUsize,
}

const OPEN: u8 = 0;
const KEPT: u8 = 1;
const EVICTED: u8 = 2;

#[derive(Default)]
struct Entry {
    state: AtomicU8,
    held: AtomicUsize,
    /// Bytes of the present step, and when it began, in microseconds of the ledger.
    step: AtomicUsize,
    since: AtomicU64,
    /// Woken when the entry is evicted. Held for a moment by its holder and by who evicts it.
    waker: Mutex<Option<Waker>>,
}

impl<U> Clone for Budget<U> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<U> fmt::Debug for Budget<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("used", &self.used()).field("bounds", &self.0.bounds).finish()
    }
}

impl<U: Clone + Eq + Hash> fmt::Debug for Holder<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("held", &self.held()).finish_non_exhaustive()
    }
}

impl<U> fmt::Debug for Reservation<'_, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<U> Budget<U> {
    /// A budget of which nothing is used.
    pub fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Ledger {
            bounds,
            began: Instant::now(),
            held: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            users: Mutex::default(),
        }))
    }

    /// Bytes held in all.
    pub fn used(&self) -> usize {
        self.held() + self.0.reserved.load(Ordering::Relaxed)
    }

    fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Whether holders have more than there is for them.
    fn is_full_for_holders(&self) -> bool {
        let Bounds { total, reserve, .. } = self.0.bounds;
        self.used() > total || self.held() > total.saturating_sub(reserve)
    }

    /// Whether more is reserved than is kept for that, and than holders have left.
    fn is_full_for_reserved(&self) -> bool {
        let Bounds { total, reserve, .. } = self.0.bounds;
        self.used() > total && self.0.reserved.load(Ordering::Relaxed) > reserve
    }

    /// How it is used, and what became of those for whom there was no room.
    pub fn usage(&self) -> Usage {
        Usage {
            used: self.used(),
            total: self.0.bounds.total,
            refused: self.0.refused.load(Ordering::Relaxed),
            evicted: self.0.evicted.load(Ordering::Relaxed),
        }
    }

    fn now(&self) -> u64 {
        micros(self.0.began.elapsed())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl<U: Clone + Eq + Hash> Budget<U> {
    /// Holds `bytes` that are too few to count for a user. Costs no lock while there is room, which holders cannot take up
    /// to [`Bounds::reserve`].
    ///
    /// # Errors
    ///
    /// [`BudgetRefusal::Full`].
    pub fn reserve(&self, bytes: usize) -> Result<Reservation<'_, U>, BudgetRefusal> {
        self.0.reserved.fetch_add(bytes, Ordering::Relaxed);
        let reserved = Reservation { budget: self, bytes };
        if self.is_full_for_reserved() {
            self.make_room(None).inspect_err(|_| self.note_refused())?;
        }
        Ok(reserved)
    }

    /// A holder for `user` that holds nothing yet.
    pub fn open(&self, user: U) -> Holder<U> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry { since: AtomicU64::new(self.now()), ..Entry::default() });
        let mut users = self.0.users.lock();
        let holders = users.entry(user.clone()).or_default();
        holders.entries.insert(id, Arc::clone(&entry));
        let account = Arc::clone(&holders.account);
        drop(users);
        Holder { budget: self.clone(), user, account, id, entry }
    }

    fn note_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Evicts slow holders until there is room in all, and in the share of `own`: of the user that holds the most, among
    /// those that have a slow one.
    fn make_room(&self, own: Option<&Account>) -> Result<(), BudgetRefusal> {
        loop {
            let is_over_share = own.is_some_and(|own| own.used() > self.0.bounds.share);
            let is_full =
                if own.is_some() { self.is_full_for_holders() } else { self.is_full_for_reserved() };
            if !is_over_share && !is_full {
                return Ok(());
            }
            let users = self.0.users.lock();
            let is_asked = |holders: &&Holders| {
                !is_over_share || own.is_some_and(|own| std::ptr::eq(Arc::as_ptr(&holders.account), own))
            };
            let slow = users.values().filter(is_asked).filter_map(|holders| {
                let (slowest, since) = holders.slowest()?;
                let is_slow = self.now().saturating_sub(since) >= micros(self.0.bounds.max_wait);
                is_slow.then_some((slowest, &*holders.account))
            });
            let largest = slow.max_by_key(|(_, account)| account.used());
            let Some((slowest, account)) = largest else { return Err(BudgetRefusal::Full) };
            if slowest.evict() {
                self.0.evicted.fetch_add(1, Ordering::Relaxed);
                self.free(slowest, account);
            }
        }
    }

    /// Takes from an entry what it holds.
    fn free(&self, entry: &Entry, account: &Account) {
        let held = entry.held.swap(0, Ordering::Acquire);
        account.used.fetch_sub(held, Ordering::Relaxed);
        self.0.held.fetch_sub(held, Ordering::Relaxed);
    }
}

impl<U> Drop for Reservation<'_, U> {
    fn drop(&mut self) {
        self.budget.0.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Account {
    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Holders {
    /// The entry that made its last progress first, and when. One that holds nothing frees nothing.
    fn slowest(&self) -> Option<(&Entry, u64)> {
        let is_open = |entry: &&Arc<Entry>| {
            entry.state.load(Ordering::Relaxed) == OPEN && entry.held.load(Ordering::Relaxed) > 0
        };
        let entries = self.entries.values().filter(is_open);
        let since = entries.map(|entry| (&**entry, entry.since.load(Ordering::Relaxed)));
        since.min_by_key(|(_, since)| *since)
    }
}

impl Entry {
    /// Returns whether it was open until now.
    fn evict(&self) -> bool {
        let changed = self.state.compare_exchange(OPEN, EVICTED, Ordering::AcqRel, Ordering::Acquire);
        if changed.is_ok()
            && let Some(waker) = self.waker.lock().take()
        {
            waker.wake();
        }
        changed.is_ok()
    }
}

impl<U: Clone + Eq + Hash> Holder<U> {
    /// Holds `bytes` more, and notes that it has made so much progress. What is refused is held nevertheless, until it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`BudgetRefusal::Full`], and [`BudgetRefusal::Slow`] when this holder was evicted, now or before.
    pub fn add(&self, bytes: usize) -> Result<(), BudgetRefusal> {
        self.add_piece(bytes, 0)
    }

    /// As [`Holder::add`], for a piece that costs `overhead` beside its bytes, which is no progress.
    ///
    /// # Errors
    ///
    /// Those of [`Holder::add`].
    pub fn add_piece(&self, bytes: usize, overhead: usize) -> Result<(), BudgetRefusal> {
        self.hold(bytes.saturating_add(overhead));
        self.note_progress(bytes);
        if self.account.used() > self.budget.0.bounds.share || self.budget.is_full_for_holders() {
            let made = self.budget.make_room(Some(&*self.account));
            made.inspect_err(|_| self.budget.note_refused())?;
        }
        if self.is_evicted() { Err(BudgetRefusal::Slow) } else { Ok(()) }
    }

    /// Holds `bytes` more in any case: they are there already. When there is no room, slow holders are evicted, among them
    /// this one.
    pub fn add_anyway(&self, bytes: usize) {
        if self.entry.held.load(Ordering::Relaxed) == 0 {
            self.begin_step();
        }
        self.hold(bytes);
        // When no caller can be evicted any more, all that is left is in good hands.
        let _ = self.budget.make_room(Some(&*self.account));
    }

    fn hold(&self, bytes: usize) {
        // The entry last: who evicts it meanwhile takes away no more than was added.
        self.budget.0.held.fetch_add(bytes, Ordering::Relaxed);
        self.account.used.fetch_add(bytes, Ordering::Relaxed);
        self.entry.held.fetch_add(bytes, Ordering::Release);
    }

    /// Holds `bytes` less, of those that it holds.
    pub fn release(&self, bytes: usize) {
        let less = |held: usize| Some(held.saturating_sub(bytes));
        // An evicted one holds nothing any more.
        let held = self.entry.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let released = held.unwrap_or_default().min(bytes);
        self.account.used.fetch_sub(released, Ordering::Relaxed);
        self.budget.0.held.fetch_sub(released, Ordering::Relaxed);
    }

    /// Notes that `bytes` have moved. Called by one task at a time.
    pub fn note_progress(&self, bytes: usize) {
        let step = self.entry.step.load(Ordering::Relaxed).saturating_add(bytes);
        if step < STEP {
            return self.entry.step.store(step, Ordering::Relaxed);
        }
        self.begin_step();
    }

    fn begin_step(&self) {
        self.entry.step.store(0, Ordering::Relaxed);
        self.entry.since.store(self.budget.now(), Ordering::Relaxed);
    }

    /// From now on it is not evicted: what it waits for is no longer its client.
    pub fn keep(&self) {
        // Fails when it is evicted already.
        let _ = self.entry.state.compare_exchange(OPEN, KEPT, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether it was evicted. If not, the task of `cx` is woken when it is.
    pub fn poll_evicted(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.entry.waker.lock();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        self.is_evicted()
    }

    /// Whether it was evicted.
    pub fn is_evicted(&self) -> bool {
        self.entry.state.load(Ordering::Acquire) == EVICTED
    }

    /// Whose it is.
    pub fn user(&self) -> &U {
        &self.user
    }

    /// Bytes that it holds.
    pub fn held(&self) -> usize {
        self.entry.held.load(Ordering::Relaxed)
    }
}

impl<U: Clone + Eq + Hash> Drop for Holder<U> {
    fn drop(&mut self) {
        self.budget.free(&self.entry, &self.account);
        let mut users = self.budget.0.users.lock();
        let Some(holders) = users.get_mut(&self.user) else { return };
        holders.entries.remove(&self.id);
        if holders.entries.is_empty() {
            users.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests;
