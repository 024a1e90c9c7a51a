//! Bounded lists and maps of a request: only as many elements are kept as an operation accepts. The rest is parsed,
//! counted and dropped, so the memory of a parsed body is never many times the size of the body, and a refusal can
//! state the number of elements.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::fault::{Fault, unvalued};
use angarium_core::limits;

/// A list that keeps at most `MOST` elements.
#[derive(Debug)]
pub struct BoundedList<T, const MOST: usize> {
    kept: Vec<T>,
    count: usize,
}

/// A map that keeps at most `MOST` entries. The last entry of a key wins.
#[derive(Debug)]
pub struct BoundedMap<V, const MOST: usize> {
    kept: BTreeMap<String, V>,
    count: usize,
}

/// Names of attributes, accounts, actions or tags.
pub type Names = BoundedList<String, { limits::SQS_NAMES }>;

impl<T, const MOST: usize> BoundedList<T, MOST> {
    /// Returns the number of elements in the request.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns all elements.
    ///
    /// # Errors
    ///
    /// The number of elements, if not all were kept.
    pub fn whole(self) -> Result<Vec<T>, usize> {
        if self.count > self.kept.len() { Err(self.count) } else { Ok(self.kept) }
    }
}

impl<T, const MOST: usize> Default for BoundedList<T, MOST> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<V, const MOST: usize> BoundedMap<V, MOST> {
    /// Returns all entries.
    ///
    /// # Errors
    ///
    /// The number of entries, if not all were kept.
    pub fn whole(self) -> Result<BTreeMap<String, V>, usize> {
        if self.count > self.kept.len() { Err(self.count) } else { Ok(self.kept) }
    }
}

impl<V, const MOST: usize> Default for BoundedMap<V, MOST> {
    fn default() -> Self {
        Self { kept: BTreeMap::new(), count: 0 }
    }
}

/// Returns the names in the member `name` of a request; an absent member is empty.
pub fn names(asked: Option<Names>, name: &str) -> Result<Vec<String>, Fault> {
    asked.unwrap_or_default().whole().map_err(|count| {
        let most = limits::SQS_NAMES;
        Fault::value(unvalued(name, &format!("it has {count} members, and may have {most}")))
    })
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for BoundedList<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
            type Value = BoundedList<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < MOST {
                    let Some(next) = elements.next_element()? else {
                        return Ok(BoundedList { count: kept.len(), kept });
                    };
                    kept.push(next);
                }
                let mut count = kept.len();
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(BoundedList { kept, count })
            }
        }

        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

impl<'de, V: Deserialize<'de>, const MOST: usize> Deserialize<'de> for BoundedMap<V, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V, const MOST: usize>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>, const MOST: usize> Visitor<'de> for Entries<V, MOST> {
            type Value = BoundedMap<V, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let (mut kept, mut beyond) = (BTreeMap::new(), 0);
                while let Some(key) = entries.next_key::<String>()? {
                    if kept.len() < MOST || kept.contains_key(&key) {
                        kept.insert(key, entries.next_value()?);
                    } else {
                        entries.next_value::<IgnoredAny>()?;
                        beyond += 1;
                    }
                }
                Ok(BoundedMap { count: kept.len() + beyond, kept })
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_beyond_the_bound_are_counted_and_dropped() {
        let text = |count: usize| format!("[{}]", vec!["{\"a\":[1]}"; count].join(","));
        let listed = |count: usize| -> BoundedList<BTreeMap<String, Vec<u8>>, 3> {
            serde_json::from_str(&text(count)).unwrap()
        };
        assert_eq!(listed(3).whole().unwrap().len(), 3);
        let many = listed(100_000);
        assert!(many.kept.capacity() <= 4, "{}", many.kept.capacity());
        assert_eq!((many.len(), many.whole().unwrap_err()), (100_000, 100_000));
        assert!(serde_json::from_str::<Names>("[\"a\",1]").is_err());
    }

    #[test]
    fn entries_beyond_the_bound_are_counted_and_dropped() {
        let read = |text: &str| -> BoundedMap<u8, 2> { serde_json::from_str(text).unwrap() };
        let last = read(r#"{"a":1,"b":2,"a":3}"#).whole().unwrap();
        assert_eq!(last, BTreeMap::from([("a".to_owned(), 3), ("b".to_owned(), 2)]));
        let many = read(r#"{"a":1,"b":2,"c":{"d":[]},"d":4}"#);
        assert_eq!((many.kept.len(), many.whole().unwrap_err()), (2, 4));
    }

    #[test]
    fn too_many_names_are_refused_with_their_number() {
        let text = |count: usize| format!("[{}]", vec!["\"\""; count].join(","));
        let read = |count: usize| names(serde_json::from_str(&text(count)).unwrap(), "TagKeys");
        assert_eq!(read(limits::SQS_NAMES).unwrap().len(), limits::SQS_NAMES);
        let refused = read(1_000_000).unwrap_err().message;
        assert!(refused.contains("TagKeys") && refused.contains("1000000 members"), "{refused}");
        assert!(names(None, "TagKeys").unwrap().is_empty());
    }
}
