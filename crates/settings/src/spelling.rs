//! Hints at slips: the known name that a misspelt one probably means.

/// Likeness of two names, from 0 to 1, above which one is taken for a slip of the other.
const LIKENESS: f64 = 0.85;

/// The known name that is most like this one; none when no name is much like it.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let likeness = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let like = likeness.filter(|(likeness, _)| *likeness > LIKENESS);
    like.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}
