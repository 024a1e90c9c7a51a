//! Every operation, each member that can name a queue, in every form of a request: a key of one account neither reads, changes
//! nor deletes a queue of another one, whatever its request names beside its own.

use std::path::Path;
use std::sync::Arc;

use angarium::api::SqsSettings;
use angarium_clock::Clock;
use angarium_core::access_keys::{AccessKey, AccessKeyTable};
use angarium_core::names::ProjectId;
use angarium_core::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::signing::{SignedReply, Signer, TRANSPORTS, Transport, pairs};
use crate::fuzz::judge::Service;
use crate::support::cluster::{Cluster, REPLICAS};
use crate::support::server::ServerBuilder;

const VICTIM: (&str, &str, &str) = ("AKIDVICTIM", "the victim's secret", "111111111111");
const THIEF: (&str, &str, &str) = ("AKIDTHIEF", "the thief's secret", "222222222222");
/// In every body, tag and attribute of the victim.
const MARK: &str = "for-the-victim-only";

/// The members that can name a queue.
const MEMBERS: [&str; 7] = [
    "QueueUrl",
    "QueueName",
    "SourceArn",
    "DestinationArn",
    "TaskHandle",
    "RedrivePolicy",
    "RedriveAllowPolicy",
];

/// Operations, the members by which they name queues (the first is the one that they are done with), and what else they need.
fn operations() -> Vec<(&'static str, &'static [&'static str], Value)> {
    const URL: &[&str] = &["QueueUrl"];
    const ATTRIBUTES: [&str; 2] = ["RedrivePolicy", "RedriveAllowPolicy"];
    const SET: &[&str] = &["QueueUrl", ATTRIBUTES[0], ATTRIBUTES[1]];
    const CREATE: &[&str] = &["QueueName", ATTRIBUTES[0], ATTRIBUTES[1]];
    let entry = json!([{"Id": "a", "MessageBody": "x", "ReceiptHandle": "AAAA", "VisibilityTimeout": "0"}]);
    vec![
        ("AddPermission", URL, json!({"Label": "l", "AWSAccountIds": [THIEF.2], "Actions": ["*"]})),
        ("RemovePermission", URL, json!({"Label": "l"})),
        ("CancelMessageMoveTask", &["TaskHandle"], json!({})),
        ("ChangeMessageVisibility", URL, json!({"ReceiptHandle": "AAAA", "VisibilityTimeout": "0"})),
        ("ChangeMessageVisibilityBatch", URL, json!({"Entries": entry})),
        ("CreateQueue", CREATE, json!({})),
        ("DeleteMessage", URL, json!({"ReceiptHandle": "AAAA"})),
        ("DeleteMessageBatch", URL, json!({"Entries": entry})),
        ("GetQueueAttributes", URL, json!({"AttributeNames": ["All"]})),
        ("GetQueueUrl", &["QueueName"], json!({})),
        ("ListDeadLetterSourceQueues", URL, json!({})),
        ("ListMessageMoveTasks", &["SourceArn"], json!({})),
        ("ListQueueTags", URL, json!({})),
        ("ListQueues", &[], json!({})),
        ("ReceiveMessage", URL, json!({"AttributeNames": ["All"]})),
        ("SendMessage", URL, json!({"MessageBody": "x"})),
        ("SendMessageBatch", URL, json!({"Entries": entry})),
        ("SetQueueAttributes", SET, json!({"Attributes": {"VisibilityTimeout": "7"}})),
        ("StartMessageMoveTask", &["SourceArn", "DestinationArn"], json!({})),
        ("TagQueue", URL, json!({"Tags": {"k": "v"}})),
        ("UntagQueue", URL, json!({"TagKeys": ["k"]})),
        ("PurgeQueue", URL, json!({})),
        ("DeleteQueue", URL, json!({})),
    ]
}

/// What a member states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Own,
    Foreign,
    WrongType,
}

/// Puts a member that names a queue into a request.
fn name(request: &mut Value, base: &str, member: &str, says: Verdict) {
    let account = if says == Verdict::Foreign { VICTIM.2 } else { THIEF.2 };
    let arn = |queue: &str| format!("arn:aws:sqs:us-east-1:{account}:{queue}");
    let text = match member {
        "QueueUrl" => format!("{base}/{account}/orders"),
        "QueueName" => "orders".to_owned(),
        "SourceArn" => arn("dead"),
        "DestinationArn" => arn("orders"),
        "TaskHandle" => {
            let id = "00000000-0000-4000-8000-000000000000";
            STANDARD.encode(json!({"taskId": id, "sourceArn": arn("dead")}).to_string())
        }
        "RedrivePolicy" => json!({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 3}).to_string(),
        "RedriveAllowPolicy" => {
            json!({"redrivePermission": "byQueue", "sourceQueueArns": [arn("orders")]}).to_string()
        }
        other => panic!("{other} names no queue"),
    };
    if says == Verdict::Nothing {
        return;
    }
    if member == "QueueName" {
        request["QueueOwnerAWSAccountId"] = json!(account);
    }
    let value = if says == Verdict::WrongType { json!([text]) } else { json!(text) };
    match member {
        "RedrivePolicy" | "RedriveAllowPolicy" => {
            let attributes = request.as_object_mut().unwrap().entry("Attributes");
            let attributes = attributes.or_insert_with(|| Value::Object(Map::new()));
            attributes[member] = value;
        }
        _ => request[member] = value,
    }
}

/// What the thief may be refused of its own: handles that are none, what is there already, or is no longer.
const MAY_FAIL: [&str; 6] = [
    "AddPermission",
    "CancelMessageMoveTask",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "RemovePermission",
    "StartMessageMoveTask",
];

struct Accounts<'a> {
    bases: &'a [String],
    victim: Signer,
    thief: Signer,
}

impl Accounts<'_> {
    fn new(bases: &[String]) -> Accounts<'_> {
        let signer = |(key, secret, _)| Signer::new(key, secret);
        Accounts { bases, victim: signer(VICTIM), thief: signer(THIEF) }
    }

    fn done(&self, signer: &Signer, operation: &str, members: &Value) -> Value {
        let said = signer.send(&self.bases[0], Transport::Json, operation, members);
        assert_eq!(said.status, 200, "{operation} {members}: {}", said.text);
        serde_json::from_str(&said.text).unwrap_or_default()
    }

    /// Gives an account a queue and one for its dead letters, if it has none.
    fn set_up(&self, signer: &Signer, account: &str) {
        self.done(signer, "CreateQueue", &json!({"QueueName": "dead"}));
        self.done(signer, "CreateQueue", &json!({"QueueName": "orders"}));
        let arn = format!("arn:aws:sqs:us-east-1:{account}:dead");
        let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 3}).to_string();
        let url = format!("{}/{account}/orders", self.bases[0]);
        self.done(
            signer,
            "SetQueueAttributes",
            &json!({"QueueUrl": url, "Attributes": {"RedrivePolicy": policy}}),
        );
    }

    fn set_up_victim(&self) {
        self.set_up(&self.victim, VICTIM.2);
        for queue in ["orders", "dead"] {
            let url = format!("{}/{}/{queue}", self.bases[0], VICTIM.2);
            self.done(&self.victim, "SendMessage", &json!({"QueueUrl": url, "MessageBody": MARK}));
            self.done(&self.victim, "TagQueue", &json!({"QueueUrl": url, "Tags": {"k": MARK}}));
            let attributes = json!({"KmsMasterKeyId": MARK});
            self.done(
                &self.victim,
                "SetQueueAttributes",
                &json!({"QueueUrl": url, "Attributes": attributes}),
            );
        }
    }

    /// All that the victim sees of its account.
    fn seen_by_victim(&self) -> Vec<Value> {
        let mut seen = vec![self.done(&self.victim, "ListQueues", &json!({}))];
        for queue in ["orders", "dead"] {
            let url = format!("{}/{}/{queue}", self.bases[0], VICTIM.2);
            let all = json!({"QueueUrl": url, "AttributeNames": ["All"]});
            seen.push(self.done(&self.victim, "GetQueueAttributes", &all));
            seen.push(self.done(&self.victim, "ListQueueTags", &json!({"QueueUrl": url})));
            let arn = format!("arn:aws:sqs:us-east-1:{}:{queue}", VICTIM.2);
            seen.push(self.done(&self.victim, "ListMessageMoveTasks", &json!({"SourceArn": arn})));
        }
        seen
    }

    /// Sends what the thief asks for: one member, and the same of all others.
    fn attack(
        &self,
        (operation, needs): (&str, &Value),
        (member, says): (&str, Verdict),
        others: Verdict,
        transport: Transport,
    ) -> SignedReply {
        let mut request = needs.clone();
        for other in MEMBERS.iter().filter(|other| **other != member) {
            name(&mut request, &self.bases[0], other, others);
        }
        name(&mut request, &self.bases[0], member, says);
        let at = request.to_string().len() % self.bases.len();
        let said = self.thief.send(&self.bases[at], transport, operation, &request);
        assert!(!said.text.contains(MARK), "{transport:?} {operation} {request}: {}", said.text);
        assert!(said.status < 500, "{transport:?} {operation} {request}: {}", said.text);
        said
    }

    /// Has the thief try all there is, with these transports.
    fn attack_all(&self, transports: &[Transport]) {
        self.set_up_victim();
        let before = self.seen_by_victim();
        for (operation, members, needs) in operations() {
            for transport in transports {
                self.set_up(&self.thief, THIEF.2);
                self.attack_operation(operation, members, &needs, *transport);
                assert_eq!(self.seen_by_victim(), before, "after {transport:?} {operation}");
            }
        }
    }

    fn attack_operation(&self, operation: &str, members: &[&str], needs: &Value, transport: Transport) {
        let asked = (operation, needs);
        for member in members {
            for others in [Verdict::Nothing, Verdict::Own, Verdict::Foreign] {
                for says in [Verdict::Foreign, Verdict::WrongType] {
                    // CreateQueue takes a name of its caller's account alone, and an attribute needs a queue that it is of.
                    if operation == "CreateQueue" && *member == "QueueName" && says == Verdict::Foreign {
                        continue;
                    }
                    let said = self.attack(asked, (member, says), others, transport);
                    let what = format!("{transport:?} {operation}: {member} {says:?}, others {others:?}");
                    assert!((400..500).contains(&said.status), "{what}: {}", said.text);
                }
            }
        }
        // What an operation does not take has no influence.
        let Some(subject) = members.first() else { return self.attack_listing(asked, transport) };
        let plain = self.attack(asked, (subject, Verdict::Own), Verdict::Nothing, transport);
        assert!(
            plain.status == 200 || MAY_FAIL.contains(&operation),
            "{transport:?} {operation}: {}",
            plain.text
        );
        if operation == "StartMessageMoveTask" {
            // Whether one runs already is a matter of time.
            return;
        }
        self.set_up(&self.thief, THIEF.2);
        let plain = self.attack(asked, (subject, Verdict::Own), Verdict::Nothing, transport);
        for member in MEMBERS.iter().filter(|member| !members.contains(member)) {
            for says in [Verdict::Own, Verdict::Foreign, Verdict::WrongType] {
                if operation == "DeleteQueue" {
                    self.set_up(&self.thief, THIEF.2);
                }
                let mut request = needs.clone();
                name(&mut request, &self.bases[0], member, says);
                // An attribute is a member of the operations that take attributes.
                name(&mut request, &self.bases[0], subject, Verdict::Own);
                let said = self.thief.send(&self.bases[0], transport, operation, &request);
                let is_path = transport.is_below_queue() && *member == "QueueUrl";
                let what = format!("{transport:?} {operation}: {member} {says:?}");
                assert!(said.status == plain.status || is_path, "{what}: {} and not {plain:?}", said.text);
            }
        }
    }
}

impl Accounts<'_> {
    /// An operation that names no queue shows those of the account.
    fn attack_listing(&self, asked: (&str, &Value), transport: Transport) {
        let others = if transport.is_below_queue() { Verdict::Nothing } else { Verdict::Foreign };
        for member in MEMBERS.iter().filter(|member| !transport.is_below_queue() || **member != "QueueUrl") {
            let said = self.attack(asked, (member, Verdict::Foreign), others, transport);
            assert!(said.status == 200 && said.text.contains(THIEF.2), "{member}: {said:?}");
            assert!(!said.text.contains(VICTIM.2), "{member}: {said:?}");
        }
    }
}

fn write_keys(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("keys");
    let key = |(id, secret, project): (&str, &str, &str)| {
        format!("[[key]]\nid = \"{id}\"\nsecret = \"{secret}\"\nproject = \"{project}\"\n")
    };
    std::fs::write(&path, [VICTIM, THIEF].map(key).concat()).unwrap();
    path
}

#[test]
fn key_reaches_no_queue_of_another_account() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(&data.path().join("data"));
    let server = server.arg("--sqs-keys").arg(write_keys(data.path())).start();
    let bases = [server.base().to_owned()];
    Accounts::new(&bases).attack_all(&TRANSPORTS);
}

#[test]
fn forwarded_key_reaches_no_queue_of_another_account() {
    let data = tempfile::tempdir().unwrap();
    let keys = write_keys(data.path());
    let cluster = Cluster::start_with(|builder| builder.arg("--sqs-keys").arg(&keys));
    let bases: Vec<String> = (0..REPLICAS).map(|replica| cluster.base_of(replica)).collect();
    // Each replica gets some of the requests, and owns some of the queues.
    Accounts::new(&bases).attack_all(&[Transport::Json, Transport::Presigned]);
}

#[test]
fn signature_dates_are_judged_by_the_wall_clock() {
    let project = ProjectId::new(THIEF.2).unwrap();
    let key = AccessKey { secret: THIEF.1.to_owned(), project };
    let keys: AccessKeyTable = [(THIEF.0.to_owned(), key)].into_iter().collect();
    let hour = 3_600_000;
    for step in [-2 * hour, 0, 2 * hour] {
        let (clock, now) = (Clock::system(), Clock::system().wall().as_millis());
        let stepped = |by: i64| Timestamp::from_millis(now.saturating_add_signed(by));
        clock.begin(clock.asking(), stepped(step), None);
        let sender = watch::Sender::new(Arc::new(keys.clone()));
        let settings = SqsSettings { keys: Some(sender.subscribe()), ..SqsSettings::default() };
        let service = Service::start_with(clock, settings);
        for (signed, status) in
            [(0, 200), (-hour / 10, 403), (hour / 10, 403), (2 * hour, 403), (-2 * hour, 403)]
        {
            let signer = Signer { at: Some(stepped(signed)), ..Signer::new(THIEF.0, THIEF.1) };
            let request = signer.written("ListQueues", &json!({}));
            assert_eq!(
                service.check(&request),
                Some(status),
                "tree time off by {step} ms, signed off by {signed} ms"
            );
        }
    }
}

#[test]
fn member_named_twice_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = ServerBuilder::new(&data.path().join("data"));
    let server = server.arg("--sqs-keys").arg(write_keys(data.path())).start();
    let bases = [server.base().to_owned()];
    let accounts = Accounts::new(&bases);
    accounts.set_up_victim();
    accounts.set_up(&accounts.thief, THIEF.2);
    let before = accounts.seen_by_victim();
    for (operation, members, needs) in operations() {
        for member in members {
            for (first, second) in [(Verdict::Own, Verdict::Foreign), (Verdict::Foreign, Verdict::Own)] {
                let [mut one, mut other] = [needs.clone(), needs.clone()];
                name(&mut one, &bases[0], member, first);
                name(&mut other, &bases[0], member, second);
                let (mut pairs, twice) = (pairs(operation, &one), pairs(operation, &other));
                pairs.extend(twice);
                let form = accounts.thief.send_form(&bases[0], "/".to_owned(), &pairs);
                // The members of both objects, one after the other.
                let (one, other) = (one.to_string(), other.to_string());
                let body = format!("{},{}", &one[..one.len() - 1], &other[1..]);
                let json = accounts.thief.send_json(&bases[0], operation, &body);
                for said in [json, form] {
                    let is_same = operation == "CreateQueue" && *member == "QueueName";
                    assert!(said.status == 400 || is_same, "{operation} {body}: {said:?}");
                }
            }
        }
    }
    assert_eq!(accounts.seen_by_victim(), before);
}
