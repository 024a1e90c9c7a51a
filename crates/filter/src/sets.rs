//! Sets of text in which one search finds an element that a text begins or ends with, and text without case.

/// Texts, sorted: a look-up is logarithmic in their number.
#[derive(Clone, Debug, Default)]
pub struct TextSet(Vec<Box<str>>);

/// Prefixes, none of which begins with another one, sorted by their bytes.
#[derive(Clone, Debug, Default)]
pub struct PrefixSet(Vec<Box<[u8]>>);

/// Suffixes, as prefixes of the reversed bytes.
#[derive(Clone, Debug, Default)]
pub struct SuffixSet(PrefixSet);

impl TextSet {
    pub fn contains(&self, text: &str) -> bool {
        self.0.binary_search_by(|own| own.as_ref().cmp(text)).is_ok()
    }
}

impl PrefixSet {
    /// Whether the text begins with one of the prefixes.
    pub fn begins(&self, text: &[u8]) -> bool {
        // A prefix of the text is not after the text, and no other element is between them: it would begin with it.
        let after = self.0.partition_point(|prefix| prefix.as_ref() <= text);
        after > 0 && text.starts_with(&self.0[after - 1])
    }
}

impl SuffixSet {
    /// Whether the text ends with one of the suffixes.
    pub fn ends(&self, text: &str) -> bool {
        self.0.begins(&reversed(text))
    }
}

impl<'a> FromIterator<&'a str> for TextSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        let mut texts: Vec<Box<str>> = texts.into_iter().map(Box::from).collect();
        texts.sort();
        Self(texts)
    }
}

impl FromIterator<Box<[u8]>> for PrefixSet {
    fn from_iter<I: IntoIterator<Item = Box<[u8]>>>(prefixes: I) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().collect();
        prefixes.sort();
        prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter));
        Self(prefixes)
    }
}

impl<'a> FromIterator<&'a str> for PrefixSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(prefixes: I) -> Self {
        prefixes.into_iter().map(|prefix| Box::from(prefix.as_bytes())).collect()
    }
}

impl<'a> FromIterator<&'a str> for SuffixSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(suffixes: I) -> Self {
        Self(suffixes.into_iter().map(reversed).collect())
    }
}

/// Returns the text in lower case, character by character, so that the case of one has no effect on another.
pub fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn reversed(text: &str) -> Box<[u8]> {
    text.bytes().rev().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_find_the_same_as_a_plain_loop(
            affixes in prop::collection::vec("[ab]{1,3}", 0..6),
            text in "[ab]{0,6}",
        ) {
            let affixes: Vec<&str> = affixes.iter().map(String::as_str).collect();
            let texts: TextSet = affixes.iter().copied().collect();
            prop_assert_eq!(texts.contains(&text), affixes.contains(&text.as_str()));
            let prefixes: PrefixSet = affixes.iter().copied().collect();
            prop_assert_eq!(prefixes.begins(text.as_bytes()), affixes.iter().any(|affix| text.starts_with(affix)));
            let suffixes: SuffixSet = affixes.iter().copied().collect();
            prop_assert_eq!(suffixes.ends(&text), affixes.iter().any(|affix| text.ends_with(affix)));
        }
    }
}
