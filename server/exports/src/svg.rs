//! A flame graph as one SVG file: opens in every browser, zooms on click, searches, needs nothing else.
//!
//! ```text
//! ┌ title, subtitle ───────────────────────── buttons ┐
//! │ …                                                 │
//! │ row 1      functions called by the root           │
//! │ row 0      the root, as wide as everything        │
//! └ details of what is under the pointer ─────────────┘
//! ```
//! Layout is computed here, so the file is complete without its script; the script only scales and colours.

use std::borrow::Cow;
use std::fmt;

use tracehound_api::flamegraph::{FlameFrame, Flamegraph};

use crate::markup::Escaped;

/// What is written around the graph.
#[derive(Debug, Clone)]
pub struct Texts<'a> {
    /// Headline, e.g. the program.
    pub title: &'a str,
    /// What is measured, over which window.
    pub subtitle: &'a str,
    /// Turns a value into text with its unit.
    pub amount: fn(i64) -> String,
}

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const HEAD: usize = 58;
const FOOT: usize = 30;
const ROW: usize = 18;
const FONT: f64 = 12.0;
/// Advance of a character of a monospaced font, in units of the font size.
const ADVANCE: f64 = 0.6;

/// Writes the picture.
pub fn write(graph: &Flamegraph, texts: &Texts<'_>, out: &mut impl fmt::Write) -> fmt::Result {
    let layout = SvgLayout::new(graph);
    let height = HEAD + layout.rows * ROW + FOOT;
    let title = Escaped(texts.title);
    write!(
        out,
        r#"<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" data-left="{MARGIN}" data-span="{span}" data-advance="{advance}">
<title>{title}</title>
<style>{css}</style>
<rect class="ground" width="100%" height="100%"/>
<text class="title" x="{MARGIN}" y="24">{title}</text>
<text class="subtitle" x="{MARGIN}" y="44">{subtitle}</text>
<text class="button" id="reset" x="{right}" y="24">reset zoom</text>
<text class="button" id="search" x="{right}" y="44">search</text>
<text id="matched" x="{matched}" y="44"></text>
<text id="details" x="{MARGIN}" y="{details}"></text>
<g id="frames">
"#,
        span = WIDTH - 2.0 * MARGIN,
        advance = FONT * ADVANCE,
        css = CSS,
        subtitle = Escaped(texts.subtitle),
        right = WIDTH - MARGIN,
        matched = WIDTH - MARGIN - 90.0,
        details = height - 11,
    )?;
    for row in 0..graph.rows.id.len() {
        frame(graph, &layout, texts, row, out)?;
    }
    // A CDATA section ends at its first `]]>`, which the script does not contain (a test looks).
    write!(out, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n")
}

fn frame(
    graph: &Flamegraph,
    layout: &SvgLayout,
    texts: &Texts<'_>,
    row: usize,
    out: &mut impl fmt::Write,
) -> fmt::Result {
    let rows = &graph.rows;
    let value = rows.value[row];
    let frame = rows.frame[row].and_then(|frame| graph.frames.get(frame as usize));
    let name: Cow<'_, str> = match (frame, rows.folded[row]) {
        (Some(frame), _) => frame.name.as_str().into(),
        (None, 0) => "all".into(),
        (None, folded) => format!("({folded} functions too narrow to draw)").into(),
    };
    let span = WIDTH - 2.0 * MARGIN;
    let (x, w) = (MARGIN + layout.left[row] * span, layout.width[row] * span);
    let y = HEAD + (layout.rows - 1 - layout.depth[row]) * ROW;
    let share = if graph.total == 0 { 0.0 } else { value as f64 * 100.0 / graph.total as f64 };
    let looks = Looks { frame, folded: rows.folded[row] > 0, negative: value < 0, row };
    writeln!(
        out,
        r#"<g class="f" data-l="{l:.6}" data-w="{dw:.6}" data-d="{d}"><title>{name} — {amount}, {share:.2}%{place}</title><rect x="{x:.2}" y="{y}" width="{w:.2}" height="{h}" fill="{looks}"/><text x="{tx:.2}" y="{ty}">{shown}</text></g>"#,
        l = layout.left[row],
        dw = layout.width[row],
        d = layout.depth[row],
        name = Escaped(&name),
        amount = (texts.amount)(value),
        place = HoverText(frame),
        h = ROW - 1,
        tx = x + 3.0,
        ty = y + ROW - 5,
        shown = Escaped(&fitting(&name, w)),
    )
}

/// Positions in fractions of the whole: rows are as wide as they weigh.
struct SvgLayout {
    left: Vec<f64>,
    width: Vec<f64>,
    depth: Vec<usize>,
    rows: usize,
}

impl SvgLayout {
    fn new(graph: &Flamegraph) -> Self {
        let rows = &graph.rows;
        let count = rows.id.len();
        // A row weighs what it shows: its own amount and its children's, each without its sign, so that what has
        // shrunk is visible, too. Where nothing is negative this is the row's value.
        let mut weight: Vec<f64> = rows.own.iter().map(|own| own.unsigned_abs() as f64).collect();
        for row in (1..count).rev() {
            if rows.folded[row] > 0 {
                weight[row] = rows.value[row].unsigned_abs() as f64;
            }
            weight[rows.parent[row] as usize] += weight[row];
        }
        let whole = weight.first().copied().filter(|&whole| whole > 0.0).unwrap_or(1.0);
        let mut layout = Self { left: vec![0.0; count], width: vec![0.0; count], depth: vec![0; count], rows: 1 };
        let mut next_left = vec![0.0; count];
        for row in 0..count {
            let parent = rows.parent[row] as usize;
            layout.width[row] = weight[row] / whole;
            if row > 0 {
                layout.left[row] = next_left[parent];
                layout.depth[row] = layout.depth[parent] + 1;
                next_left[parent] += layout.width[row];
            }
            next_left[row] = layout.left[row];
            layout.rows = layout.rows.max(layout.depth[row] + 1);
        }
        layout
    }
}

/// As much of `name` as fits into `width`; nothing rather than a single letter.
fn fitting(name: &str, width: f64) -> Cow<'_, str> {
    let room = ((width - 6.0) / (FONT * ADVANCE)).max(0.0) as usize;
    let count = name.chars().count();
    if count <= room {
        Cow::Borrowed(name)
    } else if room < 3 {
        Cow::Borrowed("")
    } else {
        Cow::Owned(name.chars().take(room - 1).chain(['…']).collect())
    }
}

/// Fill: a hue for each module, a shade for each function.
struct Looks<'a> {
    frame: Option<&'a FlameFrame>,
    folded: bool,
    negative: bool,
    row: usize,
}

impl fmt::Display for Looks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(frame) = self.frame else {
            return f.write_str(if self.folded || self.row > 0 { "#c9c9c9" } else { "#d8d4cc" });
        };
        let hash = |text: &str| {
            text.bytes().fold(0xcbf2_9ce4_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
        };
        let shade = hash(&frame.name) >> 16;
        let (saturation, lightness) = (58 + shade % 18, 64 + (shade >> 5) % 13);
        let hue = match (&frame.module, self.negative) {
            (_, true) => 205,
            // From red over orange to green: warm, and apart from the blue of what has shrunk.
            (Some(module), _) => 8 + (hash(module) >> 8) % 110,
            (None, _) => return f.write_str("#cfcfcf"),
        };
        write!(f, "hsl({hue},{saturation}%,{lightness}%)")
    }
}

/// Module and source line, for the text that appears on hover.
struct HoverText<'a>(Option<&'a FlameFrame>);

impl fmt::Display for HoverText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(frame) = self.0 else { return Ok(()) };
        if let Some(module) = &frame.module {
            write!(f, " — {}", Escaped(module))?;
        }
        if let Some(file) = &frame.file {
            write!(f, " — {}", Escaped(file))?;
            if let Some(line) = frame.line {
                write!(f, ":{line}")?;
            }
        }
        if frame.inlined { f.write_str(" (inlined)") } else { Ok(()) }
    }
}

const CSS: &str = include_str!("flamegraph.css");
const SCRIPT: &str = include_str!("flamegraph.js");

#[cfg(test)]
mod tests {
    use super::*;
    use tracehound_api::flamegraph::Rows;
    use tracehound_api::{Exactness, Metric, Unit};

    fn graph() -> Flamegraph {
        let frame = |name: &str| FlameFrame {
            name: name.into(),
            module: Some("app".into()),
            file: Some("a.c".into()),
            line: Some(3),
            inlined: false,
            library: false,
            language: None,
        };
        Flamegraph {
            schema: "heaptrace.flamegraph/1".into(),
            metric: Metric::Leaked,
            unit: Unit::Bytes,
            from_ns: 0,
            to_ns: 10,
            at_ns: None,
            peak_of: None,
            inverted: false,
            freeing: false,
            pinned: false,
            pin_unit: None,
            total: 100,
            ancestors: Vec::new(),
            rows: Rows {
                id: vec![0, 1, 2, 1],
                parent: vec![0, 0, 1, 1],
                frame: vec![None, Some(0), Some(1), None],
                value: vec![100, 100, 60, 10],
                own: vec![0, 30, 60, 0],
                other: vec![Some(4), Some(4), Some(2), None],
                folded: vec![0, 0, 0, 7],
            },
            frames: vec![frame("main"), frame("<evil>&\"]]>\x1b")],
            exactness: Exactness::default(),
        }
    }

    fn svg() -> String {
        let mut out = String::new();
        let amount = |value: i64| format!("{value} B");
        write(&graph(), &Texts { title: "app <1>", subtitle: "leaked bytes", amount }, &mut out).unwrap();
        out
    }

    #[test]
    fn rows_are_as_wide_as_they_weigh() {
        let layout = SvgLayout::new(&graph());
        assert_eq!(layout.width, [1.0, 1.0, 0.6, 0.1]);
        assert_eq!(layout.left, [0.0, 0.0, 0.0, 0.6]);
        assert_eq!(layout.depth, [0, 1, 2, 2]);
        assert_eq!(layout.rows, 3);
    }

    #[test]
    fn a_name_cannot_leave_its_element() {
        let svg = svg();
        assert!(svg.contains("&lt;evil&gt;&amp;&quot;]]&gt;\u{fffd}"));
        assert!(!svg.contains("<evil>"));
        assert!(svg.contains("<title>app &lt;1&gt;</title>"));
        assert!(svg.contains("(7 functions too narrow to draw)"));
        assert!(!SCRIPT.contains("]]>") && !CSS.contains('<'));
    }

    #[test]
    fn what_has_shrunk_has_a_width() {
        let mut graph = graph();
        graph.rows.own[2] = -60;
        graph.rows.value = vec![-20, -20, -60, 10];
        assert_eq!(SvgLayout::new(&graph).width, [1.0, 1.0, 0.6, 0.1]);
    }

    #[test]
    fn names_are_cut_to_their_box() {
        assert_eq!(fitting("function", 100.0), "function");
        assert_eq!(fitting("function", 50.0), "funct…");
        assert_eq!(fitting("function", 12.0), "");
    }
}
