//! Holders, refusals and evictions.

use super::*;

const BOUNDS: Bounds = Bounds { total: 400, reserve: 0, share: 100, max_wait: Duration::from_millis(100) };

async fn pass(millis: u64) {
    tokio::time::advance(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn user_over_its_share_is_refused_and_others_are_not() {
    let budget = Budget::new(BOUNDS);
    let (first, second, other) = (budget.open("a"), budget.open("a"), budget.open("b"));
    assert_eq!(first.add(60), Ok(()));
    assert_eq!(second.add(60), Err(BudgetRefusal::Full), "the first one is not slow yet");
    assert_eq!(other.add(100), Ok(()));
    drop(second);
    assert_eq!(budget.used(), 160);
    drop((first, other));
    assert_eq!((budget.used(), budget.0.users.lock().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn slowest_holder_of_the_user_makes_room() {
    let budget = Budget::new(BOUNDS);
    let slowest = budget.open("a");
    slowest.add(50).unwrap();
    pass(10).await;
    let slower = budget.open("a");
    slower.add(50).unwrap();
    pass(200).await;
    let next = budget.open("a");
    assert_eq!(next.add(40), Ok(()));
    assert!(slowest.is_evicted() && !slower.is_evicted());
    assert_eq!((slowest.add(1), budget.used()), (Err(BudgetRefusal::Slow), 91));
    assert_eq!(budget.usage(), Usage { used: 91, total: 400, refused: 0, evicted: 1 });
    assert_eq!(budget.open("a").add(100), Err(BudgetRefusal::Full));
    let usage = budget.usage();
    assert_eq!((usage.refused, usage.evicted), (1, 2), "the other slow one had to go too");
}

#[tokio::test(start_paused = true)]
async fn largest_user_makes_room_when_all_is_used() {
    let budget = Budget::new(BOUNDS);
    let large = budget.open("a");
    large.add(100).unwrap();
    let small: Vec<_> = ["b", "c", "d", "e", "f"].map(|user| budget.open(user)).into();
    small.iter().for_each(|holder| holder.add(60).unwrap());
    pass(200).await;
    let next = budget.open("g");
    assert_eq!(next.add(60), Ok(()));
    assert!(large.is_evicted() && small.iter().all(|holder| !holder.is_evicted()));
}

#[tokio::test(start_paused = true)]
async fn smaller_user_makes_room_when_largest_is_not_slow() {
    let budget = Budget::new(BOUNDS);
    let kept = budget.open("a");
    kept.add(100).unwrap();
    kept.keep();
    let slow = ["b", "c", "d"].map(|user| budget.open(user));
    slow.iter().for_each(|holder| holder.add(90).unwrap());
    pass(200).await;
    let fast = budget.open("e");
    assert_eq!(fast.add(95), Ok(()));
    assert!(!kept.is_evicted() && slow.iter().filter(|holder| holder.is_evicted()).count() == 1);
}

#[tokio::test(start_paused = true)]
async fn holders_leave_room_to_small_amounts() {
    let budget = Budget::new(Bounds { reserve: 100, ..BOUNDS });
    let holders = ["a", "b", "c"].map(|user| budget.open(user));
    holders.iter().for_each(|holder| holder.add(100).unwrap());
    assert_eq!(budget.open("d").add(1), Err(BudgetRefusal::Full), "the rest is for small amounts");
    let reserved = budget.reserve(100).unwrap();
    assert_eq!(budget.reserve(1).unwrap_err(), BudgetRefusal::Full);
    drop(reserved);
    // Small amounts may use the bytes that holders leave free.
    drop(holders);
    let _reserved = budget.reserve(350).unwrap();
    assert_eq!(budget.open("a").add(60), Err(BudgetRefusal::Full));
}

#[tokio::test(start_paused = true)]
async fn kept_holder_is_not_evicted() {
    let budget = Budget::new(BOUNDS);
    let kept = budget.open("a");
    kept.add(100).unwrap();
    kept.keep();
    pass(200).await;
    assert_eq!(budget.open("a").add(1), Err(BudgetRefusal::Full));
    assert!(!kept.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn small_amounts_count_for_the_whole_alone() {
    let budget: Budget<&str> = Budget::new(BOUNDS);
    let reserved: Vec<_> = (0..4).map(|_| budget.reserve(100).unwrap()).collect();
    assert_eq!(budget.reserve(1).unwrap_err(), BudgetRefusal::Full);
    drop(reserved);
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn progress_is_a_step_and_not_a_byte() {
    let budget = Budget::new(Bounds { total: 10 * STEP, share: 4 * STEP, ..BOUNDS });
    let (dribbling, steady) = (budget.open("a"), budget.open("a"));
    dribbling.add(STEP).unwrap();
    steady.add(STEP).unwrap();
    for _ in 0..10 {
        pass(50).await;
        dribbling.add(1).unwrap();
    }
    steady.add(STEP).unwrap();
    let next = budget.open("a");
    assert_eq!(next.add(2 * STEP), Ok(()));
    assert!(dribbling.is_evicted() && !steady.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn present_bytes_evict_the_slowest() {
    let budget = Budget::new(Bounds { share: 200, total: 200, max_wait: Duration::ZERO, ..BOUNDS });
    let slow = budget.open("a");
    slow.add_anyway(160);
    pass(1).await;
    let next = budget.open("b");
    next.add_anyway(150);
    assert!(slow.is_evicted() && !next.is_evicted());
    next.release(150);
    next.release(1);
    slow.release(150);
    assert_eq!(budget.used(), 0);
}
