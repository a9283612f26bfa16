//! Answers of the tools: the text that commands print for people, without colours. What a recording could not see
//! comes first.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use tracehound_api::flamegraph::Flamegraph;
use tracehound_api::pins::PinGroup;
use tracehound_api::{Metric, Unit};
use tracehound_index::Cancel;
use tracehound_query::diff::{DiffParams, Side};
use tracehound_query::flamegraph::FlamegraphParams;
use tracehound_query::functions::{FunctionSort, FunctionsParams};
use tracehound_query::leaks::LeaksParams;
use tracehound_query::memory::MemoryParams;
use tracehound_query::pins::PinsParams;
use tracehound_query::{
    Filter, TimeExpr, Window, compare as many, diff, flamegraph, functions, memory as ledger, pins,
};
use tracehound_sql::{Database, SqlLimits, SqlRecording};

use super::super::open::OpenRecording;
use super::super::terminal::{Style, clean};
use super::super::units::{bytes, duration, percent, signed_bytes, signed_count};
use super::super::{diff as diffs, interrupt, leaks as leak_text, memory as memory_text, misuse, pins as pin_text};
use super::super::{sql as sql_text, stack as stacks, summary as summaries, top as tops};
use super::shelf::Shelf;
use super::tools::{OfCompare, OfLeaks, OfMemory, OfRecording, OfSql, OfTop, OfTree, PinsShown};
use crate::query_params;

/// Rows of a table or a list; who needs more asks in SQL.
const MOST_ROWS: usize = 300;
/// Rows of a tree.
const TREE_ROWS: usize = 120;
/// Time for a question in SQL.
const LONGEST_QUERY: Duration = Duration::from_secs(60);

fn printed(opened: &OpenRecording, print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<String> {
    printed_of(opened, &Filter::default(), print)
}

/// What is printed of the blocks that a filter selects.
fn printed_of(
    opened: &OpenRecording,
    filter: &Filter,
    print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<String> {
    let mut out = Vec::new();
    for note in opened.shortfall().into_iter().chain(filter.missing_modules(&opened.trace)) {
        out.extend_from_slice(format!("Note: {}\n\n", clean(&note)).as_bytes());
    }
    print(&mut out)?;
    // The hints of the command line are about its options.
    Ok(String::from_utf8_lossy(&out).replace(" (--full shows them)", "").replace(" (--sites 0 shows all)", ""))
}

pub fn recordings(shelf: &mut Shelf) -> Result<String> {
    let names = shelf.names();
    let mut out = format!("{} recordings\n", names.len());
    for (name, path) in names {
        let line = match shelf.open_path(&path) {
            Err(error) => format!("cannot be opened: {error:#}"),
            Ok(opened) => {
                let info = tracehound_audit::info(&opened.trace, &opened.symbols);
                let command: Vec<_> = info.process.arguments.iter().map(|argument| clean(argument)).collect();
                let end = serde_json::to_value(info.end)?;
                format!(
                    "{}; started {}, {} long, {}; peak {}, leaked {}, {} allocations",
                    command.join(" "),
                    info.process.started_at,
                    duration(info.process.duration_ns),
                    end.as_str().unwrap_or_default(),
                    bytes(info.peak.bytes),
                    bytes(info.leaked.bytes),
                    info.allocations.count
                )
            }
        };
        writeln!(out, "{}: {}", clean(&name), clean(&line))?;
    }
    Ok(out)
}

pub fn summary(shelf: &mut Shelf, asked: &OfRecording) -> Result<String> {
    let opened = shelf.open(asked.recording.as_deref())?;
    let summary = summaries::ask(&opened)?;
    let text = printed(&opened, |out| summaries::print(&summary, &opened.path, Style::default(), out))?;
    let mut out = text;
    let info = tracehound_audit::info(&opened.trace, &opened.symbols);
    for remark in &info.remarks {
        writeln!(out, "remark: {}", clean(&remark.text))?;
    }
    for mark in info.marks.iter().take(20) {
        writeln!(out, "mark at {}: {}", duration(mark.t_ns), clean(&mark.label))?;
    }
    out.push_str("next: `leaks` for verdicts and backtraces, `top`/`tree` with \"metric\": \"peak\" for the peak, `memory` for resident memory\n");
    Ok(out)
}

pub fn leaks(shelf: &mut Shelf, asked: &OfLeaks) -> Result<String> {
    let opened = shelf.open(asked.recording.as_deref())?;
    let params = LeaksParams {
        window: asked.part.window(Metric::Leaked)?,
        filter: asked.part.filter.filter().map_err(misuse)?,
        limit: Some(MOST_ROWS),
        ..LeaksParams::default()
    };
    let mut answer =
        tracehound_query::leaks::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
    // What grows comes first: a model that reads one page must not take a large constant block for the leak.
    answer.sites.sort_by_key(|site| {
        let grows = site.verdict.kind == tracehound_api::leaks::VerdictKind::Growing;
        (!grows, std::cmp::Reverse(site.bytes))
    });
    let growing =
        |kind: &tracehound_api::leaks::LeakSite| kind.verdict.kind == tracehound_api::leaks::VerdictKind::Growing;
    let count = answer.sites.iter().filter(|site| growing(site)).count();
    let rate: f64 = answer.sites.iter().filter(|site| growing(site)).map(|site| site.verdict.bytes_per_second).sum();
    let head = match count {
        0 => "No leaking site grows.\n".to_owned(),
        1 => format!("1 leaking site grows, {}/s; it is listed first.\n", signed_bytes(rate as i64)),
        n => format!("{n} leaking sites grow, {}/s in all; they are listed first.\n", signed_bytes(rate as i64)),
    };
    let text = printed_of(&opened, &params.filter, |out| {
        leak_text::print(&answer, opened.ended_early(), asked.full, Style::default(), out)
    })?;
    // They stand at the end of the text, which may be pages away.
    let mut late = String::new();
    for site in answer.freed_at_exit.iter().take(3) {
        let (word, _) = leak_text::verdict(&site.verdict);
        let who = stacks::one_line(&site.stack, 3);
        writeln!(
            late,
            "Not leaked but {word} until it was freed at exit: {} by {who} ({})",
            bytes(site.bytes),
            site.id
        )?;
    }
    Ok(format!("{head}{late}{text}"))
}

pub fn top(shelf: &mut Shelf, asked: &OfTop) -> Result<String> {
    let opened = shelf.open(asked.recording.as_deref())?;
    let params = FunctionsParams {
        metric: asked.metric,
        unit: asked.unit,
        window: asked.part.window(asked.metric)?,
        filter: asked.part.filter.filter().map_err(misuse)?,
        by: asked.by,
        sort: if asked.cumulative { FunctionSort::Cum } else { FunctionSort::Flat }.into(),
        limit: Some(MOST_ROWS),
        ..FunctionsParams::default()
    };
    let answer = functions::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
    printed_of(&opened, &params.filter, |out| tops::print(&answer, Style::default(), out))
}

pub fn tree(shelf: &mut Shelf, asked: &OfTree) -> Result<String> {
    let opened = shelf.open(asked.recording.as_deref())?;
    let params = FlamegraphParams {
        metric: asked.metric,
        unit: asked.unit,
        window: asked.part.window(asked.metric)?,
        filter: asked.part.filter.filter().map_err(misuse)?,
        root: asked.root,
        // A row is a pixel at least: a hundredth of the root.
        width: 100,
        min_px: 1.0,
        max_nodes: TREE_ROWS,
        inverted: asked.inverted,
        freeing: false,
        pinned: None,
    };
    let graph = flamegraph::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
    let text = tree_text(&graph);
    printed_of(&opened, &params.filter, |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

/// A line for each row; chains of only children stand on one level.
fn tree_text(graph: &Flamegraph) -> String {
    let amount = |value: i64| match graph.unit {
        Unit::Bytes => signed_bytes(value),
        Unit::Count => format!("{} blocks", signed_count(value)),
    };
    let when = graph.at_ns.map_or_else(
        || format!("from {} to {}", duration(graph.from_ns), duration(graph.to_ns)),
        |at| format!("at {}{}", duration(at), tops::whose(graph.peak_of)),
    );
    let mut out = format!(
        "{} {} {when}; share of all, `own` is what the function itself allocates\n",
        amount(graph.total),
        tops::metric_name(graph.metric)
    );
    let name = |frame: Option<u32>| {
        let frame = frame.and_then(|frame| graph.frames.get(frame as usize));
        let Some(frame) = frame else { return "(all)".to_owned() };
        let place = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("  {}:{line}", file.rsplit('/').next().unwrap_or(file)),
            _ => frame.module.as_ref().map_or_else(String::new, |module| format!("  {module}")),
        };
        clean(&format!("{}{place}", frame.name)).into_owned()
    };
    if !graph.ancestors.is_empty() {
        let above: Vec<String> = graph.ancestors.iter().map(|row| name(row.frame)).collect();
        out.push_str(&format!("below {}\n", above.join(" → ")));
    }
    let rows = &graph.rows;
    let mut children = vec![0_u32; rows.id.len()];
    rows.parent.iter().skip(1).for_each(|&parent| children[parent as usize] += 1);
    let mut depth = vec![0_usize; rows.id.len()];
    for row in 0..rows.id.len() {
        let parent = rows.parent[row] as usize;
        if row > 0 {
            depth[row] = depth[parent] + usize::from(children[parent] > 1);
        }
        let share = percent(rows.value[row], graph.total);
        let indent = "  ".repeat(depth[row]);
        if rows.folded[row] > 0 {
            out.push_str(&format!("{indent}{share} in {} smaller rows\n", rows.folded[row]));
            continue;
        }
        let own = if rows.own[row] == 0 { String::new() } else { format!(", own {}", amount(rows.own[row])) };
        out.push_str(&format!(
            "{indent}{share} {}{own}  {} [{}]\n",
            amount(rows.value[row]),
            name(rows.frame[row]),
            rows.id[row]
        ));
    }
    out
}

pub fn memory(shelf: &mut Shelf, asked: &OfMemory) -> Result<String> {
    let opened = shelf.open(asked.recording.as_deref())?;
    let at = asked.at.as_deref().unwrap_or("end");
    let at = query_params::window(None, None, Some(at)).map_err(misuse)?.at;
    let params = MemoryParams { at: at.clone(), limit: Some(30), ..MemoryParams::default() };
    let answer = ledger::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)?;
    let by = match asked.pins {
        PinsShown::None => None,
        PinsShown::Function => Some(PinGroup::Function),
        PinsShown::Site => Some(PinGroup::Site),
        PinsShown::Age => Some(PinGroup::Age),
        PinsShown::Thread => Some(PinGroup::Thread),
    };
    let held = by.map(|by| {
        let params = PinsParams { at: at.clone(), by, limit: Some(MOST_ROWS), ..PinsParams::default() };
        pins::run(&opened.trace, &opened.symbols, &params, interrupt::flag()).map_err(misuse)
    });
    let held = held.transpose()?;
    printed(&opened, |out| {
        if let Some(held) = &held {
            pin_text::print(held, 40, Style::default(), out)?;
            out.push(b'\n');
        }
        memory_text::print(&answer, ledger::has_mappings(&opened.trace), Style::default(), out)
    })
}

pub fn compare(shelf: &mut Shelf, asked: &OfCompare) -> Result<String> {
    let open = |shelf: &mut Shelf, names: &[String]| -> Result<Vec<Arc<OpenRecording>>> {
        names.iter().map(|name| shelf.open(Some(name))).collect()
    };
    let (before, after) = (open(shelf, &asked.before)?, open(shelf, &asked.after)?);
    let params = DiffParams {
        metric: asked.metric,
        unit: asked.unit,
        filter: asked.filter.filter().map_err(misuse)?,
        limit: Some(MOST_ROWS),
        normalize: asked.normalize,
        ..DiffParams::default()
    };
    let everything = Window::default();
    let is_two_instants = asked.from.is_some() || asked.to.is_some();
    let instant = |name: &str, text: &Option<String>, default: TimeExpr| -> Result<Window> {
        let at = text.as_deref().map(|text| query_params::parse(name, text)).transpose().map_err(misuse)?;
        Ok(Window { at: Some(at.unwrap_or(default)), ..Window::default() })
    };
    match (before.as_slice(), after.as_slice()) {
        ([one], []) => {
            let (from, to) = (instant("from", &asked.from, TimeExpr::Start)?, instant("to", &asked.to, TimeExpr::End)?);
            let label = |text: &Option<String>, default: &str| text.clone().unwrap_or(default.into());
            let (first, second) = (label(&asked.from, "start"), label(&asked.to, "end"));
            let answer = diff::run(side(one, &from, &first), side(one, &to, &second), &params, interrupt::flag())
                .map_err(misuse)?;
            printed(one, |out| diffs::print(&answer, asked.metric, Style::default(), out))
        }
        (_, []) => bail!("several recordings of one side: \"after\" names those of the other"),
        ([], _) => bail!("\"before\" names at least one recording"),
        _ if is_two_instants => bail!("\"from\" and \"to\" are two instants of one recording; two were given"),
        ([one], [other]) => {
            let answer = diff::run(
                side(one, &everything, &one.path),
                side(other, &everything, &other.path),
                &params,
                interrupt::flag(),
            )
            .map_err(misuse)?;
            let text = printed(one, |out| diffs::print(&answer, asked.metric, Style::default(), out))?;
            let limits =
                other.shortfall().map_or_else(String::new, |why| format!("Note: the second: {}\n\n", clean(&why)));
            Ok(format!("{limits}{text}"))
        }
        (old, new) => {
            let old_sides: Vec<Side<'_>> = old.iter().map(|opened| side(opened, &everything, &opened.path)).collect();
            let new_sides: Vec<Side<'_>> = new.iter().map(|opened| side(opened, &everything, &opened.path)).collect();
            let answer = many::run(&old_sides, &new_sides, &params, interrupt::flag()).map_err(misuse)?;
            let mut out = Vec::new();
            for opened in old.iter().chain(new) {
                if let Some(why) = opened.shortfall() {
                    out.extend_from_slice(format!("Note: {}: {}\n", clean(&opened.path), clean(&why)).as_bytes());
                }
            }
            diffs::print_many(&answer, asked.metric, Style::default(), &mut out)?;
            Ok(String::from_utf8_lossy(&out).into_owned())
        }
    }
}

fn side<'a>(opened: &'a OpenRecording, window: &'a Window, label: &'a str) -> Side<'a> {
    Side { trace: &opened.trace, symbols: &opened.symbols, window, label }
}

pub fn sql(shelf: &mut Shelf, asked: &OfSql) -> Result<String> {
    let Some(query) = &asked.query else { return Ok(tracehound_sql::markdown()) };
    let opened = if asked.recordings.is_empty() {
        vec![shelf.open(None)?]
    } else {
        asked.recordings.iter().map(|name| shelf.open(Some(name))).collect::<Result<Vec<_>>>()?
    };
    let recordings = opened.iter().map(|opened| SqlRecording {
        trace: Arc::clone(&opened.trace),
        symbols: Arc::new(tracehound_symbols::for_recording(&opened.trace)),
        path: opened.path.clone(),
    });
    // Nobody can press Ctrl-C here.
    let database = Database::limited(recordings.collect(), &Cancel::new(), SqlLimits::within(LONGEST_QUERY))?;
    let mut rows = sql_text::TableRows::default();
    database.query(query, &mut rows)?;
    let mut out = Vec::new();
    for opened in &opened {
        if let Some(why) = opened.shortfall() {
            out.extend_from_slice(format!("Note: {}: {}\n", clean(&opened.path), clean(&why)).as_bytes());
        }
    }
    rows.print(Style::default(), &mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}
