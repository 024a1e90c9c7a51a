//! Errors that programs read: their codes, and messages of which AWS has recorded the words, in both protocols.

use angarium_core::limits;
use serde_json::{Value, json};

use super::wire::{NONE, Service, text};

const NO_TASK_ARN: &str = "arn:aws:sqs:us-east-1:000000000000:dead";

/// Sends a request in both protocols and expects this message.
fn expect(service: &Service, code: &str, operation: &str, members: &Value, message: &str) {
    assert_eq!(service.refused(code, operation, members), message, "{operation} {members}");
}

#[test]
fn error_of_queue_has_words_of_aws() {
    let service = Service::start();
    let value = |name: &str, parameter: &str, why: &str| {
        format!("Value {name} for parameter {parameter} is invalid. Reason: {why}.")
    };
    let plain = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
    let ordered = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must \
                   end with .fifo suffix and be 1 to 80 in length";
    let is_fifo = json!({"FifoQueue": "true"});
    for (members, name, why) in [
        (json!({"QueueName": "a b"}), "a b", plain),
        (json!({"QueueName": "a.fifo"}), "a.fifo", plain),
        (json!({"QueueName": "a", "Attributes": is_fifo}), "a", ordered),
    ] {
        expect(&service, "InvalidParameterValue", "CreateQueue", &members, &value(name, "QueueName", why));
    }
    let unnamed = "Value for parameter QueueName is invalid. Reason: Must specify a queue name.";
    expect(&service, "InvalidParameterValue", "CreateQueue", &json!({}), unnamed);
    expect(&service, "InvalidParameterValue", "GetQueueUrl", &json!({}), unnamed);
    let set = |queue: &str, attributes: Value| json!({"QueueUrl": queue, "Attributes": attributes});
    let both = json!({"KmsMasterKeyId": "alias/mine", "SqsManagedSseEnabled": "true"});
    let one_type = "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE \
                    or SQS SSE.";
    expect(&service, "InvalidAttributeName", "SetQueueAttributes", &set("q", both), one_type);
    let needs =
        "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup";
    for (attributes, name, why) in [
        (json!({"FifoQueue": "false"}), "FifoQueue", "Modifying queue type is not supported"),
        (json!({"FifoThroughputLimit": "perMessageGroupId"}), "FifoThroughputLimit", needs),
    ] {
        let message = format!("Invalid value for the parameter {name}. Reason: {why}.");
        expect(&service, "InvalidAttributeValue", "SetQueueAttributes", &set("f.fifo", attributes), &message);
    }
    expect(
        &service,
        "MissingParameter",
        "AddPermission",
        &json!({"QueueUrl": "q", "Label": "l", "AWSAccountIds": ["111111111111"]}),
        "The request must contain the parameter ActionName.",
    );
    let add = |action: &str, account: &str| json!({"QueueUrl": "q", "Label": "l", "AWSAccountIds": [account], "Actions": [action]});
    for (action, why) in [
        ("CreateQueue", "Only the queue owner is allowed to invoke this action"),
        ("SendMessageBatch", "Please refer to the appropriate WSDL for a list of valid actions"),
        ("Nothing", "Please refer to the appropriate WSDL for a list of valid actions"),
    ] {
        let message = value(&format!("SQS:{action}"), "ActionName", why);
        expect(&service, "InvalidParameterValue", "AddPermission", &add(action, "111111111111"), &message);
    }
    let said = service.refused("InvalidParameterValue", "AddPermission", &add("SendMessage", "*?"));
    assert!(
        said.starts_with("Value [*?] for parameter PrincipalId is invalid. Reason: Unable to verify."),
        "{said}"
    );
}

#[test]
fn error_of_redrive_policy_has_words_of_aws() {
    let service = Service::start();
    service.done("CreateQueue", &json!({"QueueName": "dead"}));
    let arn = NO_TASK_ARN;
    let of = |name: &str, policy: &str| json!({"QueueUrl": "q", "Attributes": {name: policy}});
    let missing = "Redrive policy does not contain mandatory attribute: ";
    let count = |count: &str| {
        format!("Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive")
    };
    for (policy, why) in [
        ("[]".to_owned(), "Redrive policy is not a valid JSON map".to_owned()),
        ("{".to_owned(), "Redrive policy is not a valid JSON map".to_owned()),
        (json!({"deadLetterTargetArn": arn}).to_string(), format!("{missing}maxReceiveCount")),
        (json!({"maxReceiveCount": 1}).to_string(), format!("{missing}deadLetterTargetArn")),
        (json!({"deadLetterTargetArn": arn, "maxReceiveCount": 1001}).to_string(), count("1001")),
        (json!({"deadLetterTargetArn": arn, "maxReceiveCount": 1.5}).to_string(), count("1.5")),
        (
            json!({"deadLetterTargetArn": "dead", "maxReceiveCount": 1}).to_string(),
            "Dead-letter target ARN should be fully qualified ARN".to_owned(),
        ),
        (
            json!({"deadLetterTargetArn": arn, "maxReceiveCount": 1, "more": 1}).to_string(),
            "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn]".to_owned(),
        ),
        (
            json!({"deadLetterTargetArn": format!("{arn}er"), "maxReceiveCount": 1}).to_string(),
            "Dead letter target does not exist".to_owned(),
        ),
        (
            json!({"deadLetterTargetArn": arn.replace("dead", "f.fifo"), "maxReceiveCount": 1}).to_string(),
            "Dead-letter queue must be same type of queue as the source".to_owned(),
        ),
        (
            json!({"deadLetterTargetArn": arn.replace("0000:", "0001:"), "maxReceiveCount": 1}).to_string(),
            "Dead-letter target owner should be same as the source".to_owned(),
        ),
        (
            json!({"deadLetterTargetArn": arn.replace("us-east", "eu-west"), "maxReceiveCount": 1})
                .to_string(),
            "Dead-letter target must be in same region as the source".to_owned(),
        ),
    ] {
        let message = format!("Value {policy} for parameter RedrivePolicy is invalid. Reason: {why}.");
        let members = of("RedrivePolicy", &policy);
        expect(&service, "InvalidParameterValue", "SetQueueAttributes", &members, &message);
    }
    let sources = vec![arn; 11];
    for (policy, why) in [
        (json!({"redrivePermission": "byQueue"}), "When you specify the byQueue permission type"),
        (json!({"redrivePermission": "byQueue", "sourceQueueArns": sources}), "The maximum number of source"),
        (json!({"redrivePermission": "denyAll", "sourceQueueArns": [arn]}), "To specify one or more source"),
    ] {
        let members = of("RedriveAllowPolicy", &policy.to_string());
        let said = service.refused("InvalidParameterValue", "SetQueueAttributes", &members);
        let begins = policy.to_string().chars().take(limits::SQS_SHOWN_CHARS).collect::<String>();
        assert!(
            said.starts_with(&format!("Value {begins} for parameter RedriveAllowPolicy is invalid.")),
            "{said}"
        );
        assert!(said.contains(&format!("can't create the redrive allow policy. {why}")), "{said}");
    }
    let members = of("RedriveAllowPolicy", r#"{"redrivePermission": "all"}"#);
    let said = service.refused("InvalidAttributeValue", "SetQueueAttributes", &members);
    assert!(said.ends_with("unsupported format."), "{said}");
}

#[test]
fn error_of_message_attribute_has_words_of_aws() {
    let service = Service::start();
    let attribute = |name: &str, kind: &str, field: &str, value: &str| {
        let written = json!({"DataType": kind, field: value});
        json!({"QueueUrl": "q", "MessageBody": "x", "MessageAttributes": {name: written}})
    };
    let string = |name: &str| attribute(name, "String", "StringValue", "v");
    let valid = "You must use only the following supported type prefixes: Binary, Number, String.";
    let long = "x".repeat(2 * limits::SQS_SHOWN_CHARS);
    for (members, message) in [
        (
            attribute("Age", "Number", "StringValue", "old"),
            "Can't cast the value of message (user) attribute 'Age' to a number.".to_owned(),
        ),
        (
            attribute("a", "String", "StringValue", ""),
            "Message (user) attribute 'a' must contain a non-empty value of type 'String'.".to_owned(),
        ),
        (
            attribute("a", "", "StringValue", "v"),
            "The message (user) attribute 'a' must contain a non-empty message attribute type.".to_owned(),
        ),
        (
            attribute("a", "Text", "StringValue", "v"),
            format!("The type of message (user) attribute 'a' is invalid. {valid}"),
        ),
        (
            attribute("a", "Binary", "StringValue", "v"),
            "Message (user) attribute 'a' with type 'Binary' must use field 'Binary'.".to_owned(),
        ),
        (string(""), "The request must contain non-empty message (user) attribute names.".to_owned()),
        (
            string(".a"),
            "Message (user) attribute name must not begin with character '.'. It is '.a'.".to_owned(),
        ),
        (
            string(&long),
            format!(
                "Message (user) attribute name must be shorter than 256 bytes. It is '{}'.",
                "x".repeat(limits::SQS_SHOWN_CHARS)
            ),
        ),
    ] {
        // The forms of these members are those of JSON alone here.
        let answer = service.json("SendMessage", &members, NONE);
        let told = answer.headers["x-amzn-query-error"].to_str().unwrap().to_owned();
        assert_eq!(
            (told.as_str(), answer.json()["message"].as_str()),
            ("InvalidParameterValue;Sender", Some(message.as_str()))
        );
    }
    let mut lists = string("a");
    lists["MessageAttributes"]["a"]["StringListValues"] = json!(["v"]);
    let code = service.json("SendMessage", &lists, NONE).headers["x-amzn-query-error"].clone();
    assert_eq!(code, "AWS.SimpleQueueService.UnsupportedOperation;Sender");
    let form = "Action=SendMessage&MessageBody=x&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String\
                &MessageAttribute.1.Value.StringValue=v&MessageAttribute.1.Value.StringListValue.1=v";
    let said = text(&service.form("/000000000000/q", form.as_bytes()));
    assert!(said.contains("<Code>AWS.SimpleQueueService.UnsupportedOperation</Code>"), "{said}");
    assert!(
        said.contains("Message attribute list values in SendMessage operation are not supported."),
        "{said}"
    );
}

#[test]
fn error_of_message_has_words_of_aws() {
    let service = Service::start();
    let system = json!({"Hello": {"DataType": "String", "StringValue": "x"}});
    let members = json!({"QueueUrl": "q", "MessageBody": "x", "MessageSystemAttributes": system});
    let said = service.json("SendMessage", &members, NONE).json()["message"].clone();
    assert_eq!(said, "Message system attribute name 'Hello' is invalid.");
    let send = |queue: &str, body: &str| json!({"QueueUrl": queue, "MessageBody": body});
    let characters = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | \
                      #xE000 to #xFFFD | #x10000 to #x10FFFF";
    expect(&service, "InvalidMessageContents", "SendMessage", &send("q", "\u{ffff}"), characters);
    let mut in_group = send("f.fifo", "x");
    in_group["MessageGroupId"] = json!("g");
    let both = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
                explicitly";
    expect(&service, "InvalidParameterValue", "SendMessage", &in_group, both);
    let late = json!({"QueueUrl": "q", "MessageBody": "x", "DelaySeconds": -234});
    let why =
        "Value -234 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.";
    expect(&service, "InvalidParameterValue", "SendMessage", &late, why);
    service.done("SendMessage", &send("q", "x"));
    let got = service.done("ReceiveMessage", &json!({"QueueUrl": "q"}));
    let handle = got["Messages"][0]["ReceiptHandle"].clone();
    let longer = json!({"QueueUrl": "q", "ReceiptHandle": handle, "VisibilityTimeout": 43_200});
    let why = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the \
               message is beyond the limit [43200 seconds].";
    expect(&service, "InvalidParameterValue", "ChangeMessageVisibility", &longer, why);
}

#[test]
fn error_of_attribute_tells_value_and_form() {
    let service = Service::start();
    for (queue, name, value, form) in [
        ("q", "DelaySeconds", "901", "a whole number from 0 to 900"),
        ("q", "VisibilityTimeout", "", "a whole number from 0 to 43200"),
        ("q", "MessageRetentionPeriod", "1 day", "a whole number from 60 to 1209600"),
        ("q", "MaximumMessageSize", "1023", "a whole number from 1024 to 1048576"),
        ("q", "ReceiveMessageWaitTimeSeconds", "-1", "a whole number from 0 to 20"),
        ("q", "KmsDataKeyReusePeriodSeconds", "59", "a whole number from 60 to 86400"),
        ("q", "SqsManagedSseEnabled", "on", "true or false"),
        ("f.fifo", "FifoQueue", "", "true or false"),
        ("f.fifo", "ContentBasedDeduplication", "1", "true or false"),
        ("f.fifo", "DeduplicationScope", "group", "queue or messageGroup"),
        ("f.fifo", "FifoThroughputLimit", "none", "perQueue or perMessageGroupId"),
    ] {
        let message = format!("Invalid value for the parameter {name}. Reason: {value:?} is not {form}.");
        let members = json!({"QueueUrl": queue, "Attributes": {name: value}});
        expect(&service, "InvalidAttributeValue", "SetQueueAttributes", &members, &message);
    }
    let other = NO_TASK_ARN.replace("us-east", "eu-west");
    let allow = json!({"redrivePermission": "byQueue", "sourceQueueArns": [other]}).to_string();
    let why = format!(
        "Amazon SQS can't create the redrive allow policy. {other:?} is no ARN of a queue of the same account and region"
    );
    let message = format!("Value {allow} for parameter RedriveAllowPolicy is invalid. Reason: {why}.");
    let members = json!({"QueueUrl": "q", "Attributes": {"RedriveAllowPolicy": allow}});
    expect(&service, "InvalidParameterValue", "SetQueueAttributes", &members, &message);
}

#[test]
fn error_of_tag_names_parameter_and_value() {
    let service = Service::start();
    let many: serde_json::Map<String, Value> = (0..51).map(|at| (format!("k{at}"), json!("v"))).collect();
    for (tags, begins) in [
        (json!({"aws:team": "a"}), "Value aws:team for parameter TagKey is invalid. Reason: "),
        (json!({"": "a"}), "Value  for parameter TagKey is invalid. Reason: "),
        (json!({"team": "a*b"}), "Value a*b for parameter TagValue is invalid. Reason: "),
        (Value::Object(many), "Value for parameter Tags is invalid. Reason: A queue has at most 50 tags"),
    ] {
        for (operation, members) in [
            ("TagQueue", json!({"QueueUrl": "q", "Tags": tags})),
            ("CreateQueue", json!({"QueueName": "new", "Tags": tags})),
        ] {
            let answer = service.json(operation, &members, NONE);
            let said = answer.json()["message"].as_str().unwrap().to_owned();
            assert_eq!(answer.headers["x-amzn-query-error"], "InvalidParameterValue;Sender", "{said}");
            assert!(said.starts_with(begins) && said.len() > begins.len(), "{operation}: {said}");
        }
    }
}

#[test]
fn error_of_batch_names_entry_and_parameter() {
    let service = Service::start();
    service
        .done("SetQueueAttributes", &json!({"QueueUrl": "q", "Attributes": {"MaximumMessageSize": "1024"}}));
    let batch = |entries: Value| json!({"QueueUrl": "q", "Entries": entries});
    for operation in ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"] {
        let entry = format!("{operation}RequestEntry");
        let empty = format!("There should be at least one {entry} in the request.");
        expect(&service, "AWS.SimpleQueueService.EmptyBatchRequest", operation, &batch(json!([])), &empty);
        let unnamed = json!([{"Id": "a", "ReceiptHandle": "x"}, {"ReceiptHandle": "x"}]);
        let why = format!("The request must contain the parameter {entry}.2.Id.");
        expect(&service, "MissingParameter", operation, &batch(unnamed), &why);
        let why = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at \
                   most 80 letters long.";
        let code = "AWS.SimpleQueueService.InvalidBatchEntryId";
        expect(&service, code, operation, &batch(json!([{"Id": "a:b"}])), why);
        // JSON tells a list that is missing from one without elements.
        let missing = service.json(operation, &json!({"QueueUrl": "q"}), NONE).json();
        assert_eq!(missing["message"], "The request must contain the parameter Entries.");
    }
    let failures = |operation: &str, entries: Value| -> Vec<(String, String)> {
        let failed = service.done(operation, &batch(entries))["Failed"].clone();
        let told = |entry: &Value| {
            assert_eq!(entry["SenderFault"], true);
            ["Code", "Message"].map(|member| entry[member].as_str().unwrap().to_owned()).into()
        };
        failed.as_array().unwrap().iter().map(told).collect()
    };
    let told = |code: &str, message: &str| (code.to_owned(), message.to_owned());
    let no_handle = told("MissingParameter", "The request must contain the parameter ReceiptHandle.");
    let bad_handle =
        told("ReceiptHandleIsInvalid", "The input receipt handle \"x\" is not a valid receipt handle.");
    let sent = json!([{"Id": "a", "MessageBody": "y".repeat(1_025)}, {"Id": "b"}]);
    let too_long =
        "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.";
    let no_body = "The request must contain the parameter SendMessageBatchRequestEntry.2.MessageBody.";
    assert_eq!(
        failures("SendMessageBatch", sent),
        [told("InvalidParameterValue", too_long), told("MissingParameter", no_body)]
    );
    let handles = json!([{"Id": "a"}, {"Id": "b", "ReceiptHandle": "x"}, {"Id": "c", "ReceiptHandle": ""}]);
    assert_eq!(
        failures("DeleteMessageBatch", handles),
        [no_handle.clone(), bad_handle.clone(), no_handle.clone()]
    );
    let changes = json!([
        {"Id": "a", "VisibilityTimeout": 1}, {"Id": "b", "ReceiptHandle": "x"},
        {"Id": "c", "ReceiptHandle": "x", "VisibilityTimeout": -85}, {"Id": "d", "ReceiptHandle": "x", "VisibilityTimeout": 1},
    ]);
    let no_time = "The request must contain the parameter ChangeMessageVisibilityBatchRequestEntry.2.VisibilityTimeout.";
    let bad_time = "Value -85 for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200, if provided.";
    assert_eq!(
        failures("ChangeMessageVisibilityBatch", changes),
        [no_handle, told("MissingParameter", no_time), told("InvalidParameterValue", bad_time), bad_handle]
    );
}

#[test]
fn error_of_move_task_has_words_of_aws() {
    let service = Service::start();
    let format = "You must use this format to specify the SourceArn: arn:<partition>:<service>:<region>:<account-id>:\
                  <resource-id>, of a queue in us-east-1";
    for operation in ["StartMessageMoveTask", "ListMessageMoveTasks"] {
        let message = format!("Value x for parameter SourceArn is invalid. Reason: {format}.");
        expect(&service, "InvalidParameterValue", operation, &json!({"SourceArn": "x"}), &message);
    }
    let handle = "Value for parameter TaskHandle is invalid.";
    expect(&service, "InvalidParameterValue", "CancelMessageMoveTask", &json!({"TaskHandle": "x"}), handle);
    let arn = |name: &str| NO_TASK_ARN.replace("dead", name);
    let no_dead = "Source queue must be configured as a Dead Letter Queue.";
    expect(
        &service,
        "InvalidParameterValue",
        "StartMessageMoveTask",
        &json!({"SourceArn": arn("q")}),
        no_dead,
    );
    service.done("CreateQueue", &json!({"QueueName": "dead"}));
    let policy = json!({"deadLetterTargetArn": NO_TASK_ARN, "maxReceiveCount": 1}).to_string();
    service.done("SetQueueAttributes", &json!({"QueueUrl": "q", "Attributes": {"RedrivePolicy": policy}}));
    let to = |target: &str| json!({"SourceArn": NO_TASK_ARN, "DestinationArn": arn(target)});
    let same = "Source queue arn and destination queue arn cannot be the same.";
    expect(&service, "InvalidParameterValue", "StartMessageMoveTask", &to("dead"), same);
    let other = "The source queue and destination queue must be of the same queue type.";
    expect(&service, "InvalidParameterValue", "StartMessageMoveTask", &to("f.fifo"), other);
    for (operation, members, name) in [
        ("StartMessageMoveTask", json!({"SourceArn": arn("none")}), "SourceArn"),
        ("ListMessageMoveTasks", json!({"SourceArn": arn("none")}), "SourceArn"),
        ("StartMessageMoveTask", to("none"), "DestinationArn"),
    ] {
        let answer = service.json(operation, &members, NONE);
        let message = format!("The resource that you specified for the {name} parameter doesn't exist.");
        assert_eq!((answer.status.as_u16(), answer.json()["message"].clone()), (404, json!(message)));
    }
}

#[test]
fn member_of_wrong_type_is_malformed_input() {
    let service = Service::start();
    for (member, value) in [("MaxNumberOfMessages", "many"), ("VisibilityTimeout", "1.5")] {
        let answer = service.json("ReceiveMessage", &json!({"QueueUrl": "q", member: value}), NONE);
        let code = answer.headers["x-amzn-query-error"].to_str().unwrap().to_owned();
        assert_eq!((answer.status.as_u16(), code.as_str()), (400, "MalformedInput;Sender"));
        assert_eq!(answer.json()["__type"], "com.amazon.coral.service#SerializationException");
        let form = format!("Action=ReceiveMessage&{member}={value}");
        let said = text(&service.form("/000000000000/q", form.as_bytes()));
        assert!(said.contains("<Code>MalformedInput</Code>") && said.contains("whole number"), "{said}");
    }
}

#[test]
fn form_without_its_list_names_the_parameter() {
    let service = Service::start();
    let said = |body: &[u8]| text(&service.form("/000000000000/q", body));
    let set = said(b"Action=SetQueueAttributes");
    assert!(set.contains("<Code>MissingParameter</Code>"), "{set}");
    assert!(
        set.contains("<Message>The request must contain the parameter Attribute.Name.</Message>"),
        "{set}"
    );
    let batch = said(b"Action=DeleteMessageBatch");
    assert!(batch.contains("at least one DeleteMessageBatchRequestEntry in the request."), "{batch}");
}
