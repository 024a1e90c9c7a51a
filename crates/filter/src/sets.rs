//! Sets of text in which one search finds an element that a text begins or ends with, and text without case.

/// Texts, sorted: a look-up is logarithmic in their number.
#[derive(Clone, Debug, Default)]
pub struct TextSet(Vec<Box<str>>);

/// Prefixes, none of which begins with another one, sorted by their bytes.
#[derive(Clone, Debug, Default)]
pub struct PrefixSet(Vec<Box<[u8]>>);

/// Suffixes, as prefixes of the reversed bytes.
#[derive(Clone, Debug, Default)]
pub struct SuffixSet {
    reversed: PrefixSet,
    /// Bytes of the longest one.
    longest: usize,
}

/// Texts of which upper and lower case are the same.
#[derive(Clone, Debug, Default)]
pub struct FoldedSet {
    folded: TextSet,
    /// Bytes of the longest one.
    longest: usize,
}

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
        let tail = &text.as_bytes()[text.len().saturating_sub(self.longest)..];
        self.reversed.begins(&reversed(tail))
    }
}

impl FoldedSet {
    /// Whether the text is one of them. A text that is too long is not folded: a character has at most four bytes, and
    /// each is folded to at least one.
    pub fn contains(&self, text: &str) -> bool {
        text.len() <= 4 * self.longest && self.folded.contains(&fold(text))
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
        let reversed: Vec<Box<[u8]>> =
            suffixes.into_iter().map(|suffix| reversed(suffix.as_bytes())).collect();
        let longest = reversed.iter().map(|suffix| suffix.len()).max().unwrap_or(0);
        Self { reversed: reversed.into_iter().collect(), longest }
    }
}

impl<'a> FromIterator<&'a str> for FoldedSet {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        let folded: Vec<String> = texts.into_iter().map(fold).collect();
        let longest = folded.iter().map(String::len).max().unwrap_or(0);
        Self { folded: folded.iter().map(String::as_str).collect(), longest }
    }
}

/// Returns the text in lower case, character by character, so that the case of one has no effect on another.
fn fold(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn reversed(bytes: &[u8]) -> Box<[u8]> {
    bytes.iter().rev().copied().collect()
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

        #[test]
        fn folded_texts_are_found_whatever_their_length(
            texts in prop::collection::vec("[aAéÉİKſ]{0,3}", 0..6),
            text in "[aAéÉİKſ]{0,6}",
        ) {
            let set: FoldedSet = texts.iter().map(String::as_str).collect();
            prop_assert_eq!(set.contains(&text), texts.iter().any(|own| fold(own) == fold(&text)));
        }
    }
}
