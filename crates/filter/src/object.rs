//! Objects of JSON: keys in order, and keys with dots as paths.

use std::borrow::Cow;
use std::mem;

use crate::json::{Json, path_parts};

/// An object, sorted by key.
#[derive(Debug, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Object<'a> {
    /// The value of a key. Cost: logarithmic in the keys.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        let place = self.0.binary_search_by(|(own, _)| own.as_ref().cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// Keys with their values, in order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a key. The object is in order again after `sort`.
    pub fn push(&mut self, key: Cow<'a, str>, value: Json<'a>) {
        self.0.push((key, value));
    }

    /// Brings the keys in order. Of a repeated key the last value stays; returns one such key.
    pub fn sort(&mut self) -> Option<Cow<'a, str>> {
        // The order of equal keys stays.
        self.0.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut repeated = None;
        self.0.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                mem::swap(later, kept);
                repeated = Some(kept.0.clone());
            }
            is_same
        });
        repeated
    }

    /// Makes objects of keys with dots: `{"a.b": 1, "a": {"c": 2}}` becomes `{"a": {"b": 1, "c": 2}}`.
    pub fn split_keys(self) -> Self {
        if !self.0.iter().any(|(key, _)| key.contains('.')) {
            return self;
        }
        Self::merged(self.0.into_iter().map(|(key, value)| wrap(key, value)).collect())
    }

    /// Makes an object of entries, and joins the values of equal keys. Each entry is moved once a level.
    fn merged(mut entries: Vec<(Cow<'a, str>, Json<'a>)>) -> Self {
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        let mut object = Self::default();
        let mut entries = entries.into_iter().peekable();
        while let Some((key, value)) = entries.next() {
            let mut values = vec![value];
            while let Some((_, value)) = entries.next_if(|(next, _)| *next == key) {
                values.push(value);
            }
            object.push(key, join(values));
        }
        object
    }
}

/// Returns the first part of a key, with its value below the other parts.
fn wrap<'a>(key: Cow<'a, str>, value: Json<'a>) -> (Cow<'a, str>, Json<'a>) {
    let mut parts: Vec<Cow<'a, str>> = match key {
        Cow::Borrowed(key) => path_parts(key).map(Cow::Borrowed).collect(),
        Cow::Owned(key) => path_parts(&key).map(|part| Cow::Owned(part.to_owned())).collect(),
    };
    let below = parts.split_off(1);
    let value = below.into_iter().rev().fold(value, |value, part| Json::Object(Object(vec![(part, value)])));
    (parts.remove(0), value)
}

/// Joins the values of one key: objects into one object, and others beside it in an array.
fn join<'a>(mut values: Vec<Json<'a>>) -> Json<'a> {
    if values.len() == 1 {
        return values.remove(0);
    }
    let mut entries = Vec::new();
    let mut others = Vec::new();
    for value in values {
        match value {
            Json::Object(object) => entries.extend(object.0),
            other => others.push(other),
        }
    }
    if others.is_empty() {
        return Json::Object(Object::merged(entries));
    }
    if !entries.is_empty() {
        others.push(Json::Object(Object::merged(entries)));
    }
    Json::Array(others)
}
