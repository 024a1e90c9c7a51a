//! Smaller bounds of caches and steps in some runs of the simulation, so that a few messages need many steps.
//!
//! No release build has the feature `mutations`. Without it [`within`] returns the usual bound, a constant.

#[cfg(feature = "mutations")]
use std::cell::Cell;

#[cfg(feature = "mutations")]
thread_local! {
    /// The greatest bound in a run of this thread; none for the usual ones.
    static GREATEST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Chooses the greatest bound in runs of this thread, at least one; none for the usual bounds.
#[cfg(feature = "mutations")]
pub fn choose(greatest: Option<usize>) {
    GREATEST.set(greatest);
}

/// Returns a bound of a cache or of a step: `usual`, or less in a run with small bounds.
#[cfg(feature = "mutations")]
#[inline]
pub fn within(usual: usize) -> usize {
    GREATEST.get().map_or(usual, |greatest| usual.min(greatest.max(1)))
}

/// Returns a bound of a cache or of a step: always `usual`, without the feature.
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn within(usual: usize) -> usize {
    usual
}
