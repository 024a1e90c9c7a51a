//! Bounds of the document. Those of requests are the ones of the default settings. An answer of a service with wider settings
//! must pass too, so schemas of answers have no bound that a setting changes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{collect_references, document, members, operations, resolve};

/// Bounds of members of answers that no setting changes, and that are more than "no negative number".
const FIXED: &[(&str, &str, Option<u64>, Option<u64>)] = &[
    ("ListMessageMoveTasksResultEntry", "MaxNumberOfMessagesPerSecond", Some(1), Some(500)),
    ("MessageFilter", "max_age", Some(0), Some(4_294_967_295)),
    ("MessageFilter", "min_age", Some(0), Some(4_294_967_295)),
    ("MessageFilter", "min_attempts", Some(0), Some(4_294_967_295)),
    ("Pool", "weight", Some(0), Some(4_294_967_295)),
    ("QueueAttributes", "_default_receive_wait", Some(0), Some(20)),
    ("QueueAttributes", "_default_visibility_timeout", Some(0), Some(43_200)),
    ("QueueAttributes", "_keep", Some(0), Some(1_209_600)),
    ("QueueAttributes", "_kms_data_key_reuse_period", Some(60), Some(86_400)),
    ("QueueAttributes", "_max_claim_count", Some(0), Some(4_294_967_295)),
];

/// Names of the schemas that these parts of operations refer to, with the schemas to which they refer in turn.
fn schemas<'a>(document: &'a Value, parts: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let mut references = BTreeSet::new();
    parts.for_each(|part| collect_references(part, &mut references));
    let mut followed = BTreeSet::new();
    while let Some(next) = references.pop_first() {
        if let Some(part) = resolve(document, &next).filter(|_| followed.insert(next)) {
            collect_references(part, &mut references);
        }
    }
    let name = |reference: &String| reference.strip_prefix("#/components/schemas/").map(str::to_owned);
    followed.iter().filter_map(name).collect()
}

#[test]
fn answers_have_no_bounds_of_settings() {
    let document = document();
    let answers = operations(&document).map(|operation| &operation.body["responses"]);
    let mut found = Vec::new();
    for schema in schemas(&document, answers) {
        for (name, member) in members(&document["components"]["schemas"][&schema]["properties"]) {
            let bound = |key: &str| member[key].as_u64();
            let (least, most) = (bound("minimum"), bound("maximum"));
            if most.is_some() || least.is_some_and(|least| least > 0) {
                found.push((schema.clone(), name.to_owned(), least, most));
            }
        }
    }
    let fixed: Vec<_> = FIXED
        .iter()
        .map(|(schema, name, least, most)| ((*schema).to_owned(), (*name).to_owned(), *least, *most))
        .collect();
    assert_eq!(found, fixed, "a bound that a setting changes is told in the description alone");
}

#[test]
fn requests_have_the_bounds_of_the_default_settings() {
    let document = document();
    let bounds = |schema: &str, name: &str| {
        let member = &document["components"]["schemas"][schema]["properties"][name];
        (member["minimum"].as_u64(), member["maximum"].as_u64())
    };
    assert_eq!(bounds("PostedMessage", "ttl"), (Some(60), Some(1_209_600)));
    assert_eq!(bounds("PostedMessage", "delay"), (Some(0), Some(900)));
    assert_eq!(bounds("ClaimTerms", "ttl"), (Some(60), Some(43_200)));
    assert_eq!(bounds("ForwardedMessage", "delay"), (Some(0), Some(900)));
    assert_eq!(bounds("SettleDefer", "delay"), (Some(0), Some(43_200)));
}
