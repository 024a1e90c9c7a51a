//! JSON as policies need it: numbers keep their digits, and the levels are bounded. The JSON type of `serde_json` rounds
//! numbers to `f64`.

use std::borrow::Cow;

use crate::limits::{DOTTED_PARTS, JSON_LEVELS};
use crate::object::Object;

/// A JSON value that borrows from its text.
#[derive(Debug)]
pub enum Json<'a> {
    Null,
    Bool(bool),
    /// A number as written.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Object<'a>),
}

/// The reason why a text is refused, and the byte where it shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub why: String,
    pub at: usize,
}

/// The treatment of keys in objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Keys are taken literally, and a repeated key is refused: a policy.
    Unique,
    /// Of a repeated key the last value counts, as with other JSON readers. A dot in a key counts as a level.
    Paths,
}

/// Reads a policy: a repeated key is refused.
pub fn read_policy(text: &str) -> Result<Json<'_>, Fault> {
    Reader { text, at: 0, keys: Keys::Unique }.document()
}

/// Reads data of a message: of a repeated key the last value counts, and `{"a.b": 1}` is `{"a": {"b": 1}}`. Cost: time
/// and memory are linear in the text, but for the sorting of keys.
pub fn read_message(text: &str) -> Result<Json<'_>, Fault> {
    Reader { text, at: 0, keys: Keys::Paths }.document()
}

/// Returns the parts of a key: those between its dots, or the key itself if there are too many.
pub fn path_parts(key: &str) -> impl Iterator<Item = &str> {
    let is_path = key.bytes().filter(|byte| *byte == b'.').count() < DOTTED_PARTS;
    key.split(move |letter| is_path && letter == '.')
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    keys: Keys,
}

impl<'a> Reader<'a> {
    fn document(mut self) -> Result<Json<'a>, Fault> {
        let value = self.value(JSON_LEVELS)?;
        self.skip_space();
        if self.at < self.text.len() { Err(self.fault("text after the end of the JSON")) } else { Ok(value) }
    }

    /// Reads a value of at most `levels` levels.
    fn value(&mut self, levels: usize) -> Result<Json<'a>, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(levels),
            Some(b'[') => self.array(levels),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(_) => Err(self.fault("no JSON value")),
            None => Err(self.fault("the text ends within JSON")),
        }
    }

    fn object(&mut self, levels: usize) -> Result<Json<'a>, Fault> {
        let levels = self.open(levels)?;
        let mut object = Object::default();
        if self.take(b'}') {
            return Ok(Json::Object(object));
        }
        loop {
            self.skip_space();
            let at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.fault("a key in quotes is expected"));
            }
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.fault("a colon is expected"));
            }
            let levels = match self.keys {
                Keys::Unique => levels,
                Keys::Paths => self.descend(levels, path_parts(&key).count() - 1)?,
            };
            object.push(key, self.value(levels)?);
            if self.take(b',') {
                continue;
            }
            if !self.take(b'}') {
                return Err(self.fault("a comma or } is expected"));
            }
            let repeated = object.sort();
            return match (self.keys, repeated) {
                (Keys::Unique, Some(key)) => {
                    Err(Fault { why: format!("the key {key} is there more than once"), at })
                }
                (Keys::Unique, None) => Ok(Json::Object(object)),
                (Keys::Paths, _) => Ok(Json::Object(object.split_keys())),
            };
        }
    }

    fn array(&mut self, levels: usize) -> Result<Json<'a>, Fault> {
        let levels = self.open(levels)?;
        let mut values = Vec::new();
        if self.take(b']') {
            return Ok(Json::Array(values));
        }
        loop {
            values.push(self.value(levels)?);
            if self.take(b',') {
                continue;
            }
            if !self.take(b']') {
                return Err(self.fault("a comma or ] is expected"));
            }
            return Ok(Json::Array(values));
        }
    }

    /// Takes a bracket; returns the levels that are left below it.
    fn open(&mut self, levels: usize) -> Result<usize, Fault> {
        let levels = self.descend(levels, 1)?;
        self.at += 1;
        Ok(levels)
    }

    fn descend(&self, levels: usize, by: usize) -> Result<usize, Fault> {
        let below = levels.checked_sub(by);
        below.ok_or_else(|| self.fault(&format!("more than {JSON_LEVELS} levels of JSON")))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.at;
        let mut is_plain = true;
        loop {
            self.at += 1;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    self.at += 1;
                }
                Some(0..=31) => return Err(self.fault("a control character in a string")),
                Some(_) => {}
                None => return Err(self.fault("the text ends within a string")),
            }
        }
        self.at += 1;
        if is_plain {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at - 1]));
        }
        // Escapes are rare: the common reader checks and replaces them.
        let text = serde_json::from_str(&self.text[start..self.at]);
        text.map(Cow::Owned).map_err(|_| Fault { why: "a wrong escape in a string".to_owned(), at: start })
    }

    fn number(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.at])
    }

    /// Takes at least one digit.
    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.fault("a digit is expected")) } else { Ok(()) }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, Fault> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault("no JSON value"));
        }
        self.at += word.len();
        Ok(value)
    }

    /// Takes a byte if it is the next one after space.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault(&self, why: &str) -> Fault {
        // An escape at the end of the text is behind it.
        Fault { why: why.to_owned(), at: self.at.min(self.text.len()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// The same value as the common reader has it.
    fn value(json: &Json) -> Value {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(text) => serde_json::from_str(text).unwrap(),
            Json::Text(text) => Value::String(text.to_string()),
            Json::Array(values) => values.iter().map(value).collect(),
            Json::Object(object) => {
                object.iter().map(|(key, below)| (key.to_owned(), value(below))).collect()
            }
        }
    }

    fn read(text: &str) -> Value {
        value(&read_message(text).unwrap())
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1_000i32..1_000).prop_map(|number| Value::from(f64::from(number) / 8.0)),
            "[a\\PC\"\\\\\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |below| {
            prop_oneof![
                prop::collection::vec(below.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abé\"]{0,2}", below, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn documents_are_read_as_by_the_common_reader(document in documents(), is_pretty: bool) {
            let text = if is_pretty { format!("{document:#}") } else { document.to_string() };
            prop_assert_eq!(value(&read_policy(&text).unwrap()), document);
        }

        #[test]
        fn damaged_documents_are_refused_as_by_the_common_reader(
            document in documents(),
            at: prop::sample::Index,
            by in prop::sample::select(vec!["", "\"", "\\", "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "\u{1}", " "]),
        ) {
            let mut letters: Vec<String> = document.to_string().chars().map(String::from).collect();
            let place = at.index(letters.len());
            letters[place] = by.to_owned();
            let text = letters.concat();
            match (read_policy(&text), serde_json::from_str::<Value>(&text)) {
                (Ok(json), Ok(other)) => prop_assert_eq!(value(&json), other),
                (Err(fault), Ok(_)) => prop_assert!(fault.why.contains("more than once"), "{text}: {fault:?}"),
                (Err(fault), Err(_)) => prop_assert!(fault.at <= text.len(), "{text}: {fault:?}"),
                // Numbers beyond f64.
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("out of range"), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn escape_at_the_end_is_refused_there() {
        let fault = Fault { why: "the text ends within a string".to_owned(), at: 2 };
        assert_eq!(read_policy("\"\\").unwrap_err(), fault);
    }

    #[test]
    fn last_value_of_a_repeated_key_counts_in_a_message() {
        assert_eq!(read(r#"{"a": 1, "b": 2, "a": {"c": 3}}"#), serde_json::json!({"a": {"c": 3}, "b": 2}));
        let fault = read_policy(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap_err();
        assert_eq!(fault.why, "the key a is there more than once");
    }

    #[test]
    fn dots_in_keys_of_a_message_are_levels() {
        for (text, expected) in [
            (r#"{"a.b": 1}"#, r#"{"a": {"b": 1}}"#),
            (r#"{"a.b": 1, "a": {"c": 2}, "a.d.e": 3}"#, r#"{"a": {"b": 1, "c": 2, "d": {"e": 3}}}"#),
            (r#"{"a.b": 1, "a": {"b": 2}}"#, r#"{"a": {"b": [2, 1]}}"#),
            (r#"{"a.b": 1, "a": 2}"#, r#"{"a": [2, {"b": 1}]}"#),
            (r#"{"a\u002eb": 1, ".": 2, "": 3}"#, r#"{"": [3, {"": 2}], "a": {"b": 1}}"#),
        ] {
            assert_eq!(read(text), serde_json::from_str::<Value>(expected).unwrap(), "{text}");
        }
    }

    #[test]
    fn key_of_too_many_parts_is_literal() {
        let key = vec!["a"; DOTTED_PARTS + 1].join(".");
        assert_eq!(read(&format!("{{\"{key}\": 1}}")), serde_json::json!({ key: 1 }));
    }

    #[test]
    fn levels_are_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read_message(&nested(JSON_LEVELS)).is_ok());
        let fault = read_message(&nested(JSON_LEVELS + 1)).unwrap_err();
        assert_eq!((fault.why.as_str(), fault.at), ("more than 128 levels of JSON", JSON_LEVELS));
        // A dot is a level.
        let dotted = |levels: usize| format!("{}1{}", r#"{"a.b":"#.repeat(levels), "}".repeat(levels));
        assert!(read_message(&dotted(JSON_LEVELS / 2)).is_ok());
        assert!(read_message(&dotted(JSON_LEVELS / 2 + 1)).is_err());
    }
}
