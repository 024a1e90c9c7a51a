//! Notifications for the service manager: systemd, or another one that has set `NOTIFY_SOCKET`.
//!
//! This module sends `READY`, `STOPPING`, `STATUS` and `WATCHDOG`. The proof of life is a request for `/livez` through
//! the same layers as client requests, in its own task: a runtime that runs no tasks sends no notification, and the
//! service manager restarts it.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::ServiceExt;
use tracing::warn;

use super::exchange::App;

/// Interval of the status when no watchdog requires a shorter one.
const LOOK: Duration = Duration::from_secs(5);

/// Notifications per watchdog interval: a single late one does not end the service.
const BEATS: u32 = 3;

/// Tells the service manager, if there is one, that the service stops. The stopping code calls this directly, because a
/// task might run too late.
pub(super) fn stopping() {
    if std::env::var_os("NOTIFY_SOCKET").is_some() {
        tell(&[NotifyState::Stopping, NotifyState::Status("finishing requests")]);
    }
}

/// Sends the status and the proofs of life to the service manager, if there is one. Sends the status until `stop`, and
/// proofs of life until this future is dropped. `state` returns the status text.
pub(super) async fn report<A: App>(app: A, stop: CancellationToken, state: impl Fn() -> String) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero());
    let look = watchdog.map_or(LOOK, |interval| (interval / BEATS).min(LOOK));
    let is_alive = || prove_life(app.clone(), look);
    beat(look, is_alive, {
        let (mut last, mut is_ready) = (String::new(), false);
        move || {
            if watchdog.is_some() {
                tell(&[NotifyState::Watchdog]);
            }
            let now = state();
            if !stop.is_cancelled() && (now != last || !is_ready) {
                let ready = if is_ready { Vec::new() } else { vec![NotifyState::Ready] };
                tell(&[ready, vec![NotifyState::Status(&now)]].concat());
                (last, is_ready) = (now, true);
            }
        }
    })
    .await;
}

/// Calls `tell` at once and then at each interval, after a proof of life; without a proof it skips the call.
async fn beat<L: Future<Output = bool>>(look: Duration, is_alive: impl Fn() -> L, mut tell: impl FnMut()) {
    let mut looks = interval(look);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if is_alive().await {
            tell();
        }
    }
}

/// Whether a request for `/livez` succeeds within the time.
async fn prove_life<A: App>(app: A, within: Duration) -> bool {
    let Ok(request) = Request::get("/livez").body(Body::empty()) else { return false };
    // A late request is aborted with its task.
    let asked = AbortOnDropHandle::new(TaskTracker::new().spawn(app.oneshot(request)));
    let answered = timeout(within, asked).await;
    matches!(answered, Ok(Ok(Ok(response))) if response.status() == StatusCode::OK)
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "service manager not told");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn beats_in_a_minute<L: Future<Output = bool>>(is_alive: impl Fn() -> L) -> u32 {
        let beats = AtomicU32::new(0);
        let count = || _ = beats.fetch_add(1, Ordering::Relaxed);
        let _ = timeout(Duration::from_secs(60), beat(Duration::from_secs(10), is_alive, count)).await;
        beats.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn beats_need_a_proof_of_life() {
        assert!(beats_in_a_minute(|| async { true }).await >= 6);
        assert_eq!(beats_in_a_minute(|| async { false }).await, 0);
        assert_eq!(beats_in_a_minute(std::future::pending).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_or_refusing_app_is_not_alive() {
        let of =
            |status| axum::Router::new().route("/livez", axum::routing::get(move || async move { status }));
        assert!(prove_life(of(StatusCode::OK), LOOK).await);
        assert!(!prove_life(of(StatusCode::SERVICE_UNAVAILABLE), LOOK).await);
        let hangs =
            axum::Router::new().route("/livez", axum::routing::get(std::future::pending::<StatusCode>));
        assert!(!prove_life(hangs, LOOK).await);
    }
}
