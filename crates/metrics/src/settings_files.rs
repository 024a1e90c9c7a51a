//! Settings files that are read while the service runs, and which of them were refused. After a refusal the previous
//! contents stay in force, so an operator who does not notice it believes that a token or a key is revoked.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    setting: &'static str,
}

/// The state of each file that was read.
pub(super) struct SettingsFiles {
    gauge: Family<Labels, Gauge>,
    refused: Mutex<BTreeSet<&'static str>>,
}

impl SettingsFiles {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauge = Family::default();
        registry.register(
            "angarium_settings_file_refused",
            "1 while the file of a setting was changed and could not be used: what it said before still holds",
            Family::clone(&gauge),
        );
        Self { gauge, refused: Mutex::default() }
    }

    pub(super) fn accept(&self, setting: &'static str) {
        self.refused.lock().remove(setting);
        self.gauge.get_or_create(&Labels { setting }).set(0);
    }

    pub(super) fn refuse(&self, setting: &'static str) {
        self.refused.lock().insert(setting);
        self.gauge.get_or_create(&Labels { setting }).set(1);
    }

    pub(super) fn refused(&self) -> Vec<&'static str> {
        self.refused.lock().iter().copied().collect()
    }
}
