//! Hints for misspelt names: the known name that was probably meant.

/// Min similarity of two names, from 0 to 1, at which one counts as a misspelling of the other.
const MIN_SIMILARITY: f64 = 0.85;

/// Returns the most similar known name; none when no name is similar enough.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let similarity = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let similar = similarity.filter(|(similarity, _)| *similarity > MIN_SIMILARITY);
    similar.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, known)| known)
}
