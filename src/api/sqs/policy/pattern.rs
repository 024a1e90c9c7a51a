//! Patterns with wildcards: `*` matches any text, also the empty one, and `?` matches one character.

/// Whether upper and lower case differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Kept,
    /// ASCII letters match in any case.
    Ignored,
}

/// Whether a text matches a pattern. Takes at most as many steps as the product of their lengths.
pub fn matches(pattern: &str, text: &str, case: Case) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let is_same = |one: char, other: char| match case {
        Case::Kept => one == other,
        Case::Ignored => one.eq_ignore_ascii_case(&other),
    };
    let (mut at, mut of) = (0, 0);
    // The last star, and the position in the text after the part that it matches. An earlier star never has to match
    // more.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(of) {
            Some('*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(&wanted) if wanted == '?' || is_same(wanted, text[at]) => {
                at += 1;
                of += 1;
            }
            _ => {
                let Some((place, until)) = &mut star else { return false };
                *until += 1;
                (at, of) = (*until, *place + 1);
            }
        }
    }
    pattern[of..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_in_aws() {
        for (pattern, good, bad) in [
            ("", &[""][..], &["a"][..]),
            ("*", &["", "a", "äöü"], &[]),
            ("?", &["a", "ä"], &["", "ab"]),
            ("a*", &["a", "ab"], &["", "ba"]),
            ("*a", &["a", "ba", "aa"], &["ab", ""]),
            ("a?c", &["abc", "a?c"], &["ac", "abbc", "aBd"]),
            ("a*b*c", &["abc", "aXbYc", "abbcbc"], &["acb", "ab", "bc"]),
            ("*ab*ab", &["abab", "xababab"], &["aba", "ab"]),
            ("**?**", &["a", "abc"], &[""]),
            ("a.c", &["a.c"], &["abc", "A.C"]),
        ] {
            for text in good {
                assert!(matches(pattern, text, Case::Kept), "{pattern} {text}");
            }
            for text in bad {
                assert!(!matches(pattern, text, Case::Kept), "{pattern} {text}");
            }
        }
        assert!(matches("sEnd?ess*", "SendMessage", Case::Ignored));
        assert!(!matches("sEnd?ess*", "SendMessage", Case::Kept));
    }

    #[test]
    fn pattern_of_many_stars_ends_soon() {
        let pattern = format!("{}b", "*a".repeat(2_000));
        assert!(!matches(&pattern, &"a".repeat(2_000), Case::Kept));
    }
}
