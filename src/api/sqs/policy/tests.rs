//! Pairs of a policy and requests that it allows or denies.

use serde_json::json;

use super::*;

const ARN: &str = "arn:aws:sqs:us-east-1:111111111111:orders";
const OTHER: &str = "arn:aws:sqs:us-east-1:111111111111:other";
const ONE: &str = "111111111111";
const TWO: &str = "222222222222";
/// 2026-03-01T12:00:00Z.
const NOON: u64 = 1_772_366_400;

fn facts(account: &str) -> RequestFacts<'_> {
    let source = Some("https 192.0.2.7".parse().unwrap());
    RequestFacts { account, source, now: Timestamp::from_millis(NOON * 1_000 + 999) }
}

/// Returns a policy with one statement for every client, action and queue; `elements` override those of the statement.
fn policy(effect: &str, elements: Value) -> String {
    let mut statement = json!({"Effect": effect, "Principal": "*", "Action": "sqs:*", "Resource": "*"});
    for (name, value) in elements.as_object().unwrap() {
        if let Some(positive) = name.strip_prefix("Not") {
            statement.as_object_mut().unwrap().remove(positive);
        }
        statement[name] = value.clone();
    }
    json!({"Version": "2012-10-17", "Statement": [statement]}).to_string()
}

/// Whether a statement matches a request: an `Allow` then allows it, and a `Deny` denies it.
fn is_about(elements: &Value, facts: &RequestFacts<'_>, operation: Operation, arn: &str) -> bool {
    let [allow, deny] = ["Allow", "Deny"].map(|effect| policy(effect, elements.clone()));
    for text in [&allow, &deny] {
        check(text).expect(text);
    }
    let decided = [allow, deny].map(|text| decide(Some(&text), facts, operation, arn));
    let is_about = decided == [Decision::Allowed, Decision::Denied];
    assert!(is_about || decided == [Decision::Unmentioned; 2], "{elements}: {decided:?}");
    is_about
}

fn sends(elements: Value, account: &str) -> bool {
    is_about(&elements, &facts(account), Operation::SendMessage, ARN)
}

#[test]
fn principals_match_accounts_and_not_others() {
    let arn = format!("arn:aws:iam::{TWO}:root");
    for named in [json!({"AWS": TWO}), json!({"AWS": [TWO]}), json!({"AWS": arn}), json!({"AWS": ["9", arn]})]
    {
        assert!(sends(json!({"Principal": named}), TWO), "{named}");
        assert!(!sends(json!({"Principal": named}), ONE), "{named}");
        assert!(!sends(json!({"NotPrincipal": named}), TWO), "{named}");
        assert!(sends(json!({"NotPrincipal": named}), ONE), "{named}");
    }
    for everyone in [json!("*"), json!({"AWS": "*"}), json!({"AWS": [TWO, "*"]})] {
        assert!(sends(json!({"Principal": everyone}), ONE), "{everyone}");
        assert!(!sends(json!({"NotPrincipal": everyone}), ONE), "{everyone}");
    }
}

#[test]
fn actions_match_with_wildcards_in_any_case() {
    let does = |elements: &Value, operation| is_about(elements, &facts(ONE), operation, ARN);
    for (action, good, bad) in [
        ("*", &[Operation::SendMessage, Operation::DeleteQueue][..], &[][..]),
        ("sqs:*", &[Operation::SendMessage, Operation::DeleteQueue], &[]),
        (
            "SQS:sendmessage",
            &[Operation::SendMessage, Operation::SendMessageBatch],
            &[Operation::ReceiveMessage],
        ),
        ("sqs:SendMessageBatch", &[Operation::SendMessageBatch], &[Operation::SendMessage]),
        (
            "sqs:*Message",
            &[Operation::DeleteMessageBatch, Operation::ReceiveMessage],
            &[Operation::PurgeQueue],
        ),
        ("sqs:?e*Queue", &[Operation::DeleteQueue], &[Operation::PurgeQueue, Operation::SendMessage]),
        (
            "sqs:Get*",
            &[Operation::GetQueueUrl, Operation::GetQueueAttributes],
            &[Operation::SetQueueAttributes],
        ),
    ] {
        for (operation, is_good) in
            good.iter().map(|one| (*one, true)).chain(bad.iter().map(|one| (*one, false)))
        {
            assert_eq!(does(&json!({"Action": action}), operation), is_good, "{action} {operation:?}");
            assert_eq!(
                does(&json!({"NotAction": [action]}), operation),
                !is_good,
                "not {action} {operation:?}"
            );
        }
    }
}

#[test]
fn resources_match_with_wildcards() {
    let is_for = |elements: &Value, arn| is_about(elements, &facts(ONE), Operation::SendMessage, arn);
    for (resource, good, bad) in [
        ("*", &[ARN, OTHER][..], &[][..]),
        (ARN, &[ARN], &[OTHER]),
        ("arn:aws:sqs:*:*:o*", &[ARN, OTHER], &["arn:aws:sqs:us-east-1:111111111111:Orders"]),
        ("arn:aws:sqs:us-east-?:111111111111:order?", &[ARN], &[OTHER]),
        ("*:orders", &[ARN], &[OTHER]),
        ("arn:aws:sns:*:*:orders", &[], &[ARN, OTHER]),
    ] {
        for (arn, is_good) in good.iter().map(|one| (*one, true)).chain(bad.iter().map(|one| (*one, false))) {
            assert_eq!(is_for(&json!({"Resource": resource}), arn), is_good, "{resource} {arn}");
            assert_eq!(is_for(&json!({"NotResource": [resource]}), arn), !is_good, "not {resource} {arn}");
        }
    }
}

#[test]
fn conditions_hold_for_some_requests_and_not_for_others() {
    for (good, bad) in [
        (
            json!({"IpAddress": {"aws:SourceIp": "192.0.2.0/24"}}),
            json!({"NotIpAddress": {"aws:SourceIp": "192.0.2.0/24"}}),
        ),
        (
            json!({"IpAddress": {"AWS:sourceip": ["::/0", "192.0.2.7"]}}),
            json!({"IpAddress": {"aws:SourceIp": ["::/0"]}}),
        ),
        (
            json!({"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "2001:db8::/32"]}}),
            json!({"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "192.0.2.7/32"]}}),
        ),
        (json!({"Bool": {"aws:SecureTransport": "true"}}), json!({"Bool": {"aws:SecureTransport": false}})),
        (
            json!({"BoolIfExists": {"aws:SecureTransport": true}}),
            json!({"BoolIfExists": {"aws:SecureTransport": "False"}}),
        ),
        (
            json!({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::2*:ro?t"}}),
            json!({"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::2*:ro?t"}}),
        ),
        (
            json!({"ArnEquals": {"aws:PrincipalArn": ["arn:aws:iam::222222222222:root", "arn:aws:iam::9:root"]}}),
            json!({"ArnEquals": {"aws:PrincipalArn": "arn:aws:iam::111111111111:root"}}),
        ),
        (
            json!({"ArnNotEquals": {"aws:PrincipalArn": "arn:aws:iam::111111111111:root"}}),
            json!({"ArnLike": {"aws:PrincipalArn": "arn:*:222222222222:a:b:root"}}),
        ),
        (
            json!({"StringEquals": {"aws:PrincipalArn": "arn:aws:iam::222222222222:root"}}),
            json!({"StringEquals": {"aws:PrincipalArn": "arn:aws:iam::222222222222:*"}}),
        ),
        (
            json!({"StringLike": {"aws:PrincipalArn": "*2222:root"}}),
            json!({"StringNotLike": {"aws:PrincipalArn": ["x", "*2222:root"]}}),
        ),
        (
            json!({"StringEqualsIgnoreCase": {"aws:PrincipalArn": "ARN:aws:iam::222222222222:Root"}}),
            json!({"StringNotEqualsIgnoreCase": {"aws:PrincipalArn": "ARN:aws:iam::222222222222:Root"}}),
        ),
        (
            json!({"StringNotEquals": {"aws:PrincipalArn": "ARN:aws:iam::222222222222:Root"}}),
            json!({"StringNotEquals": {"aws:PrincipalArn": "arn:aws:iam::222222222222:root"}}),
        ),
    ] {
        assert!(sends(json!({"Condition": good}), TWO), "{good}");
        assert!(!sends(json!({"Condition": bad}), TWO), "{bad}");
    }
}

#[test]
fn dates_are_compared_to_the_second() {
    for (good, bad) in [
        (
            json!({"DateGreaterThan": {"aws:CurrentTime": "2026-03-01T11:59:59Z"}}),
            json!({"DateGreaterThan": {"aws:CurrentTime": "2026-03-01T12:00:00Z"}}),
        ),
        (
            json!({"DateGreaterThanEquals": {"aws:CurrentTime": "2026-03-01T13:00:00+01:00"}}),
            json!({"DateGreaterThanEquals": {"aws:CurrentTime": "2026-03-01T12:00:01Z"}}),
        ),
        (
            json!({"DateLessThan": {"aws:CurrentTime": "2026-03-02"}}),
            json!({"DateLessThan": {"aws:CurrentTime": "2026-03-01"}}),
        ),
        (
            json!({"DateLessThanEquals": {"aws:CurrentTime": NOON}}),
            json!({"DateLessThanEquals": {"aws:EpochTime": NOON - 1}}),
        ),
        (
            json!({"DateEquals": {"aws:EpochTime": NOON.to_string()}}),
            json!({"DateNotEquals": {"aws:CurrentTime": "2026-03-01T12:00:00Z"}}),
        ),
        (
            json!({"NumericLessThan": {"aws:EpochTime": (NOON + 1).to_string()}}),
            json!({"NumericLessThan": {"aws:EpochTime": NOON}}),
        ),
        (
            json!({"NumericGreaterThanEqualsIfExists": {"aws:epochtime": NOON}}),
            json!({"NumericGreaterThan": {"aws:EpochTime": NOON}}),
        ),
        (
            json!({"NumericNotEquals": {"aws:EpochTime": [1, 2.5]}}),
            json!({"NumericNotEquals": {"aws:EpochTime": [1, NOON]}}),
        ),
    ] {
        assert!(sends(json!({"Condition": good}), TWO), "{good}");
        assert!(!sends(json!({"Condition": bad}), TWO), "{bad}");
    }
}

#[test]
fn all_conditions_of_a_statement_must_hold() {
    let address =
        |text: &str| json!({"IpAddress": {"aws:SourceIp": text}, "Bool": {"aws:SecureTransport": "true"}});
    assert!(sends(json!({"Condition": address("192.0.2.7")}), TWO));
    assert!(!sends(json!({"Condition": address("192.0.2.8")}), TWO));
    let between = |last: &str| json!({"DateGreaterThan": {"aws:CurrentTime": "2026-01-01"}, "DateLessThan": {"aws:CurrentTime": last}});
    assert!(sends(json!({"Condition": between("2027-01-01")}), TWO));
    assert!(!sends(json!({"Condition": between("2026-02-01")}), TWO));
    assert!(sends(json!({"Condition": {}}), TWO), "none must hold");
}

#[test]
fn unknown_fact_allows_nothing_and_denies() {
    let unknown = [None, Some(Source { address: None, is_secure: false })];
    for source in unknown {
        let facts = RequestFacts { source, ..facts(TWO) };
        for operator in ["IpAddress", "NotIpAddress", "IpAddressIfExists"] {
            let decided = |effect| {
                let text = policy(effect, json!({"Condition": {operator: {"aws:SourceIp": "10.0.0.0/8"}}}));
                decide(Some(&text), &facts, Operation::SendMessage, ARN)
            };
            assert_eq!(
                (decided("Allow"), decided("Deny")),
                (Decision::Unmentioned, Decision::Denied),
                "{operator}"
            );
        }
        // If one condition certainly fails, the other conditions do not matter.
        let both =
            json!({"IpAddress": {"aws:SourceIp": "::/0"}, "DateLessThan": {"aws:CurrentTime": "2001-01-01"}});
        let text = policy("Deny", json!({"Condition": both}));
        assert_eq!(decide(Some(&text), &facts, Operation::SendMessage, ARN), Decision::Unmentioned);
    }
}

#[test]
fn denial_wins_over_every_allowance() {
    let all = json!({"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"});
    let denial =
        json!({"Effect": "Deny", "NotPrincipal": {"AWS": ONE}, "NotAction": "sqs:Get*", "Resource": ARN});
    for statements in [json!([all, denial]), json!([denial, all])] {
        let text = json!({"Statement": statements}).to_string();
        let decided = |account, operation, arn| decide(Some(&text), &facts(account), operation, arn);
        assert_eq!(decided(TWO, Operation::SendMessage, ARN), Decision::Denied);
        assert_eq!(decided(ONE, Operation::SendMessage, ARN), Decision::Allowed);
        assert_eq!(decided(TWO, Operation::GetQueueUrl, ARN), Decision::Allowed);
        assert_eq!(decided(TWO, Operation::SendMessage, OTHER), Decision::Allowed);
    }
    assert_eq!(decide(None, &facts(TWO), Operation::SendMessage, ARN), Decision::Unmentioned);
}

/// Returns elements that are not understood, each with a part of its refusal.
fn misfits() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"Principal": {"Service": "sns.amazonaws.com"}}), "Principal: the kind \"Service\""),
        (json!({"Principal": {"AWS": "arn:aws:iam::1:user/bob"}}), "Principal: \"arn:aws:iam::1:user/bob\""),
        (json!({"NotPrincipal": {"AWS": "arn:aws:iam::*:root"}}), "NotPrincipal: \"arn:aws:iam::*:root\""),
        (json!({"Principal": {"AWS": []}}), "Principal: the list is empty"),
        (json!({"Principal": {}}), "Principal: the key \"AWS\""),
        (json!({"Principal": TWO}), "Principal"),
        (json!({"Sid": 1}), "Sid"),
        (json!({"Action": "SendMessage"}), "Action: \"SendMessage\""),
        (json!({"Action": ["sqs:SendMessage", "sns:Publish"]}), "Action: \"sns:Publish\""),
        (json!({"NotAction": "sqs:SendMesage"}), "NotAction: there is no action \"sqs:SendMesage\""),
        (json!({"Action": 1}), "Action"),
        (json!({"Resource": "orders"}), "Resource: \"orders\""),
        (json!({"NotResource": "arn:aws:sqs:*:*:${aws:username}"}), "policy variable"),
        (json!({"Resource": null}), "Resource"),
        (json!({"Effect": "deny"}), "Effect: \"deny\""),
        (json!({"Colour": "red"}), "the element \"Colour\""),
        (json!({"condition": {}}), "the element \"condition\""),
        (json!({"Condition": []}), "Condition"),
        (
            json!({"Condition": {"ForAllValues:StringLike": {"aws:PrincipalArn": "*"}}}),
            "operator \"ForAllValues:StringLike\"",
        ),
        (json!({"Condition": {"Null": {"aws:SourceIp": "true"}}}), "operator \"Null\""),
        (json!({"Condition": {"NotBool": {"aws:SecureTransport": "true"}}}), "operator \"NotBool\""),
        (
            json!({"Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:sns:a:1:t"}}}),
            "ArnEquals of \"aws:SourceArn\"",
        ),
        (
            json!({"Condition": {"StringEquals": {"aws:SourceIp": "10.0.0.1"}}}),
            "StringEquals of \"aws:SourceIp\"",
        ),
        (
            json!({"Condition": {"NumericLessThan": {"aws:CurrentTime": 1}}}),
            "NumericLessThan of \"aws:CurrentTime\"",
        ),
        (
            json!({"Condition": {"IpAddress": {"aws:SourceIp": ["10.0.0.0/8", "10.0.0.0/40"]}}}),
            "\"10.0.0.0/40\"",
        ),
        (json!({"Condition": {"IpAddress": {"aws:SourceIp": []}}}), "there is no value"),
        (json!({"Condition": {"Bool": {"aws:SecureTransport": "yes"}}}), "\"yes\""),
        (json!({"Condition": {"ArnLike": {"aws:PrincipalArn": "bob*"}}}), "\"bob*\" is no ARN"),
        (
            json!({"Condition": {"StringLike": {"aws:PrincipalArn": "${aws:PrincipalArn}"}}}),
            "policy variable",
        ),
        (json!({"Condition": {"DateLessThan": {"aws:CurrentTime": "tomorrow"}}}), "\"tomorrow\""),
        (json!({"Condition": {"DateLessThan": {"aws:CurrentTime": "2030"}}}), "\"2030\""),
        (json!({"Condition": {"DateLessThan": {"aws:EpochTime": 20300131}}}), "20300131"),
        (json!({"Condition": {"DateGreaterThan": {"aws:CurrentTime": NOON * 1_000}}}), "DateGreaterThan"),
        (json!({"Condition": {"NumericLessThan": {"aws:EpochTime": "inf"}}}), "\"inf\""),
    ]
}

#[test]
fn misfit_is_refused_by_name() {
    for (elements, named) in misfits() {
        let text = policy("Deny", elements);
        let why = check(&text).expect_err(&text);
        assert!(why.starts_with("statement 1: ") && why.contains(named), "{text}: {why}");
    }
    let whole = policy("Deny", json!({}));
    for (text, named) in [
        ("{}".to_owned(), "\"Statement\" is missing"),
        ("[]".to_owned(), "no JSON object"),
        ("{".to_owned(), "no JSON"),
        (whole.replace("2012-10-17", "2030-01-01"), "Version"),
        (whole.replace("\"Version\"", "\"Extra\""), "\"Extra\""),
        (
            whole.replace("\"Effect\":\"Deny\"", "\"Effect\":\"Deny\",\"Effect\":\"Allow\""),
            "\"Effect\" is there twice",
        ),
        (json!({"Statement": "all"}).to_string(), "Statement"),
        (json!({"Statement": [1]}).to_string(), "statement 1"),
        (
            whole.replace("\"Principal\"", "\"NotPrincipal\":{\"AWS\":\"1\"},\"Principal\""),
            "exclude each other",
        ),
        (json!({"Id": 1, "Statement": []}).to_string(), "Id"),
        (policy("Deny", json!({})).replace("\"Resource\":\"*\"", "\"Sid\":\"s\""), "\"Resource\" is missing"),
    ] {
        let why = check(&text).expect_err(&text);
        assert!(why.contains(named), "{text}: {why}");
        assert_eq!(decide(Some(&text), &facts(ONE), Operation::SendMessage, ARN), Decision::Denied, "{text}");
    }
}

#[test]
fn stored_misfit_allows_nothing_and_denies_everything() {
    for (elements, _) in misfits() {
        let decided = |text: &str| decide(Some(text), &facts(TWO), Operation::SendMessage, ARN);
        assert_eq!(decided(&policy("Deny", elements.clone())), Decision::Denied, "{elements}");
        if elements.get("Effect").is_some() {
            continue;
        }
        assert_eq!(decided(&policy("Allow", elements.clone())), Decision::Unmentioned, "{elements}");
        // The statement hides no other statement.
        let mut both: Value = serde_json::from_str(&policy("Allow", elements)).unwrap();
        let plain = json!({"Effect": "Allow", "Principal": {"AWS": TWO}, "Action": "sqs:SendMessage", "Resource": ARN});
        both["Statement"].as_array_mut().unwrap().push(plain);
        assert_eq!(decided(&both.to_string()), Decision::Allowed);
    }
}

#[test]
fn policy_of_any_depth_or_size_ends() {
    let deep = format!("{{\"Statement\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(check(&deep).is_err());
    assert_eq!(decide(Some(&deep), &facts(ONE), Operation::SendMessage, ARN), Decision::Denied);
    let wide = policy("Deny", json!({"Resource": format!("arn:{}b", "*:".repeat(20_000))}));
    assert_eq!(decide(Some(&wide), &facts(ONE), Operation::SendMessage, ARN), Decision::Unmentioned);
}
