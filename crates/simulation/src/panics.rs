//! Panics of tasks, which the runtime would catch and forget.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// The panics of this thread since the run began; none while no run is watched.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// The panics of a run on this thread.
pub struct WatchedPanics(());

/// Begins to keep the panics of this thread.
pub fn watch() -> WatchedPanics {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_kept = PANICS.with_borrow_mut(|panics| {
                panics.as_mut().map(|panics| panics.push(format!("a task panicked: {info}"))).is_some()
            });
            if !is_kept {
                others(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
    WatchedPanics(())
}

impl WatchedPanics {
    /// Returns the panics, and keeps no further ones.
    pub fn take(self) -> Vec<String> {
        PANICS.take().unwrap_or_default()
    }
}
