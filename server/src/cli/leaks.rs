//! `heaptrace leaks`: what was never freed, and who allocated it.

use std::io::{self, Write};

use tracehound_server::api::Frame;
use tracehound_server::api::leaks::{LeakSite, Leaks, Verdict, VerdictKind};

use super::terminal::{Role, Style, clean, truncate, width};
use super::units::{bytes, count, percent, signed_bytes};

/// How much of each stack is shown to people.
const FRAMES: usize = 24;

/// Writes the report; `all_frames` shows stacks to their root.
pub fn print(leaks: &Leaks, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let amount = &leaks.leaked;
    if amount.count == 0 && leaks.suppressed.count == 0 {
        return writeln!(out, "{}", style.paint(Role::Good, "Nothing leaked: every block was freed."));
    }
    let head = format!(
        "{} leaked in {}, from {}",
        bytes(amount.bytes),
        plural(amount.count, "block"),
        plural(leaks.total_sites, "site")
    );
    writeln!(out, "{}", style.paint(Role::Strong, head))?;
    if leaks.suppressed.count > 0 {
        writeln!(out, "{} in {} more suppressed", bytes(leaks.suppressed.bytes), plural(leaks.suppressed.count, "block"))?;
    }
    for site in &leaks.sites {
        writeln!(out)?;
        print_site(site, amount.bytes, all_frames, style, out)?;
    }
    let shown: u64 = leaks.sites.iter().map(|site| site.bytes).sum();
    let hidden = leaks.total_sites.saturating_sub(leaks.sites.len() as u64);
    if hidden > 0 {
        let rest = amount.bytes.saturating_sub(shown);
        writeln!(out, "\n… and {} with {} (--count 0 shows all)", plural(hidden, "more site"), bytes(rest))?;
    }
    Ok(())
}

fn print_site(site: &LeakSite, whole: u64, all_frames: bool, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let share = percent(site.bytes.cast_signed(), whole.cast_signed());
    let head = format!("{} in {}", bytes(site.bytes), plural(site.count, "block"));
    let (word, role) = verdict(&site.verdict);
    writeln!(
        out,
        "{} {}  {}{}",
        style.paint(Role::Strong, head),
        style.paint(Role::Faint, format!("({share}, {})", site.id)),
        style.paint(role, word),
        style.paint(Role::Faint, format!(": {}", clean(&site.verdict.why)))
    )?;
    let shown = if all_frames { site.stack.len() } else { site.stack.len().min(FRAMES) };
    // Names are aligned as far as they are of reasonable length; places follow.
    let names: Vec<String> = site.stack[..shown].iter().map(name).collect();
    let column = names.iter().map(|name| width(name)).filter(|&width| width <= 48).max().unwrap_or(0);
    for (frame, name) in site.stack.iter().zip(&names) {
        let pad = " ".repeat(column.saturating_sub(width(name)));
        let place = place(frame);
        let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(6));
        let name = truncate(name, room.max(20));
        let place = truncate(&place, room.saturating_sub(width(&name) + pad.len()).max(12)).into_owned();
        writeln!(out, "    {}{pad}  {}", style.paint(Role::Name, name), style.paint(Role::Faint, place))?;
    }
    let more = site.stack.len() - shown;
    if more > 0 {
        writeln!(out, "    {}", style.paint(Role::Faint, format!("… {} (--full shows them)", plural(more as u64, "more frame"))))?;
    }
    Ok(())
}

fn name(frame: &Frame) -> String {
    match (&frame.function, &frame.module) {
        (Some(function), _) => clean(function).into_owned(),
        (None, Some(module)) => format!("{} in {}", frame.address, clean(module)),
        (None, None) => frame.address.clone(),
    }
}

fn place(frame: &Frame) -> String {
    let mut place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", clean(file)),
        (Some(file), None) => clean(file).into_owned(),
        _ => frame.module.as_deref().filter(|_| frame.function.is_some()).map(|module| clean(module).into_owned()).unwrap_or_default(),
    };
    if frame.inlined {
        place.push_str(" (inlined)");
    }
    place
}

fn verdict(verdict: &Verdict) -> (String, Role) {
    match verdict.kind {
        VerdictKind::Growing => (format!("growing {}/s", signed_bytes(verdict.bytes_per_second as i64)), Role::Bad),
        VerdictKind::Bounded => ("bounded".into(), Role::Good),
        VerdictKind::OneTime => ("one-time".into(), Role::Plain),
        VerdictKind::Unclear => ("unclear".into(), Role::Hot),
    }
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}
