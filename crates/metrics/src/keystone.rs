//! Token validation by Keystone. Like the budgets, it is read when a page is requested. Without Keystone it has no
//! samples.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts of Keystone lookups and of cached validations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeystoneFigures {
    /// Lookups that returned a valid token.
    pub valid: u64,
    /// Lookups of unknown and expired tokens.
    pub refused: u64,
    /// Lookups without a usable response.
    pub failed: u64,
    /// Lookups that Keystone refused to the service.
    pub not_allowed: u64,
    /// Requests with a cached valid token.
    pub remembered_valid: u64,
    /// Requests with a cached refused token.
    pub remembered_refused: u64,
    /// Tokens in the cache now.
    pub known: usize,
    /// Requests that wait for a lookup now.
    pub waiting: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    result: &'static str,
}

type NoLabels = [(&'static str, &'static str); 0];
type Read = Box<dyn Fn() -> KeystoneFigures + Send + Sync>;

/// The validation metrics, once they are watched.
pub(super) struct Validations {
    lookups: Family<Labels, Counter>,
    hits: Family<Labels, Counter>,
    /// Families, so that there are no samples without Keystone.
    known: Family<NoLabels, Gauge>,
    waiting: Family<NoLabels, Gauge>,
    /// Held while a page is made, and when the source is set.
    read: Mutex<Option<Read>>,
}

impl Validations {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let validations = Self {
            lookups: Family::default(),
            hits: Family::default(),
            known: Family::default(),
            waiting: Family::default(),
            read: Mutex::default(),
        };
        registry.register(
            "angarium_keystone_lookups",
            "Tokens that Keystone was asked about, by result: valid, refused, failed without a usable answer, or \
             not_allowed",
            validations.lookups.clone(),
        );
        registry.register(
            "angarium_keystone_cache_hits",
            "Requests whose token was remembered, by what was remembered: valid or refused",
            validations.hits.clone(),
        );
        registry.register(
            "angarium_keystone_cached_tokens",
            "Tokens whose validation is in memory",
            validations.known.clone(),
        );
        registry.register(
            "angarium_keystone_waiting_requests",
            "Requests that wait for Keystone",
            validations.waiting.clone(),
        );
        validations
    }

    pub(super) fn watch(&self, read: Read) {
        *self.read.lock() = Some(read);
    }

    pub(super) fn set(&self) {
        let read = self.read.lock();
        let Some(figures) = read.as_ref().map(|read| read()) else { return };
        let lookups = [
            ("valid", figures.valid),
            ("refused", figures.refused),
            ("failed", figures.failed),
            ("not_allowed", figures.not_allowed),
        ];
        let hits = [("valid", figures.remembered_valid), ("refused", figures.remembered_refused)];
        let set = |family: &Family<Labels, Counter>, counts: &[(&'static str, u64)]| {
            for (result, count) in counts {
                family.get_or_create(&Labels { result }).inner().store(*count, Ordering::Relaxed);
            }
        };
        set(&self.lookups, &lookups);
        set(&self.hits, &hits);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.known.get_or_create(&[]).set(number(figures.known));
        self.waiting.get_or_create(&[]).set(number(figures.waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(registry: &Registry) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, registry).unwrap();
        page
    }

    #[test]
    fn figures_are_shown_once_they_are_watched() {
        let mut registry = Registry::default();
        let validations = Validations::register(&mut registry);
        validations.set();
        assert!(!page(&registry).contains("angarium_keystone"), "{}", page(&registry));
        let figures = KeystoneFigures { valid: 3, remembered_refused: 5, known: 2, ..Default::default() };
        validations.watch(Box::new(move || figures));
        validations.set();
        for line in [
            "angarium_keystone_lookups_total{result=\"valid\"} 3\n",
            "angarium_keystone_lookups_total{result=\"failed\"} 0\n",
            "angarium_keystone_lookups_total{result=\"not_allowed\"} 0\n",
            "angarium_keystone_cache_hits_total{result=\"refused\"} 5\n",
            "angarium_keystone_cached_tokens{} 2\n",
            "angarium_keystone_waiting_requests{} 0\n",
        ] {
            assert!(page(&registry).contains(line), "{line} {}", page(&registry));
        }
    }
}
