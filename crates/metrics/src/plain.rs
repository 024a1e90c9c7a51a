//! The older text format of Prometheus (0.0.4), for readers without OpenMetrics: the same samples under the same names.
//! In this format, help and type of a counter use the name of its samples, with `_total`, and there are no lines for
//! units and the end.

use std::collections::HashSet;

/// Media type of this format.
pub const PLAIN_MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts a page of OpenMetrics to this format.
pub fn plain(page: &str) -> String {
    let of_type = |line| described("# TYPE ", line);
    let counters: HashSet<&str> = page
        .lines()
        .filter_map(of_type)
        .filter_map(|(name, kind)| (kind == "counter").then_some(name))
        .collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let found = ["# HELP ", "# TYPE "].into_iter().find_map(|kind| Some((kind, described(kind, line)?)));
        match found {
            Some((kind, (name, rest))) if counters.contains(name) => {
                text.extend([kind, name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Splits a line of a kind into the family's name and the rest.
fn described<'a>(kind: &str, line: &'a str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(kind)?.split_once(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_names_of_their_samples() {
        let page = "# HELP a_x Some.\n# TYPE a_x counter\na_x_total{b=\"# EOF\"} 1\n\
                    # HELP a_y_bytes Other.\n# TYPE a_y_bytes gauge\n# UNIT a_y_bytes bytes\na_y_bytes 2\n# EOF\n";
        let expected = "# HELP a_x_total Some.\n# TYPE a_x_total counter\na_x_total{b=\"# EOF\"} 1\n\
                        # HELP a_y_bytes Other.\n# TYPE a_y_bytes gauge\na_y_bytes 2\n";
        assert_eq!(plain(page), expected);
    }
}
