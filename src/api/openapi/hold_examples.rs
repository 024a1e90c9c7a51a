//! Examples of holds.

use serde_json::{Value, json};

use super::examples::Bodies;

/// Returns the bodies of an operation on a hold.
pub(super) fn of_holds(operation: &str) -> Bodies {
    let terms = json!({"reason": "bad deploy 1.4.2", "post": true});
    match operation {
        "queue_hold_put" | "group_hold_put" => Bodies::both(json!({"reason": "bad deploy 1.4.2"}), hold()),
        "queue_hold_get" | "group_hold_get" => Bodies::answer(hold()),
        "pool_hold_put" => Bodies::both(terms, shared_hold("pool", "fast-1")),
        "pool_hold_get" => Bodies::answer(shared_hold("pool", "fast-1")),
        "project_hold_put" => Bodies::both(terms, shared_hold("project", "acme")),
        "project_hold_get" => Bodies::answer(shared_hold("project", "acme")),
        "holds_list" => Bodies::answer(json!({
            "holds": [shared_hold("pool", "fast-1"), shared_hold("project", "acme")],
            "links": [{"rel": "next", "href": "/v2/admin/holds?marker=project%2Facme"}]
        })),
        _ => Bodies::default(),
    }
}

/// Returns a hold of the resource of this kind, which refuses posts too.
fn shared_hold(kind: &str, name: &str) -> Value {
    let mut hold = hold();
    hold["post"] = json!(true);
    hold[kind] = json!(name);
    hold
}

fn hold() -> Value {
    json!({
        "claim": true, "post": false, "discard": false, "reason": "bad deploy 1.4.2", "by": "on call",
        "at": "2026-11-28T06:45:00Z"
    })
}
