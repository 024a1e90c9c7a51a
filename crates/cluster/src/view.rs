//! The assignment of slots to replicas. It is a pure function of the registered replicas, so all replicas compute the
//! same.

use std::collections::BTreeMap;

use uuid::Uuid;

use angarium_catalogue::{Component, ComponentState, UnreachedParts};
use angarium_core::ids::Slot;
use angarium_core::maps::HashMap;
use angarium_engine::placement::{Candidate, rendezvous};

/// Min number of other replicas needed to decide that a replica is cut off. With fewer, it is unknown which side fails.
const CUT_OFF_OTHERS: usize = 2;

/// The replicas that should own slots, each with its share, and the assignment of slots to them.
///
/// Among the serving replicas, those are preferred that the others can reach, and among these the ones that reach the
/// most pools in use. A pool does not count if none of them reaches it, or if none of them reports queues in it. The
/// preference applies only while every serving replica reports what it cannot reach: a program without these reports
/// does not evaluate them either, and all replicas must compute the same view. While one of them does not report which
/// pools are in use, all pools count, because that replica counts all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignmentView {
    /// Serving replicas with their weights, sorted.
    serving: Vec<(Uuid, u32)>,
    /// Serving replicas that get no slot, because others reach more. Sorted.
    passed_over: Vec<Uuid>,
    /// Whether the serving replicas run; otherwise all of them drain.
    is_running: bool,
    /// The owner of each slot; none while no replica serves.
    owners: Vec<Option<Uuid>>,
}

impl AssignmentView {
    /// Computes the view of these replicas. A starting replica gets no slot, and a draining one only while none runs:
    /// queues without an owner are worse than a replica that takes longer to drain.
    pub fn of<'c>(components: impl Iterator<Item = &'c Component> + Clone) -> Self {
        let with = |state: ComponentState| {
            let found = components.clone().filter(move |component| component.state == state);
            // A process that has just replaced another one of the same replica may be listed twice.
            found.map(|one| (one.instance, one)).collect::<BTreeMap<_, _>>()
        };
        let running = with(ComponentState::Running);
        let is_running = !running.is_empty();
        let serving = if is_running { running } else { with(ComponentState::Draining) };
        let serving: Vec<&Component> = serving.into_values().collect();
        let preferred = preferred(&serving);
        let names: Vec<String> = preferred.iter().map(|one| one.instance.to_string()).collect();
        let candidate = |(name, one): (_, &&Component)| Candidate {
            name: String::as_str(name),
            weight: one.weight,
            used: 0,
        };
        let candidates: Vec<Candidate<'_>> = names.iter().zip(&preferred).map(candidate).collect();
        let owner =
            |slot: Slot| rendezvous::choose(&candidates, &[slot.0]).map(|index| preferred[index].instance);
        let owners = Slot::all().map(owner).collect();
        let is_preferred = |one: &Component| preferred.iter().any(|other| other.instance == one.instance);
        let passed_over = serving.iter().filter(|one| !is_preferred(one)).map(|one| one.instance).collect();
        let serving = serving.iter().map(|one| (one.instance, one.weight)).collect();
        Self { serving, passed_over, is_running, owners }
    }

    /// Returns whether the same replicas serve as in another view, with the same weights.
    pub fn has_replicas_of(&self, other: &Self) -> bool {
        (self.is_running, &self.serving) == (other.is_running, &other.serving)
    }

    /// Returns whether each replica that serves in both views is passed over in both or in neither.
    pub fn prefers_as(&self, other: &Self) -> bool {
        let serves = |view: &Self, one: &Uuid| view.serving.iter().any(|(instance, _)| instance == one);
        let moved = |from: &Self, to: &Self| {
            from.passed_over.iter().any(|one| serves(to, one) && !to.passed_over.contains(one))
        };
        !moved(self, other) && !moved(other, self)
    }

    /// Returns the assigned owner of a slot.
    pub fn owner(&self, Slot(slot): Slot) -> Option<Uuid> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    /// Returns the serving replicas that get no slot, because others reach more. Sorted.
    pub fn yielding_replicas(&self) -> &[Uuid] {
        &self.passed_over
    }

    /// Returns the number of running replicas.
    pub fn running(&self) -> usize {
        if self.is_running { self.serving.len() } else { 0 }
    }

    /// Returns whether another replica runs that could take the slots of this one.
    pub fn has_heirs(&self, me: Uuid) -> bool {
        self.is_running && self.serving.iter().any(|(instance, _)| *instance != me)
    }
}

/// Returns the serving replicas that should own slots: see [`AssignmentView`].
fn preferred<'c>(serving: &[&'c Component]) -> Vec<&'c Component> {
    let unreached: Option<HashMap<Uuid, &UnreachedParts>> =
        serving.iter().map(|one| Some((one.instance, one.unreached.as_ref()?))).collect();
    let Some(unreached) = unreached else { return serving.to_vec() };
    // A replica without a weight gets no slot, whatever it reaches.
    let able: Vec<&Component> = serving.iter().copied().filter(|one| one.weight > 0).collect();
    let is_cut_off = |one: &Component| {
        let others = serving.iter().filter(|other| other.instance != one.instance);
        let silent = others.clone().filter(|other| unreached[&other.instance].peers.contains(&one.instance));
        let (others, silent) = (others.count(), silent.count());
        others >= CUT_OFF_OTHERS && silent * 2 > others
    };
    let mut best: Vec<&Component> = able.iter().copied().filter(|one| !is_cut_off(one)).collect();
    if best.is_empty() {
        best = able;
    }
    let used: Option<Vec<&Vec<String>>> = serving.iter().map(|one| one.used_pools.as_ref()).collect();
    let is_used = |pool: &String| used.as_ref().is_none_or(|used| used.iter().any(|one| one.contains(pool)));
    let misses = |one: &Component, pool: &String| unreached[&one.instance].pools.contains(pool);
    let missed = |one: &Component| {
        let pools = unreached[&one.instance].pools.iter().filter(|pool| is_used(pool));
        pools.filter(|pool| best.iter().any(|other| !misses(other, pool))).count()
    };
    let min_missed = best.iter().map(|one| missed(one)).min().unwrap_or_default();
    best.iter().copied().filter(|one| missed(one) == min_missed).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn component(number: u128, weight: u32, state: ComponentState) -> Component {
        let instance = Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let (address, version) = (String::new(), String::new());
        let unreached = Some(UnreachedParts::default());
        let used_pools = Some(Vec::new());
        Component {
            instance,
            address,
            version,
            schema: 1,
            state,
            weight,
            started: 0,
            unreached,
            used_pools,
            fingerprints: Vec::new(),
            secret_keys: Vec::new(),
            process: None,
        }
    }

    fn running(numbers: impl Iterator<Item = u128>) -> Vec<Component> {
        numbers.map(|number| component(number, 100, ComponentState::Running)).collect()
    }

    #[test]
    fn no_replica_gets_slots_while_none_serves() {
        let idle = [component(1, 100, ComponentState::Starting), component(2, 100, ComponentState::Starting)];
        let view = AssignmentView::of(idle.iter());
        assert!(Slot::all().all(|slot| view.owner(slot).is_none()));
        assert!(!view.has_heirs(Uuid::nil()));
    }

    #[test]
    fn draining_replicas_get_slots_only_while_none_runs() {
        let state = |number, state| component(number, 100, state);
        let mut all = vec![state(1, ComponentState::Draining), state(2, ComponentState::Starting)];
        let view = AssignmentView::of(all.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(all[0].instance)));
        assert_eq!((view.running(), view.has_heirs(all[1].instance)), (0, false));
        all.push(state(3, ComponentState::Running));
        let view = AssignmentView::of(all.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(all[2].instance)));
        assert_eq!((view.running(), view.has_heirs(all[0].instance)), (1, true));
    }

    #[test]
    fn one_alone_should_have_them_all() {
        let one = running(1..2);
        let view = AssignmentView::of(one.iter());
        assert!(Slot::all().all(|slot| view.owner(slot) == Some(one[0].instance)));
        assert!(!view.has_heirs(one[0].instance));
    }

    /// Returns the indexes of the replicas that own slots.
    fn owners(all: &[Component]) -> BTreeSet<usize> {
        let view = AssignmentView::of(all.iter());
        let number = |instance| all.iter().position(|one| one.instance == instance).unwrap();
        Slot::all().filter_map(|slot| view.owner(slot)).map(number).collect()
    }

    /// Makes a replica report that it does not reach these.
    fn misses(all: &mut [Component], one: usize, pools: &[&str], peers: &[usize]) {
        let peers = peers.iter().map(|peer| all[*peer].instance).collect();
        let pools = pools.iter().map(ToString::to_string).collect();
        // Every pool has queues.
        all[one].used_pools = Some(Vec::clone(&pools));
        all[one].unreached = Some(UnreachedParts { pools, peers });
    }

    #[test]
    fn slots_prefer_replicas_reaching_most_pools() {
        let mut all = running(1..4);
        let before = AssignmentView::of(all.iter());
        misses(&mut all, 0, &["a"], &[]);
        assert_eq!(owners(&all), [1, 2].into());
        // Slots of the other replicas do not move.
        let after = AssignmentView::of(all.iter());
        let moved: Vec<Slot> = Slot::all().filter(|slot| before.owner(*slot) != after.owner(*slot)).collect();
        assert!(!moved.is_empty());
        assert!(moved.into_iter().all(|slot| before.owner(slot) == Some(all[0].instance)));
        misses(&mut all, 1, &["a", "b"], &[]);
        assert_eq!(owners(&all), [2].into());
        misses(&mut all, 2, &["a", "b"], &[]);
        assert_eq!(owners(&all), [0].into(), "none reaches a, and one reaches b");
    }

    #[test]
    fn pool_without_queues_moves_no_slot() {
        let mut all = running(1..4);
        misses(&mut all, 0, &["a"], &[]);
        misses(&mut all, 1, &["a", "b"], &[]);
        all.iter_mut().for_each(|one| one.used_pools = Some(vec!["c".to_owned()]));
        assert_eq!(owners(&all), [0, 1, 2].into(), "no queue lies in what they miss");
        all[2].used_pools = Some(vec!["b".to_owned(), "c".to_owned()]);
        assert_eq!(owners(&all), [0, 2].into());
        // Every replica that serves a queue of the pool reports it, the one that misses it too.
        all[0].used_pools = Some(vec!["a".to_owned()]);
        assert_eq!(owners(&all), [2].into());
    }

    #[test]
    fn all_pools_count_while_a_replica_does_not_tell_their_use() {
        let mut all = running(1..4);
        misses(&mut all, 0, &["a"], &[]);
        all.iter_mut().for_each(|one| one.used_pools = Some(Vec::new()));
        all[2].used_pools = None;
        assert_eq!(owners(&all), [1, 2].into());
    }

    #[test]
    fn pool_reached_by_none_moves_no_slot() {
        let mut all = running(1..4);
        (0..3).for_each(|one| misses(&mut all, one, &["a"], &[]));
        assert_eq!(owners(&all), [0, 1, 2].into());
    }

    #[test]
    fn replica_unreached_by_most_of_two_others_gets_none() {
        let mut all = running(1..4);
        misses(&mut all, 1, &[], &[0]);
        assert_eq!(owners(&all), [0, 1, 2].into(), "one of two is not most");
        misses(&mut all, 2, &[], &[0]);
        assert_eq!(owners(&all), [1, 2].into());
        // It reaches no replica either, and reports that.
        misses(&mut all, 0, &[], &[1, 2]);
        assert_eq!(owners(&all), [1, 2].into());
        // It is cut off even if it reaches more pools.
        misses(&mut all, 1, &["a"], &[0]);
        misses(&mut all, 2, &["a"], &[0]);
        assert_eq!(owners(&all), [1, 2].into());
        misses(&mut all, 1, &[], &[0, 2]);
        misses(&mut all, 2, &[], &[0, 1]);
        assert_eq!(owners(&all), [0, 1, 2].into(), "all are cut off alike");
    }

    #[test]
    fn two_replicas_cannot_cut_each_other_off() {
        let mut all = running(1..3);
        misses(&mut all, 0, &[], &[1]);
        assert_eq!(owners(&all), [0, 1].into());
    }

    #[test]
    fn program_without_reports_keeps_plain_view() {
        let mut all = running(1..4);
        misses(&mut all, 0, &["a"], &[]);
        all[1].unreached = None;
        assert_eq!(owners(&all), [0, 1, 2].into());
    }

    #[test]
    fn replica_without_weight_is_preferred_to_none() {
        let mut all = running(1..4);
        all[2].weight = 0;
        misses(&mut all, 0, &["a"], &[]);
        misses(&mut all, 1, &["a"], &[]);
        assert_eq!(owners(&all), [0, 1].into());
    }

    #[test]
    fn preference_changes_apart_from_replicas() {
        let mut all = running(1..4);
        let plain = AssignmentView::of(all.iter());
        misses(&mut all, 0, &["a"], &[]);
        let cut = AssignmentView::of(all.iter());
        assert!(cut.has_replicas_of(&plain) && !cut.prefers_as(&plain) && !plain.prefers_as(&cut));
        // The replica that was passed over leaves: that is no change of preference.
        let left = AssignmentView::of(all[1..].iter());
        assert!(!left.has_replicas_of(&cut) && left.prefers_as(&cut) && cut.prefers_as(&left));
    }

    proptest! {
        /// The expected share of one of N replicas is 256 / N; the test allows five standard deviations of the
        /// binomial.
        #[test]
        fn joining_or_leaving_replica_moves_only_its_share(seed in 0_u128..1 << 60, count in 2_u32..12) {
            let all = running((seed..).take(count as usize + 1));
            let (few, many) = (AssignmentView::of(all[1..].iter()), AssignmentView::of(all.iter()));
            let moved: Vec<Slot> = Slot::all().filter(|slot| few.owner(*slot) != many.owner(*slot)).collect();
            prop_assert!(moved.iter().all(|slot| many.owner(*slot) == Some(all[0].instance)));
            let share = 1.0 / f64::from(count + 1);
            let max = 256.0 * share + 5.0 * (256.0 * share * (1.0 - share)).sqrt();
            prop_assert!((moved.len() as f64) < max, "{} slots of {} replicas moved", moved.len(), count + 1);
        }

        #[test]
        fn the_order_of_replicas_does_not_matter(seed in 0_u128..1 << 60, count in 1_usize..8) {
            let mut all = running((seed..).take(count));
            let view = AssignmentView::of(all.iter());
            all.reverse();
            prop_assert_eq!(view, AssignmentView::of(all.iter()));
        }
    }
}
