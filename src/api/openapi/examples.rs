//! An example of the body of every request and of every successful answer, by the id of the operation. The schema of a
//! body is defined by its type, not here.

use serde_json::{Value, json};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, OpenApi, RefOr};

use super::hold_examples::of_holds;
use super::topic_examples::of_topics;

const MESSAGE: &str = "019ab1c2-5f07-7d3e-8a41-3c5d7e9f1b20";
/// A part of the metrics page.
const METRICS: &str = "# HELP angarium_messages Messages in the queues that were used since the start, by state.\n\
    # TYPE angarium_messages gauge\n\
    angarium_messages{project=\"000000000000\",queue=\"invoices\",state=\"ready\"} 3\n\
    # EOF\n";
const FORWARDED: &str = "019ab1c2-6a11-7b0c-9d52-4e6f8a1b2c31";
const TASK: &str = "9b1f7d7e-6f0a-4a53-8f0d-2d2f4c7a1e55";
const CLAIM: &str = "4f6f1c0e-9d7a-4a52-b1b3-6f0d2c9e8a17";

/// The bodies of an operation, as far as it has them.
#[derive(Default)]
pub(super) struct Bodies {
    request: Option<Value>,
    answer: Option<Value>,
}

impl Bodies {
    /// Returns the bodies with every text changed by `change`.
    pub(super) fn map(self, change: fn(Value) -> Value) -> Self {
        Self { request: self.request.map(change), answer: self.answer.map(change) }
    }

    /// Returns the answer; null when there is none.
    pub(super) fn into_answer(self) -> Value {
        self.answer.unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.request.is_none() && self.answer.is_none()
    }

    pub(super) fn request(body: Value) -> Self {
        Self { request: Some(body), answer: None }
    }

    pub(super) fn answer(body: Value) -> Self {
        Self { request: None, answer: Some(body) }
    }

    pub(super) fn both(request: Value, answer: Value) -> Self {
        Self { request: Some(request), answer: Some(answer) }
    }
}

/// Writes the examples into the document.
pub fn fill_in(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in methods.into_iter().flatten() {
            fill_in_operation(operation);
        }
    }
}

fn fill_in_operation(operation: &mut Operation) {
    let bodies = bodies(operation.operation_id.as_deref().unwrap_or_default());
    if let (Some(example), Some(RefOr::T(request))) = (bodies.request, &mut operation.request_body) {
        request.content.values_mut().for_each(|content| set(content, &example));
    }
    let Some(example) = bodies.answer else { return };
    for (status, response) in &mut operation.responses.responses {
        if let (b'2' | b'3', RefOr::T(response)) = (status.as_bytes().first().unwrap_or(&b'5'), response) {
            response.content.values_mut().for_each(|content| set(content, &example));
        }
    }
}

fn set(content: &mut RefOr<Content>, example: &Value) {
    if let RefOr::T(content) = content
        && content.example.is_none()
    {
        content.example = Some(example.clone());
    }
}

/// Returns the examples of an operation; empty for one without bodies. A test of the document fails if an operation
/// with bodies is missing here.
pub(super) fn bodies(operation: &str) -> Bodies {
    match operation {
        "versions_list"
        | "resources_list"
        | "openapi_document_get"
        | "reference_get"
        | "health_get"
        | "service_stats_get"
        | "components_list"
        | "receipt_key_create"
        | "readiness_get"
        | "backup_create"
        | "metrics_get" => of_the_service(operation),
        "queues_list"
        | "queue_create"
        | "queue_get"
        | "queue_update"
        | "queue_stats_get"
        | "queue_purge"
        | "queue_explanation_get"
        | "quota_get" => of_queues(operation),
        "queue_migration_start" | "queue_migration_get" | "queue_migration_cancel" => {
            of_migrations(operation)
        }
        "task_start" | "tasks_list" | "task_get" => of_tasks(operation),
        "messages_post"
        | "messages_list"
        | "messages_delete"
        | "message_get"
        | "message_explanation_get"
        | "message_requeue"
        | "message_visibility_update"
        | "messages_batch_post"
        | "messages_peek"
        | "messages_batch_delete" => of_messages(operation),
        "claim_create" | "claim_get" | "claim_renew" | "claim_settle" | "claims_list" => of_claims(operation),
        "pools_list" | "pool_drain_start" | "pool_drain_get" | "pool_map_get" | "balance_plan_get"
        | "balance_start" | "pool_get" | "pool_put" | "pool_update" => of_pools(operation),
        "queue_hold_put" | "queue_hold_get" | "pool_hold_put" | "pool_hold_get" | "project_hold_put"
        | "project_hold_get" | "holds_list" | "group_hold_put" | "group_hold_get" => of_holds(operation),
        "flavors_list" | "flavor_get" | "flavor_put" | "flavor_update" => of_flavors(operation),
        _ => of_topics(operation),
    }
}

/// Returns a replica and its statements.
fn serving() -> Value {
    json!({
        "instance": "6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34",
        "address": "10.0.0.5:8889",
        "answer": {"given": true, "age": 0.0},
        "serves": {
            "ready": true,
            "session": "connected",
            "slots": 256,
            "open_queues": 3,
            "waiting_claims": 1, "claimed_messages": 4,
            "silent_pools": []
        }
    })
}

fn of_the_service(operation: &str) -> Bodies {
    match operation {
        "versions_list" => Bodies::answer(json!({"versions": [{
            "id": "2",
            "status": "CURRENT",
            "updated": "2014-9-24T04:06:47Z",
            "media-types": [{
                "base": "application/json",
                "type": "application/vnd.openstack.messaging-v2+json"
            }],
            "links": [{"href": "/v2/", "rel": "self"}]
        }]})),
        "resources_list" => Bodies::answer(json!({"resources": {"rel/queue_stats": {
            "href-template": "/v2/queues/{queue_name}/stats",
            "href-vars": {"queue_name": "param/queue_name"},
            "hints": {"allow": ["GET"], "formats": {"application/json": {}}}
        }}})),
        "openapi_document_get" => Bodies::answer(json!({
            "openapi": "3.1.0",
            "info": {"title": "Angarium", "version": env!("CARGO_PKG_VERSION")},
            "paths": {}
        })),
        "reference_get" => Bodies::answer(json!("<!doctype html><html lang=\"en\"></html>")),
        "receipt_key_create" => Bodies::answer(json!({
            "since": "2026-11-29T22:01:00Z", "earlier_expire": "2026-11-30T10:01:00Z"
        })),
        "components_list" => Bodies::answer(json!({
            "answered_by": "6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34",
            "schema": 1, "unowned_slots": [],
            "components": [{
                "instance": "6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34", "address": "10.0.0.5:8889", "version": "0.1.0",
                "schema": 2, "state": "running", "weight": 100, "started": "2026-01-12T09:30:00Z", "slots": [0, 7, 254],
                "passed_over": false, "unreached_pools": [], "unreached_replicas": []
            }]
        })),
        "health_get" => Bodies::answer(json!({
            "catalog_reachable": true,
            "storage_reachable": true,
            "ready": true,
            "session": "connected",
            "pools": {"default": {
                "storage_reachable": true,
                "writable": true,
                "state": "active",
                "weight": 100,
                "seconds": 0.0004,
                "class": "sync",
                "bytes": {"free": 41_231_687_680_u64, "total": 63_278_391_296_u64}
            }},
            "components": [serving()]
        })),
        "service_stats_get" => Bodies::answer(json!({
            "complete": true,
            "queues": {"total": 5, "answer": {"given": true, "age": 1.7}},
            "messages": {"free": 1_200, "claimed": 4, "total": 1_204, "bytes": 308_224},
            "pools": {"default": {
                "usage": {"queues": 3, "messages": 1_204, "bytes": 308_224},
                "answer": {"given": true, "age": 0.0}
            }},
            "components": [serving()]
        })),
        "readiness_get" => Bodies::answer(json!({"warnings": []})),
        "metrics_get" => Bodies::answer(json!(METRICS)),
        "backup_create" => Bodies::answer(json!("angarium backup 1\n…")),
        _ => Bodies::default(),
    }
}

fn of_queues(operation: &str) -> Bodies {
    let metadata = || json!({"_default_message_ttl": 600, "team": "billing"});
    let shown = || {
        json!({
            "_max_messages_post_size": 262_144,
            "_default_message_ttl": 600,
            "_default_message_delay": 0,
            "_dead_letter_queue": null,
            "_dead_letter_queue_messages_ttl": null,
            "_max_claim_count": null,
            "_enable_encrypt_messages": false,
            "team": "billing"
        })
    };
    match operation {
        "queues_list" => Bodies::answer(json!({
            "queues": [{"name": "invoices", "href": "/v2/queues/invoices", "metadata": shown(), "stats": {
                "ready": 1, "delayed": 0, "claimed": 0, "in_transfer": 0, "oldest_age": 63,
                "rates": {"posted": 0.5, "removed": 0.4}
            }}],
            "links": [{
                "rel": "next",
                "href": "/v2/queues?detailed=true&with_count=true&with_stats=true&marker=invoices"
            }],
            "count": 1
        })),
        "queue_create" => Bodies::request(metadata()),
        "queue_get" => Bodies::answer(shown()),
        "queue_update" => {
            Bodies::both(json!([{"op": "add", "path": "/metadata/team", "value": "billing"}]), shown())
        }
        "queue_stats_get" => {
            let href = format!("/v2/queues/invoices/messages/{MESSAGE}");
            let end = json!({"href": href, "age": 63, "created": "2026-11-21T07:02:38Z"});
            Bodies::answer(json!({
                "messages": {
                    "claimed": 0, "free": 1, "ready": 1, "delayed": 0, "in_transfer": 0, "total": 1,
                    "oldest": end, "newest": end
                }
            }))
        }
        "queue_explanation_get" => Bodies::answer(explanation()),
        "queue_purge" => Bodies::request(json!({"resource_types": ["messages"]})),
        "quota_get" => Bodies::answer(json!({
            "project": "acme",
            "queues": {"used": 3, "quota": 100},
            "messages": {"used": 1_204, "quota": 1_000_000},
            "bytes": {"used": 482_113}
        })),
        _ => Bodies::default(),
    }
}

/// Returns the explanation of a queue whose messages are claimed or delayed.
fn explanation() -> Value {
    json!({
        "says": "A claim gets nothing now: 2 messages are claimed by \"worker 7\" until 2026-11-21T07:07:38Z; 1 message \
            is delayed until 2026-11-21T08:00:00Z.",
        "ready": 0,
        "delayed": {"messages": 1, "next_due": "2026-11-21T08:00:00Z", "next_due_in": 3_430},
        "claimed": {
            "messages": 2, "claims": 1, "by": ["worker 7"], "next_expires": "2026-11-21T07:07:38Z", "next_expires_in": 288
        },
        "in_transfer": {"messages": 0, "to": []},
        "kept": 0,
        "groups_blocked": 0,
        "noisy_groups": {"count": 0, "names": []},
        "limit_reached": [],
        "expired_unremoved": 0,
        "held_groups": [],
        "waiting_claims": 1,
        "pool": {"name": "default", "up": true, "writable": true, "class": "sync"},
        "owner": "6c1f0a52-3c3c-4c6e-9f0e-0b7f8f1d2a34",
        "session": "connected"
    })
}

fn of_migrations(operation: &str) -> Bodies {
    let state = if operation == "queue_migration_cancel" { "canceled" } else { "copying" };
    let progress = json!({
        "from": "default", "to": "fast-1", "state": state, "started": "2026-11-21T07:02:38Z", "rate": 1_000,
        "copied": 48_000, "left": 12_400
    });
    match operation {
        "queue_migration_start" => Bodies::both(json!({"pool": "fast-1", "rate": 1_000}), progress),
        _ => Bodies::answer(progress),
    }
}

/// Returns a message; its path ends in `?claim_id=` when it is claimed.
fn message(end: &str) -> Value {
    json!({
        "id": MESSAGE,
        "href": format!("/v2/queues/invoices/messages/{MESSAGE}{end}"),
        "ttl": 600,
        "age": 3,
        "body": {"invoice": 4711, "event": "paid"}
    })
}

/// Returns the error of a refused entry.
fn refused(description: &str) -> Value {
    json!({
        "title": "Invalid API request", "description": description, "code": "invalid", "may_retry": false,
        "nothing_written": true, "request_id": "req-0b8f2a3c-6f0e-4d5a-9a53-2d1c7e4b9f60"
    })
}

fn of_messages(operation: &str) -> Bodies {
    match operation {
        "messages_post" => Bodies::both(
            json!({"messages": [{"body": {"invoice": 4711, "event": "paid"}, "ttl": 600}]}),
            json!({"resources": [format!("/v2/queues/invoices/messages/{MESSAGE}")], "ids": [MESSAGE]}),
        ),
        "messages_list" => Bodies::answer(json!({
            "messages": [message("")],
            "links": [{"rel": "next", "href": format!("/v2/queues/invoices/messages?marker={MESSAGE}")}]
        })),
        "messages_delete" => Bodies::answer(json!({"messages": [message("")]})),
        "message_get" => Bodies::answer(message("")),
        "message_explanation_get" => Bodies::answer(json!({
            "id": MESSAGE,
            "state": "claimed",
            "says": "It is claimed by \"worker 7\" until 2026-11-21T07:07:38Z: its holder deletes it, gives it back, or \
                lets the claim expire, and then the next claim can get it.",
            "since": "2026-11-21T07:02:38Z",
            "attempts": 1,
            "claim": {"by": "worker 7", "expires": "2026-11-21T07:07:38Z", "expires_in": 288}
        })),
        "message_requeue" => Bodies::both(
            json!({"delay": 60, "body": {"invoice": 4711, "event": "paid"}}),
            json!({"id": FORWARDED}),
        ),
        "message_visibility_update" => Bodies::both(
            json!({"ttl": 600}),
            json!({"claim_id": CLAIM, "href": format!("/v2/queues/invoices/messages/{MESSAGE}?claim_id={CLAIM}")}),
        ),
        "messages_batch_post" => Bodies::both(
            json!({"messages": [{"body": {"invoice": 4711}}, {"body": {"invoice": 4712}, "ttl": 1}]}),
            json!({"durability": "sync", "results": [
                {"status": 201, "id": MESSAGE, "href": format!("/v2/queues/invoices/messages/{MESSAGE}")},
                {"status": 400, "error": refused("messages[1].ttl: it is 60 to 1209600")}
            ]}),
        ),
        "messages_peek" => Bodies::answer(json!({
            "messages": [{
                "id": MESSAGE, "state": "claimed", "age": 63, "ttl": 600,
                "claim": {"by": "worker-7", "expires_in": 41},
                "details": {"attempts": 2, "state": "claimed", "sequence_number": "00445637271552163841", "tags": ["eu"]},
                "body": {"invoice": 4711, "event": "paid"},
                "body_bytes": 33
            }],
            "looked_at": 16_384,
            "links": [{"rel": "next", "href": format!("/v2/queues/invoices/peek?state=claimed&tag=eu&marker={MESSAGE}")}]
        })),
        "messages_batch_delete" => Bodies::answer(json!({"results": [{"status": 204, "id": MESSAGE}]})),
        _ => Bodies::default(),
    }
}

fn of_tasks(operation: &str) -> Bodies {
    let filter = json!({"state": ["failed"], "tag": "eu"});
    let task = json!({
        "id": TASK, "do": "move", "filter": filter, "to": "orders", "rate": 100, "max": 500, "state": "running",
        "moved": 37, "skipped": 1, "failed": {}, "looked_at": 120_000, "began": "2026-11-21T07:02:38Z"
    });
    match operation {
        "task_start" => Bodies::both(
            json!({"do": "move", "filter": filter, "to": "orders", "rate": 100, "max": 500}),
            json!({"id": TASK}),
        ),
        "tasks_list" => Bodies::answer(json!({"tasks": [task]})),
        _ => Bodies::answer(task),
    }
}

fn of_claims(operation: &str) -> Bodies {
    let terms = json!({"ttl": 300, "grace": 60});
    let messages = json!([message(&format!("?claim_id={CLAIM}"))]);
    match operation {
        "claim_create" => Bodies::both(terms, json!({"id": CLAIM, "messages": messages})),
        "claim_get" => Bodies::answer(json!({
            "ttl": 300, "age": 12, "href": format!("/v2/queues/invoices/claims/{CLAIM}"), "messages": messages
        })),
        "claim_renew" => Bodies::both(terms, json!({"ids": [MESSAGE]})),
        "claim_settle" => Bodies::both(
            json!({"messages": [{
                "id": MESSAGE,
                "done": {},
                "forward": [{"queue": "receipts", "body": {"invoice": 4711}, "delay": 5, "tags": ["paid"]}]
            }]}),
            json!({"results": [{"id": MESSAGE, "status": 200, "state": "done", "ids": [FORWARDED]}]}),
        ),
        "claims_list" => {
            let path = "/v2/queues/invoices/claims";
            Bodies::answer(json!({
                "claims": [{"id": CLAIM, "href": format!("{path}/{CLAIM}"), "ttl": 300, "age": 12, "messages": 1}],
                "links": [{"rel": "next", "href": format!("{path}?marker={CLAIM}")}]
            }))
        }
        _ => Bodies::default(),
    }
}

fn of_pools(operation: &str) -> Bodies {
    let brief = json!({
        "href": "/v2/pools/fast-1", "name": "fast-1", "uri": "embedded:pools/fast-1", "weight": 100, "flavor": "fast"
    });
    let mut detailed = brief.clone();
    detailed["options"] = json!({});
    detailed["state"] = json!("active");
    match operation {
        "pools_list" => Bodies::answer(json!({
            "pools": [brief], "links": [{"rel": "next", "href": "/v2/pools?marker=fast-1"}]
        })),
        "pool_get" => {
            detailed["health"] = json!({
                "storage_reachable": true, "writable": true, "state": "active", "weight": 100, "seconds": 0.0002,
                "class": "sync", "bytes": {"free": 70_000_000_000_u64, "total": 100_000_000_000_u64}
            });
            detailed["usage"] = json!({"queues": 3, "messages": 1_200, "bytes": 240_000});
            Bodies::answer(detailed)
        }
        "pool_put" => Bodies::request(json!({
            "uri": "embedded:pools/fast-1", "weight": 100, "flavor": "fast", "options": {}
        })),
        "pool_update" => Bodies::both(json!({"weight": 100}), brief),
        "balance_plan_get" => Bodies::answer(plan(json!({}))),
        "balance_start" => Bodies::both(json!({"limit": 20, "rate": 1_000}), plan(json!({"begun": true}))),
        "pool_drain_start" => Bodies::both(
            json!({"rate": 1_000}),
            json!({"done": false, "waiting": 12, "moving": 4, "rate": 1_000}),
        ),
        "pool_drain_get" => Bodies::answer(json!({"done": true, "waiting": 0, "moving": 0})),
        "pool_map_get" => Bodies::answer(json!({
            "complete": true,
            "pools": [{
                "name": "fast-1", "flavor": "fast", "weight": 100, "share": 0.5, "held": 0.62, "state": "active",
                "queues": 3, "usage": {"queues": 3, "messages": 1_200, "bytes": 240_000},
                "answer": {"given": true, "age": 0.0}
            }],
            "moves": [{"from": "fast-1", "to": "fast-2", "queues": 1}],
            "balance": {
                "at": "2026-11-28T06:10:00Z", "replica": "replica-1:8889",
                "description": "1 move of a plan with a gain of 12.5 %",
                "moves": [{
                    "project": "shop", "queue": "jobs", "from": "fast-1", "to": "fast-2", "at": "2026-11-28T06:10:00Z",
                    "reason": "pool fast-1 has 62 % of the bytes and 58 % of the writes, its share is 50 %"
                }]
            }
        })),
        _ => Bodies::default(),
    }
}

/// Returns a plan with one move and the members of `more`.
fn plan(more: Value) -> Value {
    let mut planned = json!({
        "project": "shop", "queue": "jobs", "from": "fast-1", "to": "fast-2", "messages": 900, "bytes": 180_000,
        "load": 1_200
    });
    if let (Some(planned), Value::Object(more)) = (planned.as_object_mut(), more) {
        planned.extend(more);
    }
    json!({"complete": true, "left_out": 0, "silent": [], "moves": [planned]})
}

fn of_flavors(operation: &str) -> Bodies {
    let brief = json!({"href": "/v2/flavors/fast", "name": "fast", "pool_list": ["fast-1", "fast-2"]});
    let mut detailed = brief.clone();
    detailed["capabilities"] = json!(["FIFO", "CLAIMS", "DURABILITY", "AOD", "HIGH_THROUGHPUT"]);
    let pools = json!({"pool_list": ["fast-1", "fast-2"]});
    match operation {
        "flavors_list" => Bodies::answer(json!({
            "flavors": [brief], "links": [{"rel": "next", "href": "/v2/flavors?marker=fast"}]
        })),
        "flavor_get" => Bodies::answer(detailed),
        "flavor_put" => Bodies::request(pools),
        "flavor_update" => Bodies::both(pools, detailed),
        _ => Bodies::default(),
    }
}
