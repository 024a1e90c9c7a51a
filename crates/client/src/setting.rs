//! Parsing of values that users write as JSON or text, and of KEY=VALUE.

use std::fs::File;
use std::io::Read;
use std::str::FromStr;

use serde_json::value::RawValue;

use super::failure::Failure;

/// Max bytes that are read of a file of JSON. The server refuses much smaller values, and reports its own bound.
const FILE_BYTES: u64 = 64 << 20;

/// One key and its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key: the text before the first `=`.
    pub key: String,
    /// The value: JSON if the text is JSON, otherwise the text as a string.
    pub value: Box<RawValue>,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
        if key.is_empty() {
            return Err("the key is empty".into());
        }
        let value = raw(value).or_else(|_| string(value)).map_err(|failure| failure.to_string())?;
        Ok(Self { key: key.to_owned(), value })
    }
}

/// Parses JSON text. Blanks around it are ignored.
pub fn raw(text: &str) -> Result<Box<RawValue>, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Usage(format!("this is not JSON: {error}")))
}

/// Parses JSON text, or for `@FILE` the JSON text in that file. JSON never begins with an `@`.
pub fn raw_or_file(text: &str) -> Result<Box<RawValue>, Failure> {
    let Some(path) = text.strip_prefix('@') else { return raw(text) };
    let unreadable = |error: std::io::Error| Failure::Usage(format!("{path}: {error}"));
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    raw(&text).map_err(|failure| Failure::Usage(format!("{path}: {failure}")))
}

/// Converts text to a JSON string.
pub fn string(text: &str) -> Result<Box<RawValue>, Failure> {
    serde_json::value::to_raw_value(text).map_err(|error| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_json_where_it_can_be() {
        for (text, key, value) in [
            ("a=3", "a", "3"),
            ("a=true", "a", "true"),
            ("a=three", "a", "\"three\""),
            ("a=\"3\"", "a", "\"3\""),
            ("a=b=c", "a", "\"b=c\""),
            ("a=", "a", "\"\""),
            ("a={\"b\": [1]}", "a", "{\"b\": [1]}"),
        ] {
            let setting: Setting = text.parse().unwrap();
            assert_eq!((setting.key.as_str(), setting.value.get()), (key, value), "{text}");
        }
        assert!("a".parse::<Setting>().is_err() && "=a".parse::<Setting>().is_err());
    }

    #[test]
    fn json_of_a_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        std::fs::write(&path, "{\"pages\": 12}\n").unwrap();
        let named = |path: &std::path::Path| raw_or_file(&format!("@{}", path.display()));
        assert_eq!(named(&path).unwrap().get(), "{\"pages\": 12}");
        assert_eq!(raw_or_file("12").unwrap().get(), "12");
        std::fs::write(&path, "pages").unwrap();
        assert!(named(&path).unwrap_err().to_string().contains("result.json: this is not JSON"));
        assert!(named(&folder.path().join("absent")).unwrap_err().to_string().contains("absent"));
    }
}
