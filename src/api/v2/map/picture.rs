//! Drawing of the map: for each pool a row with two bars on one scale, its share and its contents, and for each pair of
//! pools with migrations an arc. Names of pools consist of letters, digits and `_.-`, so nothing in the picture needs
//! an escape.

use std::fmt::Write;

use super::{MapReply, PoolMapEntry, PoolMapMove};

/// In units of the picture: pixels when it is not scaled.
const WIDTH: usize = 960;
const TOP: usize = 72;
const ROW: usize = 84;
const BAR_LEFT: usize = 190;
const BAR_WIDTH: usize = 540;
const ARC_LEFT: usize = 745;
const BOTTOM: usize = 40;

/// Colours for light and dark pages; they also differ in brightness.
const STYLE: &str = "\
text{font:14px system-ui,sans-serif;fill:#1b1f24}.small{font-size:12px;fill:#57606a}.title{font-size:18px;font-weight:600}\
.name{font-weight:600}.page{fill:#fff}.scale{fill:#eaeef2}.share{fill:#9ec5fe}.held{fill:#0b5ed7}.silent{fill:#b02a37}\
.arc{fill:none;stroke:#c2560c;stroke-width:2.5}.tip{fill:#c2560c}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.page{fill:#0d1117}.scale{fill:#21262d}\
.share{fill:#2f4f7f}.held{fill:#58a6ff}.silent{fill:#ff7b72}.arc{stroke:#f0883e}.tip{fill:#f0883e}}";

/// Draws the picture as an SVG document.
pub(super) fn draw(map: &MapReply) -> String {
    let height = TOP + ROW * map.pools.len().max(1) + BOTTOM;
    let mut drawing = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\"><title id=\"title\">Pools of Angarium</title><style>{STYLE}</style>\
         <defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"tip\" d=\"M0 0L10 5L0 10z\"/></marker></defs>\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>"
    );
    text(&mut drawing, at(24, 32), "title", "Pools");
    text(&mut drawing, at(BAR_LEFT, 32), "small", "light: share by weight · dark: share of the bytes held");
    if let Some(balance) = &map.balance {
        // The description consists of numbers and addresses of replicas, which need no escape.
        let line = format!("automatic balance at {}: {}", balance.at, balance.description);
        text(&mut drawing, at(24, 54), "small", &line);
    }
    if map.pools.is_empty() {
        text(&mut drawing, at(24, TOP + 24), "small", "There are none.");
    }
    for (row, pool) in map.pools.iter().enumerate() {
        draw_pool(&mut drawing, TOP + row * ROW, pool);
    }
    for (index, way) in map.moves.iter().enumerate() {
        draw_moves(&mut drawing, map, way, index);
    }
    if !map.complete {
        let note = "Not all queues were looked at: there are too many.";
        text(&mut drawing, at(24, height - 16), "silent", note);
    }
    drawing.push_str("</svg>\n");
    drawing
}

fn draw_pool(drawing: &mut String, top: usize, pool: &PoolMapEntry) {
    text(drawing, at(24, top + 16), "name", &pool.name);
    let mut about = format!("weight {}", pool.weight);
    if let Some(flavor) = &pool.flavor {
        let _ = write!(about, ", flavor {flavor}");
    }
    text(drawing, at(24, top + 34), "small", &about);
    for (y, part, class) in [(top, pool.share, "share"), (top + 16, pool.held, "held")] {
        rect(drawing, at(BAR_LEFT, y), BAR_WIDTH, "scale");
        rect(drawing, at(BAR_LEFT, y), width(part), class);
    }
    let held = match &pool.usage {
        Some(usage) => format!("{} messages, {}", grouped(usage.messages), size(usage.bytes)),
        None => "what it holds is not known".to_owned(),
    };
    let mut count = queues(pool.queues);
    if pool.subscription_queues > 0 {
        let _ = write!(count, " ({} of subscriptions)", grouped(pool.subscription_queues));
    }
    let line = format!("{count}, {held}, {}", pool.state);
    text(drawing, at(BAR_LEFT, top + 48), "small", &line);
    if !pool.answer.given {
        text(drawing, at(24, top + 50), "silent", "does not answer");
    }
}

fn draw_moves(drawing: &mut String, map: &MapReply, way: &PoolMapMove, index: usize) {
    let row = |name: &str| map.pools.iter().position(|pool| pool.name == name);
    // A pool that was added just now has no row yet.
    let (Some(from), Some(to)) = (row(&way.from), row(&way.to)) else { return };
    let y = |row: usize| TOP + row * ROW + 14;
    let bend = ARC_LEFT + 40 + 24 * (index % 5);
    let _ = write!(
        drawing,
        "<path class=\"arc\" d=\"M{ARC_LEFT} {}C{bend} {} {bend} {} {ARC_LEFT} {}\" marker-end=\"url(#tip)\"/>",
        y(from),
        y(from),
        y(to) + 4,
        y(to) + 4
    );
    let label = queues(way.queues);
    text(drawing, at(bend + 4, usize::midpoint(y(from), y(to)) + 4), "small", &label);
}

/// A point in the picture.
#[derive(Clone, Copy)]
struct Point {
    x: usize,
    y: usize,
}

fn at(x: usize, y: usize) -> Point {
    Point { x, y }
}

fn text(drawing: &mut String, Point { x, y }: Point, class: &str, content: &str) {
    let _ = write!(drawing, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{content}</text>");
}

fn rect(drawing: &mut String, Point { x, y }: Point, width: usize, class: &str) {
    let _ = write!(
        drawing,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"13\" rx=\"3\" class=\"{class}\"/>"
    );
}

/// Returns the width of a part from 0 to 1 of the scale; a part above 0 is always visible.
fn width(part: f64) -> usize {
    let width = (part.clamp(0.0, 1.0) * BAR_WIDTH as f64).round() as usize;
    if part > 0.0 { width.max(2) } else { 0 }
}

fn queues(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "queue" } else { "queues" })
}

/// Formats a number with separated thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats bytes in the largest unit of which there is at least one.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_at_a_glance() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 1_536, 3 << 30].map(size), ["1 bytes", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([0.0, 0.0001, 1.0, 2.0].map(width), [0, 2, BAR_WIDTH, BAR_WIDTH]);
    }
}
