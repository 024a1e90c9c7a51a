//! The text of `top`: a line of totals, the replicas, and as many queues as fit. Pure.

use super::snapshot::{Replica, Snapshot};
use crate::failure::printable;
use crate::queue_counts::QueueEntry;
use crate::table::Table;

/// Formats a snapshot within the columns and lines of the screen; without a screen, all of it.
pub fn page(snapshot: &Snapshot, base: &str, screen: Option<(u16, u16)>) -> String {
    let (width, height) =
        screen.map_or((None, usize::MAX), |(width, height)| (Some(width), usize::from(height)));
    let mut page = sums(snapshot, base);
    if let Some(replicas) = &snapshot.replicas {
        let rows: Vec<_> = replicas.iter().map(row).collect();
        let heads = &["REPLICA", "ADDRESS", "STATE", "SLOTS", "OPEN", "WAITING", "CLAIMED"];
        page.push_str(&format!("\n{}", Table::within(heads, width).with_head(&rows)));
    }
    page.push('\n');
    // The head, and a line for omitted queues.
    let room = height.saturating_sub(page.lines().count() + 2);
    let rows: Vec<_> = snapshot.queues.iter().take(room).map(queue_row).collect();
    let heads = &["QUEUE", "READY", "CLAIMED", "DELAYED", "TRANSFER", "OLDEST", "IN/S", "OUT/S"];
    page.push_str(&Table::within(heads, width).with_head(&rows));
    let left_out = snapshot.queues.len() - rows.len();
    match (left_out, snapshot.is_cut) {
        (0, false) => {}
        (0, true) => page.push_str("there may be more queues: --limit looks at more\n"),
        (more, _) => page.push_str(&format!("{more} more queues\n")),
    }
    page
}

fn sums(snapshot: &Snapshot, base: &str) -> String {
    let sum = |count: fn(&QueueEntry) -> u64| snapshot.queues.iter().map(count).sum::<u64>();
    let ready = sum(|queue| queue.stats.as_ref().map_or(0, |stats| stats.ready));
    let claimed = sum(|queue| queue.stats.as_ref().map_or(0, |stats| stats.claimed));
    let delayed = sum(|queue| queue.stats.as_ref().map_or(0, |stats| stats.delayed));
    let queues = match snapshot.queues.len() {
        1 => "1 queue".to_owned(),
        queues => format!("{queues} queues"),
    };
    let base = printable(base);
    let sums = format!("{base}  {queues}  {ready} ready  {claimed} claimed  {delayed} delayed\n");
    if let Some(seconds) = snapshot.silence {
        return format!("{sums}no answer for {seconds} s\n");
    }
    match &snapshot.last_error {
        Some(last_error) => format!("{sums}{}\n", printable(last_error.lines().next().unwrap_or_default())),
        None => sums,
    }
}

fn row(replica: &Replica) -> Vec<String> {
    let mut row = vec![replica.instance.clone(), replica.address.clone()];
    let Some(serves) = &replica.serves else {
        row.extend(["silent", "-", "-", "-", "-"].map(ToOwned::to_owned));
        return row;
    };
    let state = match (replica.answer.given, serves.ready) {
        (false, _) => "silent",
        (true, true) => "ready",
        // A lost or suspended session tells more than `not ready`.
        (true, false) if serves.session == "connected" => "not ready",
        (true, false) => &serves.session,
    };
    row.push(state.to_owned());
    let counts = [serves.slots, serves.open_queues, serves.waiting_claims, serves.claimed_messages];
    row.extend(counts.map(|count| count.to_string()));
    row
}

fn queue_row(queue: &QueueEntry) -> Vec<String> {
    let mut row = vec![queue.name.clone()];
    row.extend(queue.counts());
    row
}
