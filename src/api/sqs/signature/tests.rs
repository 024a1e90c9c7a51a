//! Valid and invalid signatures of clients.

use axum::http::Request;

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const NOON: &str = "20150830T123600Z";

fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn signature(head: &Parts, body: &[u8], headers: &str) -> String {
    let credential = "AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
    let signed = Signature::new(credential, headers, String::new(), NOON.to_owned(), None).unwrap();
    let query = pairs(head.uri.query().unwrap_or_default());
    let canonical = canonical(head, &query, &signed, &hex(&Sha256::digest(body)));
    let mut mac = mac(&signing_key(SECRET, &signed.scope));
    mac.update(to_sign(&canonical, &signed).as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// Vectors from the test suite that AWS publishes.
#[test]
fn signatures_are_those_of_the_published_suite() {
    let plain = [("host", "example.amazonaws.com"), (DATE, NOON)];
    let form = [("content-type", "application/x-www-form-urlencoded"), ("host", plain[0].1), (DATE, NOON)];
    let letters = "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (head, body, headers, expected) in [
        (
            head("GET", "/", &plain),
            "",
            "host;x-amz-date",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            head("POST", "/", &plain),
            "",
            "host;x-amz-date",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            head("GET", "/?Param2=value2&Param1=value1", &plain),
            "",
            "host;x-amz-date",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            head("GET", letters, &plain),
            "",
            "host;x-amz-date",
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
        (
            head("POST", "/", &form),
            "Param1=value1",
            "content-type;host;x-amz-date",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ] {
        assert_eq!(signature(&head, body.as_bytes(), headers), expected, "{}", head.uri);
    }
}

#[test]
fn signed_header_named_twice_is_refused() {
    let refused =
        Signature::new("K/20150830/r/sqs/aws4_request", "host;Host", String::new(), NOON.to_owned(), None);
    assert_eq!(refused.unwrap_err().kind, Kind::IncompleteSignature);
}

#[test]
fn a_path_is_escaped_once_more_and_its_dots_are_resolved() {
    let canonical = |target: &str| escaped(&path(&head("GET", target, &[])), true);
    for (target, expected) in
        [("/a%20b/", "/a%2520b/"), ("/a/../b//c/.", "/b/c"), ("/..", "/"), ("/a/b", "/a/b")]
    {
        assert_eq!(canonical(target), expected, "{target}");
    }
}

#[test]
fn dates_have_one_form() {
    assert_eq!(instant(NOON).unwrap().as_millis(), 1_440_938_160_000);
    for bad in [
        "",
        "2015-08-30T12:36:00Z",
        "20150830T123600",
        "20150830 123600Z",
        "20151330T123600Z",
        "äääääääääääääääää",
    ] {
        assert!(instant(bad).is_none(), "{bad}");
    }
}

/// Signs a request for SQS and returns the result of its check at an instant.
fn check(headers: &[(&str, &str)], signed: &str, now: Timestamp) -> Result<Signer, Kind> {
    let all = [&[("host", "h"), (DATE, NOON)], headers].concat();
    let unsigned = head("POST", "/", &all);
    let credential = "AKIDEXAMPLE/20150830/eu-west-1/sqs/aws4_request";
    let made = Signature::new(credential, signed, String::new(), NOON.to_owned(), None).unwrap();
    let mut mac = mac(&signing_key(SECRET, &made.scope));
    let text = to_sign(&canonical(&unsigned, &[], &made, &hex(&Sha256::digest(b"{}"))), &made);
    mac.update(text.as_bytes());
    let signature = hex(&mac.finalize().into_bytes());
    let authorization =
        format!("{ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}");
    let project = ProjectId::new("123456789012").unwrap();
    let key = angarium_core::access_keys::AccessKey { secret: SECRET.to_owned(), project };
    let keys = [("AKIDEXAMPLE".to_owned(), key)].into_iter().collect();
    let head = head("POST", "/", &[&all[..], &[("authorization", &authorization)]].concat());
    judge(&head, &keys, now).and_then(|judged| judged.check_body(&head, b"{}")).map_err(|fault| fault.kind)
}

#[test]
fn a_signature_holds_for_its_request_and_its_time() {
    let noon = instant(NOON).unwrap();
    let signer = check(&[], "host;x-amz-date", noon).unwrap();
    assert_eq!((signer.project.as_str(), signer.region.as_str()), ("123456789012", "eu-west-1"));
    let skew = limits::SQS_CLOCK_SKEW_SECONDS;
    assert!(check(&[], "host;x-amz-date", noon.plus_seconds(skew)).is_ok());
    for wrong in [noon.plus_seconds(skew + 1), noon.minus_seconds(skew + 1)] {
        assert_eq!(check(&[], "host;x-amz-date", wrong), Err(Kind::SignatureNotCurrent));
    }
    assert_eq!(check(&[], "x-amz-date", noon), Err(Kind::SignatureDoesNotMatch), "the host is not signed");
    let target = [("x-amz-target", "AmazonSQS.ListQueues")];
    assert!(check(&target, "host;x-amz-date;x-amz-target", noon).is_ok());
    assert_eq!(check(&target, "host;x-amz-date", noon), Err(Kind::SignatureDoesNotMatch));
    let other = [(CONTENT, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")];
    assert_eq!(check(&other, "host;x-amz-content-sha256;x-amz-date", noon), Err(Kind::SignatureDoesNotMatch));
}

#[test]
fn signature_over_declared_hash_needs_no_body() {
    let hash = hex(&Sha256::digest(b"{}"));
    let told = [(CONTENT, hash.as_str())];
    let noon = instant(NOON).unwrap();
    assert!(check(&told, "host;x-amz-content-sha256;x-amz-date", noon).is_ok());
    let project = ProjectId::new("123456789012").unwrap();
    let key = angarium_core::access_keys::AccessKey { secret: SECRET.to_owned(), project };
    let keys = [("AKIDEXAMPLE".to_owned(), key)].into_iter().collect();
    let with = |signed: &str| {
        let scope = "AKIDEXAMPLE/20150830/us-east-1/sqs/aws4_request";
        let signature = "0".repeat(64);
        let text = format!("{ALGORITHM} Credential={scope}, SignedHeaders={signed}, Signature={signature}");
        let headers = [("host", "h"), (DATE, NOON), told[0], ("authorization", &text)];
        judge(&head("POST", "/", &headers), &keys, noon).map(|judged| judged.has_content_hash())
    };
    let wrong = with("host;x-amz-content-sha256;x-amz-date").unwrap_err();
    assert_eq!(wrong.kind, Kind::SignatureDoesNotMatch);
    assert!(!with("host;x-amz-date").unwrap(), "it is for the body to tell");
    for malformed in ["host;host", &"a;".repeat(200)] {
        assert_eq!(with(malformed).unwrap_err().kind, Kind::IncompleteSignature, "{malformed}");
    }
}
