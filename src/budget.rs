//! Bounds of the memory that clients use: the bytes of their request bodies, or of unread answers. This module counts
//! the bytes of each user, and evicts holders when memory is short. It never reads a body and never waits.
//!
//! ```text
//!   open            add, slow               add, no room
//!  ──────▶ Open ───────────────▶ Evicted        and no holder is slow: refused
//!            │ keep
//!            ▼
//!          Kept: never evicted; its bytes are free when it is dropped
//! ```
//!
//! The common case is one atomic addition and one subtraction ([`Budget::reserve`]). A lock is held when a holder is
//! opened or dropped, and during the search for a holder to evict.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes that count as progress of a holder. Fewer do not count: single bytes from time to time prevent no eviction.
const STEP: usize = 16 * 1024;

/// Bounds of a budget, and the time after which a holder is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Max bytes of all users.
    pub total: usize,
    /// Bytes of the total that holders leave to reservations ([`Budget::reserve`]).
    pub reserve: usize,
    /// Max bytes of one user.
    pub share: usize,
    /// Time without progress after which a holder is slow.
    pub max_wait: Duration,
}

/// The reason why a holder gets no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// There is no room, and no slow holder to evict.
    Full,
    /// This holder was evicted. It was the slowest one of its user, who held the most of all users with a slow holder.
    Slow,
}

/// The usage of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes held now.
    pub used: usize,
    /// Max bytes.
    pub total: usize,
    /// Number of refusals.
    pub refused: u64,
    /// Number of evicted holders.
    pub evicted: u64,
}

/// A budget of bytes, shared by users of the type `U`.
pub struct Budget<U>(Arc<Ledger<U>>);

/// Reserved bytes, which are never taken back; they are free when this is dropped.
pub struct Reservation<'a, U> {
    budget: &'a Budget<U>,
    bytes: usize,
}

/// Bytes that are held for a user; they are free when this is dropped.
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
    /// Bytes of reservations, which count for no user.
    reserved: AtomicUsize,
    next: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    /// Held for single changes, and during the search for a slow holder.
    users: Mutex<HashMap<U, Holders>>,
}

/// The holders of a user.
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
    /// Bytes of the current step, and the time of its begin in microseconds of the ledger.
    step: AtomicUsize,
    since: AtomicU64,
    /// Woken at the eviction. The holder and the evicting task hold it for a moment.
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
    /// Creates an unused budget.
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

    /// Returns the bytes that are held or reserved.
    pub fn used(&self) -> usize {
        self.held() + self.0.reserved.load(Ordering::Relaxed)
    }

    fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Whether holders have more than their part of the budget.
    fn is_full_for_holders(&self) -> bool {
        let Bounds { total, reserve, .. } = self.0.bounds;
        self.used() > total || self.held() > total.saturating_sub(reserve)
    }

    /// Whether reservations exceed both their own part and the bytes that holders left free.
    fn is_full_for_reserved(&self) -> bool {
        let Bounds { total, reserve, .. } = self.0.bounds;
        self.used() > total && self.0.reserved.load(Ordering::Relaxed) > reserve
    }

    /// Returns the usage, with the numbers of refusals and evictions.
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
    /// Reserves `bytes` that are too few to count for a user. Takes no lock while there is room. Holders leave
    /// [`Bounds::reserve`] bytes free for this.
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

    /// Opens a holder for `user` without bytes.
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

    /// Evicts slow holders until there is room in the whole budget and in the share of `own`. The next one to evict
    /// belongs to the user that holds the most, among the users with a slow holder.
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

    /// Frees the bytes of an entry.
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
    /// Returns the entry with the oldest progress, and its time. Entries without bytes are skipped, because evicting
    /// them frees nothing.
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
    /// Evicts an open entry. Returns false if it was not open.
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
    /// Holds `bytes` more, and records them as progress. Also after a refusal the bytes count until this holder is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`BudgetRefusal::Full`], and [`BudgetRefusal::Slow`] when this holder was evicted, now or before.
    pub fn add(&self, bytes: usize) -> Result<(), BudgetRefusal> {
        self.add_piece(bytes, 0)
    }

    /// As [`Holder::add`], for a piece that costs `overhead` in addition to its bytes. The overhead is no progress.
    ///
    /// # Errors
    ///
    /// As for [`Holder::add`].
    pub fn add_piece(&self, bytes: usize, overhead: usize) -> Result<(), BudgetRefusal> {
        self.hold(bytes.saturating_add(overhead));
        self.note_progress(bytes);
        if self.account.used() > self.budget.0.bounds.share || self.budget.is_full_for_holders() {
            let made = self.budget.make_room(Some(&*self.account));
            made.inspect_err(|_| self.budget.note_refused())?;
        }
        if self.is_evicted() { Err(BudgetRefusal::Slow) } else { Ok(()) }
    }

    /// Holds `bytes` more in any case, because they are in memory already. When there is no room, slow holders are
    /// evicted, possibly this one.
    pub fn add_anyway(&self, bytes: usize) {
        if self.entry.held.load(Ordering::Relaxed) == 0 {
            self.begin_step();
        }
        self.hold(bytes);
        // A refusal is ignored: then no other holder is slow.
        let _ = self.budget.make_room(Some(&*self.account));
    }

    fn hold(&self, bytes: usize) {
        // The entry is updated last, so that a concurrent eviction frees no more than was added.
        self.budget.0.held.fetch_add(bytes, Ordering::Relaxed);
        self.account.used.fetch_add(bytes, Ordering::Relaxed);
        self.entry.held.fetch_add(bytes, Ordering::Release);
    }

    /// Releases `bytes` of its bytes, or all if it has fewer.
    pub fn release(&self, bytes: usize) {
        let less = |held: usize| Some(held.saturating_sub(bytes));
        // An evicted holder has no bytes any more.
        let held = self.entry.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let released = held.unwrap_or_default().min(bytes);
        self.account.used.fetch_sub(released, Ordering::Relaxed);
        self.budget.0.held.fetch_sub(released, Ordering::Relaxed);
    }

    /// Records that `bytes` have moved. Called by one task at a time.
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

    /// Protects the holder from eviction: it no longer waits for its client.
    pub fn keep(&self) {
        // Has no effect on a holder that is evicted already.
        let _ = self.entry.state.compare_exchange(OPEN, KEPT, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the holder was evicted. If not, the task of `cx` is woken at its eviction.
    pub fn poll_evicted(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.entry.waker.lock();
        if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        self.is_evicted()
    }

    /// Whether the holder was evicted.
    pub fn is_evicted(&self) -> bool {
        self.entry.state.load(Ordering::Acquire) == EVICTED
    }

    /// Returns the user of the holder.
    pub fn user(&self) -> &U {
        &self.user
    }

    /// Returns the bytes of the holder.
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
