//! Makes a failing scenario smaller: fewer replicas, clients, queues and steps, fewer kinds of faults and verbs. Each
//! smaller scenario has other interleavings, so a part is left out only if some promise is still broken without it.

use crate::run::run;
use crate::scenario::Scenario;
use crate::trace::Trace;

/// A smaller scenario that still breaks a promise.
#[derive(Debug)]
pub struct Shrunk {
    /// The scenario.
    pub scenario: Scenario,
    /// The number of runs that were tried.
    pub runs: u32,
}

/// Returns a smaller scenario that fails, after at most `max_runs` runs. A scenario that does not fail is returned as
/// it is.
pub fn shrink(scenario: Scenario, max_runs: u32) -> Shrunk {
    let fails = |scenario: &Scenario| !run(scenario, Trace::hashed()).violations.is_empty();
    let mut shrunk = Shrunk { scenario, runs: 1 };
    if !fails(&shrunk.scenario) {
        return shrunk;
    }
    while shrunk.runs < max_runs {
        let smaller = candidates(&shrunk.scenario).into_iter().find(|candidate| {
            shrunk.runs += 1;
            shrunk.runs <= max_runs && fails(candidate)
        });
        let Some(smaller) = smaller else { break };
        shrunk.scenario = smaller;
    }
    shrunk
}

/// Returns scenarios that are one step smaller, the greatest steps first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let with = |change: &dyn Fn(&mut Scenario)| {
        let mut smaller = scenario.clone();
        change(&mut smaller);
        smaller
    };
    let mut all = Vec::new();
    let sizes: [fn(&mut Scenario) -> &mut usize; 4] = [
        |scenario| &mut scenario.steps,
        |scenario| &mut scenario.clients,
        |scenario| &mut scenario.queues,
        |scenario| &mut scenario.cluster.replicas,
    ];
    for size in sizes {
        let present = *size(&mut scenario.clone());
        let mut tried = present;
        for less in [present / 2, present * 3 / 4, present.saturating_sub(1)] {
            if less > 0 && less < present && less != tried {
                tried = less;
                all.push(with(&|smaller| *size(smaller) = less));
            }
        }
    }
    if scenario.small_bounds.is_some() {
        all.push(with(&|smaller| smaller.small_bounds = None));
    }
    all.extend(scenario.rates.possible().map(|fault| with(&|smaller| smaller.rates.set(fault, 0))));
    all.extend(scenario.verbs.iter().map(|verb| with(&|smaller| smaller.verbs.remove(verb))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_is_smaller_and_a_least_scenario_has_none() {
        let scenario = Scenario::of_seed(1);
        let size = |scenario: &Scenario| {
            let (faults, verbs) = (scenario.rates.possible().count(), scenario.verbs.iter().count());
            let Scenario { clients, steps, queues, cluster, small_bounds, .. } = scenario;
            clients + steps + queues + cluster.replicas + faults + verbs + usize::from(small_bounds.is_some())
        };
        let mut least = scenario;
        while let Some(smaller) = candidates(&least).pop() {
            assert!(candidates(&least).iter().all(|one| size(one) < size(&least)));
            least = smaller;
        }
        assert_eq!(size(&least), 4);
    }
}
