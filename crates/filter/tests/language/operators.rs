//! Each operator with values that it accepts and refuses.

use crate::verdict::{accepts_body, assert_values};

#[test]
fn string_is_matched_exactly() {
    assert_values(
        r#""rugby", "a\"b""#,
        &[r#""rugby""#, r#""a\"b""#, r#""rug\u0062y""#],
        &[r#""Rugby""#, r#""rugby ""#, r#""""#, "null", "{}", "5"],
    );
}

#[test]
fn number_is_matched_by_its_value() {
    let large = "12345678901234567890.5";
    assert_values(
        "300",
        &["300", "300.0", "3e2", "3.00E+2", "30000e-2"],
        &["301", "\"300\"", "-300", "true"],
    );
    assert_values("0.1", &["0.1", "1e-1", "0.10"], &["0.10000000000000001", "0.1000001", "0"]);
    assert_values("0", &["0", "-0", "0.0", "0e9"], &["null", "false", "\"\"", "1e-400"]);
    assert_values("20, -3, 7, 0.5", &["-3", "0.5", "7", "20"], &["3", "-20", "0", "8"]);
    // Account numbers are beyond the range of `numeric`.
    assert_values(
        large,
        &[large, "123456789012345678905e-1"],
        &["12345678901234567890", "1.2345678901234567e19"],
    );
}

#[test]
fn words_match_themselves_only() {
    assert_values("true", &["true"], &["false", "\"true\"", "1", "null"]);
    assert_values("false", &["false"], &["true", "0", "null", "\"\""]);
    assert_values("null", &["null"], &["false", "0", "\"null\"", "\"\"", "{}", "[]"]);
    assert!(!accepts_body(r#"{"k": [null]}"#, b"{}"), "an absent key is not null");
}

#[test]
fn prefix_matches_the_begin_of_strings() {
    assert_values(
        r#"{"prefix": "bas"}"#,
        &[r#""bas""#, r#""baseball""#],
        &[r#""Base""#, r#""abas""#, r#""ba""#, "5"],
    );
    assert_values(r#"{"prefix": "é"}"#, &[r#""éa""#, r#""\u00e9""#], &[r#""e""#, r#""è""#]);
    assert_values(r#"{"prefix": ""}"#, &[r#""""#, r#""a""#], &["5", "null"]);
}

#[test]
fn suffix_matches_the_end_of_strings() {
    assert_values(
        r#"{"suffix": "ball"}"#,
        &[r#""ball""#, r#""baseball""#],
        &[r#""baseBall""#, r#""balls""#, "5"],
    );
}

#[test]
fn equals_ignore_case_matches_strings_in_any_case() {
    assert_values(
        r#"{"equals-ignore-case": "TeNNis"}"#,
        &[r#""tennis""#, r#""TENNIS""#, r#""tEnnIs""#],
        &[r#""tenni""#, r#""tennis ""#, "5", "null"],
    );
    assert_values(
        r#"{"equals-ignore-case": "ÄΣ"}"#,
        &[r#""äσ""#, r#""ÄΣ""#, r#""äΣ""#],
        &[r#""aσ""#, r#""ä""#],
    );
}

#[test]
fn numeric_compares_one_side() {
    assert_values(r#"{"numeric": ["=", 301.5]}"#, &["301.5", "3.015e2"], &["301.50001", "\"301.5\"", "null"]);
    assert_values(r#"{"numeric": ["<", 0]}"#, &["-1", "-1e-9", "-1e99"], &["0", "-0", "1", "\"-1\""]);
    assert_values(r#"{"numeric": ["<=", -1.5]}"#, &["-1.5", "-15e-1", "-2"], &["-1.49999", "0", "1.5"]);
    assert_values(
        r#"{"numeric": [">", 0.1]}"#,
        &["0.10001", "0.1000000000000000001", "1"],
        &["0.1", "0.09", "-1"],
    );
    assert_values(
        r#"{"numeric": [">=", 1000000000]}"#,
        &["1e9", "1000000000.0", "1e10"],
        &["999999999.99999"],
    );
}

#[test]
fn numeric_compares_with_a_range() {
    let values = ["1", "1.00001", "99.99999", "100"];
    for (bottom, top, accepted) in
        [(">", "<", 1..3), (">=", "<", 0..3), (">", "<=", 1..4), (">=", "<=", 0..4)]
    {
        let rule = format!(r#"{{"numeric": ["{bottom}", 1, "{top}", 100]}}"#);
        assert_values(
            &rule,
            &values[accepted.clone()],
            &[&values[..accepted.start], &values[accepted.end..]].concat(),
        );
        assert_values(&rule, &[], &["0.99999", "100.00001", "\"50\""]);
    }
}

#[test]
fn cidr_matches_addresses_in_the_network() {
    assert_values(
        r#"{"cidr": "10.0.0.0/24"}"#,
        &[r#""10.0.0.0""#, r#""10.0.0.255""#],
        &[r#""10.0.1.0""#, r#""9.255.255.255""#, r#""10.0.0.0/24""#, r#""10.0.0""#, r#""::a00:0""#, "10"],
    );
    assert_values(
        r#"{"cidr": "2001:db8::/32"}"#,
        &[r#""2001:db8::""#, r#""2001:0DB8:ffff::1""#],
        &[r#""2001:db9::""#, r#""10.0.0.1""#],
    );
    // Bits after the prefix do not count.
    assert_values(
        r#"{"cidr": "10.1.2.3/8"}"#,
        &[r#""10.9.9.9""#, r#""::ffff:10.9.9.9""#],
        &[r#""11.1.2.3""#],
    );
    assert_values(r#"{"cidr": "0.0.0.0/0"}"#, &[r#""255.255.255.255""#], &[r#""::1""#]);
    assert_values(r#"{"cidr": "10.0.0.7/32"}"#, &[r#""10.0.0.7""#], &[r#""10.0.0.6""#]);
}

#[test]
fn exists_true_needs_a_value() {
    assert_values(
        r#"{"exists": true}"#,
        &["0", "false", r#""a""#, "[1]", "[null, 1]"],
        &["null", r#""""#, "[]", "{}", r#"{"a": 1}"#, "[null]"],
    );
    assert!(!accepts_body(r#"{"k": [{"exists": true}]}"#, br#"{"other": 1}"#));
}

#[test]
fn exists_false_needs_a_key_without_value() {
    let refused = ["0", "false", r#""a""#, "[1]", "null", r#""""#];
    assert_values(r#"{"exists": false}"#, &["[]", "{}", r#"{"a": 1}"#], &refused);
    assert!(accepts_body(r#"{"k": [{"exists": false}]}"#, br#"{"other": 1}"#));
    assert!(accepts_body(r#"{"k": [{"exists": false}]}"#, b"{}"));
}

#[test]
fn anything_but_accepts_other_values() {
    assert_values(
        r#"{"anything-but": "rugby"}"#,
        &[r#""Rugby""#, r#""tennis""#, "5", "true", "null", r#"["rugby", "tennis"]"#],
        &[r#""rugby""#, r#"["rugby"]"#, "[]", "{}"],
    );
    assert_values(
        r#"{"anything-but": ["rugby", "tennis"]}"#,
        &[r#""football""#, r#"["rugby", "football"]"#],
        &[r#""rugby""#, r#""tennis""#, r#"["rugby", "tennis"]"#],
    );
    assert!(!accepts_body(r#"{"k": [{"anything-but": "rugby"}]}"#, b"{}"), "it needs a value");
    assert!(accepts_body(r#"{"k": [{"anything-but": "rugby"}, {"exists": false}]}"#, b"{}"));
}

#[test]
fn anything_but_accepts_other_numbers() {
    assert_values(
        r#"{"anything-but": 100}"#,
        &["101", "100.00001", "\"100\""],
        &["100", "1e2", "[100, 100.0]"],
    );
    assert_values(r#"{"anything-but": [100, 500, -3]}"#, &["101", "[100, 50]"], &["100", "500.0", "-30e-1"]);
}

#[test]
fn anything_but_excludes_prefixes() {
    assert_values(
        r#"{"anything-but": {"prefix": "bas"}}"#,
        &[r#""rugby""#, r#""ba""#, "5"],
        &[r#""bas""#, r#""basketball""#],
    );
    assert_values(
        r#"{"anything-but": {"prefix": ["base", "basket", "b", "x"]}}"#,
        &[r#""rugby""#, r#""a""#, r#""""#],
        &[r#""baseball""#, r#""b""#, r#""bz""#, r#""xa""#],
    );
}

#[test]
fn anything_but_excludes_suffixes() {
    assert_values(
        r#"{"anything-but": {"suffix": "ball"}}"#,
        &[r#""rugby""#, r#""all""#, "5"],
        &[r#""ball""#, r#""baseball""#],
    );
    assert_values(
        r#"{"anything-but": {"suffix": [".tmp", "~"]}}"#,
        &[r#""a.txt""#, r#""tmp""#],
        &[r#""a.tmp""#, r#""a.txt~""#],
    );
}

#[test]
fn anything_but_excludes_strings_in_any_case() {
    assert_values(
        r#"{"anything-but": {"equals-ignore-case": "Rugby"}}"#,
        &[r#""tennis""#, "5"],
        &[r#""rugby""#, r#""RUGBY""#],
    );
    assert_values(
        r#"{"anything-but": {"equals-ignore-case": ["Rugby", "ÄΣ"]}}"#,
        &[r#""tennis""#],
        &[r#""rUGBY""#, r#""äσ""#],
    );
}

#[test]
fn elements_of_a_key_are_alternatives() {
    assert_values(
        r#""rugby", {"prefix": "bas"}, {"numeric": ["<", 0]}, null"#,
        &[r#""rugby""#, r#""basic""#, "-1", "null", r#"["x", -1]"#],
        &[r#""x""#, "1", "true", r#"["x", 1]"#],
    );
}
