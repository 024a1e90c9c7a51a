//! The settings of a queue's engine: what it honours of the queue's attributes. An attribute that the engine honours is a
//! field here and a line in [`EngineSettings::of`].

use super::queue::QueueEngine;
use angarium_core::attributes::Attributes;
use angarium_core::limits::Limits;
use angarium_core::message::Retention;
use angarium_core::names::QueueName;

/// The settings of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// How long messages are kept that live by the queue's retention.
    pub retention: Retention,
    /// Claims after which a message is a dead letter. None in a queue without another queue for them.
    pub max_claims: Option<u32>,
}

impl EngineSettings {
    /// Settings of a queue of which no attribute is known: it keeps its messages as long as possible.
    pub const UNSET: Self = Self { retention: Retention::LONGEST, max_claims: None };

    /// The settings of the queue `name` by its attributes. What they leave open has the default of the service.
    pub fn of(attributes: &Attributes, name: &QueueName, limits: &Limits) -> Self {
        let dead_letters = attributes.dead_letters().filter(|(target, _)| *target != name);
        Self { retention: attributes.retention(limits), max_claims: dead_letters.map(|(_, most)| most) }
    }
}

impl QueueEngine {
    /// Follows these settings from now on, for the messages that the queue has too. It is called when the queue is opened,
    /// and after every change of its attributes.
    pub fn follow(&mut self, settings: EngineSettings) {
        self.settings = settings;
    }

    /// How long messages are kept that live by the queue's retention.
    pub fn retention(&self) -> Retention {
        self.settings.retention
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_no_target_of_its_own_dead_letters() {
        let name = |name| QueueName::new(name).unwrap();
        let attributes = Attributes {
            dead_letter_queue: Some(name("failed")),
            max_claim_count: Some(3),
            ..Attributes::default()
        };
        let of = |queue| EngineSettings::of(&attributes, &name(queue), &Limits::ZAQAR);
        assert_eq!(of("orders").max_claims, Some(3));
        assert_eq!(of("failed").max_claims, None);
        assert_eq!(of("orders").retention, Retention::new(3_600));
    }
}
