//! Reports of a check: for a terminal, as JUnit XML, as Markdown for a pull request.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::measure::{CheckReport, Evidence, LimitCheck};
use crate::cli::stack::name;
use crate::cli::terminal::{Style, TextRole, clean};
use crate::cli::units::plural;
use tracehound_exports::markup::Escaped;

/// Functions of a backtrace that are shown.
const FRAMES: usize = 8;

/// Writes the report for people.
pub fn print(report: &CheckReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    writeln!(out, "{}", style.paint(TextRole::Strong, clean(&report.file)))?;
    for check in &report.checks {
        let (word, role) = if check.passed { ("pass", TextRole::Good) } else { ("FAIL", TextRole::Bad) };
        writeln!(
            out,
            "  {} {}  {} {}",
            style.paint(role, word),
            style.paint(TextRole::Strong, clean(&check.name)),
            clean(&check.why),
            style.paint(TextRole::Faint, format!("({})", clean(&check.source)))
        )?;
        for evidence in &check.evidence {
            writeln!(out, "         {}", style.paint(TextRole::Hot, clean(&evidence.note)))?;
            for line in stack(evidence) {
                writeln!(out, "           {}", clean(&line))?;
            }
        }
    }
    if let Some(text) = &report.missing {
        writeln!(out, "  {}", style.paint(TextRole::Hot, text))?;
    }
    let (text, role) = match failed {
        0 => (format!("{} checks passed", report.checks.len()), TextRole::Good),
        _ => (format!("{failed} of {} checks failed", report.checks.len()), TextRole::Bad),
    };
    writeln!(out, "  {}", style.paint(role, text))
}

/// The program's part of a backtrace: function and place.
fn stack(evidence: &Evidence) -> Vec<String> {
    let own: Vec<_> = evidence.stack.iter().filter(|frame| !frame.library).collect();
    let frames = if own.is_empty() { evidence.stack.iter().collect() } else { own };
    let mut lines: Vec<String> = frames
        .iter()
        .take(FRAMES)
        .map(|frame| match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{} ({file}:{line})", name(frame)),
            (Some(file), None) => format!("{} ({file})", name(frame)),
            _ => name(frame),
        })
        .collect();
    if frames.len() > FRAMES {
        lines.push(format!("… {}", plural((frames.len() - FRAMES) as u64, "more frame")));
    }
    lines
}

/// JUnit XML, as the schema of Jenkins' xunit plugin has it: a suite for each recording, a case for each limit.
pub fn junit(reports: &[CheckReport]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for report in reports {
        let failed = report.checks.iter().filter(|check| !check.passed).count();
        let _ = writeln!(
            out,
            "  <testsuite name=\"heaptrace check {}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\">",
            Escaped(&report.file),
            report.checks.len()
        );
        for check in &report.checks {
            let name = Escaped(&check.name);
            let _ = write!(out, "    <testcase classname=\"heaptrace.check\" name=\"{name}\"");
            if check.passed {
                out.push_str("/>\n");
                continue;
            }
            let details = details(check);
            let (why, text) = (Escaped(&check.why), Escaped(&details));
            let _ =
                writeln!(out, ">\n      <failure type=\"limit\" message=\"{why}\">{text}</failure>\n    </testcase>");
        }
        if let Some(text) = &report.missing {
            let _ = writeln!(out, "    <system-out>{}</system-out>", Escaped(text));
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn details(check: &LimitCheck) -> String {
    let mut text = format!("{} ({})\n", check.why, check.source);
    for evidence in &check.evidence {
        let _ = writeln!(text, "{}", evidence.note);
        stack(evidence).iter().for_each(|line| {
            let _ = writeln!(text, "    {line}");
        });
    }
    text
}

/// Markdown for a comment on a pull request.
pub fn markdown(reports: &[CheckReport]) -> String {
    let mut out = String::new();
    for report in reports {
        let failed = report.checks.iter().filter(|check| !check.passed).count();
        let verdict = match failed {
            0 => "all limits kept".to_owned(),
            _ => format!("{failed} of {} limits exceeded", report.checks.len()),
        };
        let _ = writeln!(out, "### heaptrace: {verdict}\n\n{}\n", code(&report.file));
        out.push_str("| | check | measured | limit | from |\n|---|---|--:|--:|---|\n");
        for check in &report.checks {
            let sign = if check.passed { "✅" } else { "❌" };
            let (measured, limit) = (check.unit.text(check.measured), check.unit.text(check.limit));
            let (name, source) = (cell(&check.name), cell(&check.source));
            let _ = writeln!(out, "| {sign} | {name} | {measured} | {limit} | {source} |");
        }
        out.push('\n');
        if let Some(text) = &report.missing {
            let _ = writeln!(out, "Note: {text}.\n");
        }
        for check in report.checks.iter().filter(|check| !check.passed) {
            let _ = writeln!(out, "<details><summary>{}: {}</summary>\n", Escaped(&check.name), Escaped(&check.why));
            // Indented text is code whatever it holds, but for a blank line's sake each line is one.
            for line in details(check).lines() {
                let _ = writeln!(out, "    {}", clean(line));
            }
            out.push_str("\n</details>\n\n");
        }
    }
    out
}

/// Text in backquotes that holds none of them.
fn code(text: &str) -> String {
    format!("`{}`", clean(text).replace('`', "'"))
}

fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_markup() {
        assert_eq!(cell("a|b`c\n"), "`a\\|b'c\\n`");
    }
}
