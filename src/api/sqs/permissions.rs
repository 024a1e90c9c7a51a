//! Access for other accounts: the decisions by policy, and the two operations that add and remove single statements.
//!
//! The account of a queue may do everything that no statement denies; it may always read and change the policy, so that
//! it cannot lock itself out. Another account may do only what a statement allows and no statement denies. `policy`
//! evaluates the statements.

use serde::Deserialize;
use serde_json::{Value, json};

use super::arguments::required;
use super::context::Context;
use super::encode::OperationResult;
use super::fault::{Fault, Kind};
use super::lists::{Names, names};
use super::operation::Operation;
use super::policy::{self, Decision, RequestFacts};
use super::queue_attributes::unusable_policy;
use super::rewrite::rewrite;
use angarium_core::attributes as keys;
use angarium_core::limits;

const LABEL: &str = "Label";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddPermission {
    label: Option<String>,
    #[serde(default, rename = "AWSAccountIds")]
    accounts: Option<Names>,
    #[serde(default)]
    actions: Option<Names>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RemovePermission {
    label: Option<String>,
}

/// Adds a statement that allows actions to accounts.
pub async fn add(context: &Context<'_>, asked: AddPermission) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let label = label(asked.label)?;
    let accounts = names(asked.accounts, "AWSAccountIds")?;
    if accounts.is_empty() {
        return Err(Fault::missing("AWSAccountIds"));
    }
    let count = asked.actions.as_ref().map_or(0, Names::len);
    if count == 0 {
        return Err(Fault::missing("ActionName"));
    }
    if count > limits::SQS_ACTIONS {
        let why = format!("{count} Actions were found, maximum allowed is {}.", limits::SQS_ACTIONS);
        return Err(Fault::new(Kind::OverLimit, why));
    }
    let actions = names(asked.actions, "Actions")?;
    if let Some(wrong) = actions.iter().find(|action| *action != "*" && !is_shared(action)) {
        let is_of_owner = Operation::named(wrong).is_some() && !wrong.ends_with("Batch");
        let why = if is_of_owner {
            "Only the queue owner is allowed to invoke this action"
        } else {
            "Please refer to the appropriate WSDL for a list of valid actions"
        };
        return Err(Fault::parameter("ActionName", format_args!("SQS:{wrong}"), why));
    }
    let arn = context.places.arn(queue);
    let principals =
        one_or_all(accounts.iter().map(|account| format!("arn:aws:iam::{account}:root")).collect());
    let statement = json!({
        "Sid": label, "Effect": "Allow", "Principal": {"AWS": principals},
        "Action": one_or_all(actions.iter().map(|action| format!("SQS:{action}")).collect()), "Resource": arn,
    });
    let whole = json!({"Statement": [statement]});
    let accounts = accounts.join(", ");
    let unusable = |why: String| {
        Fault::parameter("PrincipalId", format_args!("[{accounts}]"), &format!("Unable to verify. {why}"))
    };
    policy::check(&whole.to_string()).map_err(unusable)?;
    rewrite(context, queue, keys::POLICY, |policy| {
        let policy = match policy {
            // If a statement of the policy is not understood, an added statement would have no effect.
            Value::Object(_) => policy::check(&policy.to_string()).map_err(|why| unusable_policy(&why))?,
            _ => json!({"Version": "2008-10-17", "Id": format!("{arn}/SQSDefaultPolicy"), "Statement": []}),
        };
        with_statement(policy, &label, statement.clone())
    })
    .await
}

/// Returns a policy with one more statement; fails beyond the bounds of policies.
fn with_statement(mut policy: Value, label: &str, statement: Value) -> Result<Value, Fault> {
    let mut statements = statements(&policy);
    if statements.iter().any(|statement| statement["Sid"] == label) {
        return Err(Fault::parameter(LABEL, label, "Already exists"));
    }
    if statements.len() >= limits::SQS_STATEMENTS {
        let (count, most) = (statements.len() + 1, limits::SQS_STATEMENTS);
        let why = format!("{count} Statements were found, maximum allowed is {most}.");
        return Err(Fault::new(Kind::OverLimit, why));
    }
    statements.push(statement);
    policy["Statement"] = Value::Array(statements);
    let (length, most) = (policy.to_string().len(), limits::SQS_POLICY_BYTES);
    if length > most {
        let why = format!("A policy has at most {most} bytes; with this statement it would have {length}.");
        return Err(Fault::new(Kind::OverLimit, why));
    }
    Ok(policy)
}

/// Removes the statement with this label. Removes the whole policy with its last statement.
pub async fn remove(context: &Context<'_>, asked: RemovePermission) -> Result<OperationResult, Fault> {
    let queue = context.request.subject()?;
    let label = label(asked.label)?;
    rewrite(context, queue, keys::POLICY, |mut policy| {
        let mut statements = statements(&policy);
        let before = statements.len();
        statements.retain(|statement| statement["Sid"] != label.as_str());
        if statements.len() == before {
            return Err(Fault::parameter(LABEL, &label, "can't find label"));
        }
        if statements.is_empty() {
            return Ok(Value::Null);
        }
        policy["Statement"] = Value::Array(statements);
        Ok(policy)
    })
    .await
}

fn label(label: Option<String>) -> Result<String, Fault> {
    let label = required(LABEL, label)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if label.len() > limits::SQS_ID_CHARS || !label.bytes().all(plain) {
        let why = "It has 1 to 80 letters, digits, hyphens and underscores";
        return Err(Fault::parameter(LABEL, label, why));
    }
    Ok(label)
}

/// Returns a list as JSON; one element is written without brackets.
fn one_or_all(all: Vec<String>) -> Value {
    match all.as_slice() {
        [one] => json!(one),
        all => json!(all),
    }
}

fn statements(policy: &Value) -> Vec<Value> {
    match &policy["Statement"] {
        Value::Array(statements) => statements.clone(),
        Value::Object(_) => vec![policy["Statement"].clone()],
        _ => Vec::new(),
    }
}

/// Whether an action can be allowed to other accounts.
fn is_shared(action: &str) -> bool {
    let shared = [
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    ];
    shared.contains(&action)
}

/// Whether a policy forbids the operation to the queue's own account.
pub fn forbids(policy: Option<&str>, facts: &RequestFacts<'_>, operation: Operation, arn: &str) -> bool {
    let is_rescue = matches!(
        operation,
        Operation::SetQueueAttributes | Operation::GetQueueAttributes | Operation::RemovePermission
    );
    !is_rescue && policy::decide(policy, facts, operation, arn) == Decision::Denied
}

/// Whether a policy allows the operation to another account.
pub fn allows(policy: Option<&str>, facts: &RequestFacts<'_>, operation: Operation, arn: &str) -> bool {
    let action = operation.name();
    is_shared(action.strip_suffix("Batch").unwrap_or(action))
        && policy::decide(policy, facts, operation, arn) == Decision::Allowed
}

#[cfg(test)]
mod tests {
    use super::*;
    use angarium_core::time::Timestamp;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:q";

    fn facts(account: &str) -> RequestFacts<'_> {
        RequestFacts { account, source: None, now: Timestamp::from_millis(0) }
    }

    fn policy(effect: &str, principal: Value, action: &str) -> Value {
        json!({"Statement": [{"Effect": effect, "Principal": principal, "Action": action, "Resource": ARN}]})
    }

    fn allowed(policy: &Value, account: &str, operation: Operation, arn: &str) -> bool {
        allows(Some(&policy.to_string()), &facts(account), operation, arn)
    }

    #[test]
    fn statement_beyond_the_bytes_of_a_policy_is_refused() {
        let statement = |accounts: usize| {
            let principals: Vec<_> = (0..accounts).map(|at| format!("arn:aws:iam::{at:012}:root")).collect();
            json!({"Sid": "s", "Effect": "Allow", "Principal": {"AWS": principals}})
        };
        let empty = || json!({"Version": "2008-10-17", "Statement": []});
        let fits = with_statement(empty(), "s", statement(200)).unwrap();
        assert!(fits.to_string().len() <= limits::SQS_POLICY_BYTES);
        let refused = with_statement(fits, "t", statement(60)).unwrap_err();
        assert_eq!(refused.kind, Kind::OverLimit, "{}", refused.message);
        assert_eq!(with_statement(empty(), "s", statement(300)).unwrap_err().kind, Kind::OverLimit);
    }

    #[test]
    fn policy_allows_only_its_statements() {
        let one = policy("Allow", json!({"AWS": "arn:aws:iam::111111111111:root"}), "SQS:SendMessage");
        assert!(allowed(&one, "111111111111", Operation::SendMessage, ARN));
        assert!(allowed(&one, "111111111111", Operation::SendMessageBatch, ARN));
        assert!(!allowed(&one, "111111111111", Operation::ReceiveMessage, ARN));
        assert!(!allowed(&one, "222222222222", Operation::SendMessage, ARN));
        assert!(!allowed(&one, "111111111111", Operation::SendMessage, "arn:aws:sqs:us-east-1:0:other"));
        let all = policy("Allow", json!("*"), "sqs:*");
        assert!(allowed(&all, "222222222222", Operation::ReceiveMessage, ARN));
        assert!(!allowed(&all, "222222222222", Operation::DeleteQueue, ARN), "that is for its owner alone");
        assert!(!allows(None, &facts("222222222222"), Operation::SendMessage, ARN));
    }

    #[test]
    fn account_is_bound_by_denials_and_can_undo_them() {
        let forbidden =
            |one: &Value, operation| forbids(Some(&one.to_string()), &facts("000000000000"), operation, ARN);
        let mut one = policy("Deny", json!("*"), "SQS:*");
        assert!(forbidden(&one, Operation::SendMessageBatch) && forbidden(&one, Operation::DeleteQueue));
        let is_rescued = |one: &Value| {
            !forbidden(one, Operation::SetQueueAttributes)
                && !forbidden(one, Operation::RemovePermission)
                && !forbidden(one, Operation::GetQueueAttributes)
        };
        assert!(is_rescued(&one));
        one["Statement"][0]["Condition"] = json!({"DateGreaterThan": {"aws:CurrentTime": "2001-01-01"}});
        assert!(!forbidden(&one, Operation::SendMessage), "its time has not come");
        one["Statement"][0]["Condition"] = json!({"DateLessThan": {"aws:CurrentTime": "2001-01-01"}});
        assert!(forbidden(&one, Operation::SendMessage));
        assert!(!forbidden(&policy("Deny", json!("*"), "SQS:SendMessage"), Operation::ReceiveMessage));
        assert!(!forbidden(&policy("Allow", json!("*"), "SQS:*"), Operation::SendMessage));
        let unreadable = json!({"Statement": "all"});
        for unreadable in [unreadable, json!("all"), json!(7)] {
            assert!(
                forbidden(&unreadable, Operation::SendMessage) && is_rescued(&unreadable),
                "{unreadable}"
            );
        }
    }

    #[test]
    fn denied_or_failed_condition_is_not_allowed() {
        let mut both = policy("Allow", json!("*"), "SQS:*");
        let denial = policy("Deny", json!({"AWS": ["111111111111"]}), "SQS:SendMessage");
        both["Statement"].as_array_mut().unwrap().push(denial["Statement"][0].clone());
        assert!(!allowed(&both, "111111111111", Operation::SendMessage, ARN));
        assert!(allowed(&both, "222222222222", Operation::SendMessage, ARN));
        let mut bound = policy("Allow", json!("*"), "SQS:*");
        bound["Statement"][0]["Condition"] = json!({"Bool": {"aws:SecureTransport": "true"}});
        assert!(!allowed(&bound, "111111111111", Operation::SendMessage, ARN), "nobody knows");
        let in_the_clear = facts("111111111111");
        let encrypted = RequestFacts { source: Some("https 192.0.2.7".parse().unwrap()), ..in_the_clear };
        assert!(allows(Some(&bound.to_string()), &encrypted, Operation::SendMessage, ARN));
    }
}
