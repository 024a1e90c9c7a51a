//! Which replica should have which slot: the same for everybody who sees the same replicas. Pure.

use std::collections::HashMap;

use uuid::Uuid;

use crate::catalogue::{Component, ComponentState};
use crate::domain::ids::Slot;
use crate::placement::{Candidate, rendezvous};

/// The replicas that should have slots, each with its share, and which of them should have which slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// In order.
    serving: Vec<(Uuid, u32)>,
    /// Whether these run; otherwise all of them drain.
    is_running: bool,
    /// By slot; none while nobody serves.
    owners: Vec<Option<Uuid>>,
}

impl View {
    /// The view of these replicas. Those that start should have no slot, and those that drain only while none runs: queues
    /// that nobody serves are worse than a replica that is not empty yet.
    pub fn of<'c>(components: impl Iterator<Item = &'c Component> + Clone) -> Self {
        let with = |state: ComponentState| {
            let found = components.clone().filter(move |component| component.state == state);
            // A process that has just taken the place of another one of the same replica may be there twice.
            found.map(|one| (one.instance, one.weight)).collect::<HashMap<_, _>>()
        };
        let running = with(ComponentState::Running);
        let is_running = !running.is_empty();
        let serving = if is_running { running } else { with(ComponentState::Draining) };
        let mut serving: Vec<(Uuid, u32)> = serving.into_iter().collect();
        serving.sort_unstable();
        let names: Vec<String> = serving.iter().map(|(instance, _)| instance.to_string()).collect();
        let candidate = |(name, (_, weight)): (_, &(Uuid, u32))| Candidate {
            name: String::as_str(name),
            weight: *weight,
            used: 0,
        };
        let candidates: Vec<Candidate<'_>> = names.iter().zip(&serving).map(candidate).collect();
        let owner = |slot: Slot| rendezvous::choose(&candidates, &[slot.0]).map(|index| serving[index].0);
        let owners = Slot::all().map(owner).collect();
        Self { serving, is_running, owners }
    }

    /// Who should have a slot.
    pub fn owner(&self, Slot(slot): Slot) -> Option<Uuid> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    /// How many run.
    pub fn running(&self) -> usize {
        if self.is_running { self.serving.len() } else { 0 }
    }

    /// Whether somebody runs beside this replica, who could take its slots.
    pub fn has_heirs(&self, me: Uuid) -> bool {
        self.is_running && self.serving.iter().any(|(instance, _)| *instance != me)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn component(number: u128, weight: u32, state: ComponentState) -> Component {
        let instance = Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let (address, version) = (String::new(), String::new());
        Component { instance, address, version, schema: 1, state, weight, started: 0 }
    }

    fn running(numbers: impl Iterator<Item = u128>) -> Vec<Component> {
        numbers.map(|number| component(number, 100, ComponentState::Running)).collect()
    }

    #[test]
    fn nobody_should_have_a_slot_while_nobody_serves() {
        let idle = [component(1, 100, ComponentState::Starting), component(2, 100, ComponentState::Starting)];
        let view = View::of(idle.iter());
        assert!(Slot::all().all(|slot| view.owner(slot).is_none()));
        assert!(!view.has_heirs(Uuid::nil()));
    }

    #[test]
    fn those_that_drain_should_have_slots_only_while_none_runs() {
        let state = |number, state| component(number, 100, state);
        let mut all = vec![state(1, ComponentState::Draining), state(2, ComponentState::Starting)];
        let view = View::of(all.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(all[0].instance)));
        assert_eq!((view.running(), view.has_heirs(all[1].instance)), (0, false));
        all.push(state(3, ComponentState::Running));
        let view = View::of(all.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(all[2].instance)));
        assert_eq!((view.running(), view.has_heirs(all[0].instance)), (1, true));
    }

    #[test]
    fn one_alone_should_have_them_all() {
        let one = running(1..2);
        let view = View::of(one.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(one[0].instance)));
        assert!(!view.has_heirs(one[0].instance));
    }

    proptest! {
        /// Of N the expected share is 256 / N; five standard deviations of the binomial are allowed for.
        #[test]
        fn one_that_comes_or_goes_moves_its_share_and_no_more(seed in 0_u128..1 << 60, count in 2_u32..12) {
            let all = running((seed..).take(count as usize + 1));
            let (few, many) = (View::of(all[1..].iter()), View::of(all.iter()));
            let moved: Vec<Slot> = Slot::all().filter(|slot| few.owner(*slot) != many.owner(*slot)).collect();
            prop_assert!(moved.iter().all(|slot| many.owner(*slot) == Some(all[0].instance)));
            let share = 1.0 / f64::from(count + 1);
            let most = 256.0 * share + 5.0 * (256.0 * share * (1.0 - share)).sqrt();
            prop_assert!((moved.len() as f64) < most, "{} slots of {} replicas moved", moved.len(), count + 1);
        }

        #[test]
        fn the_order_of_replicas_does_not_matter(seed in 0_u128..1 << 60, count in 1_usize..8) {
            let mut all = running((seed..).take(count));
            let view = View::of(all.iter());
            all.reverse();
            prop_assert_eq!(view, View::of(all.iter()));
        }
    }
}
