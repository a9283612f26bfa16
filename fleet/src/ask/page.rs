//! The text of the fleet page: a table of services, of the versions of one, of the hosts of a version, or of the recordings
//! of a host. Every name in it comes from recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;

use super::bytes;
use super::leaks::FleetLeaks;
use crate::tables::read::RecordingRow;

/// What is shown: the path down to a host.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// Only this service.
    pub service: Option<String>,
    /// Only this version of it.
    pub version: Option<String>,
    /// Only this host.
    pub host: Option<String>,
}

/// A name of a recording: its version, its host.
type NameOf = fn(&RecordingRow) -> &str;

/// Rows of a table.
const MOST: usize = 1000;

/// The page's style, which follows the browser's choice of light and dark.
pub const STYLE: &str = "
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
html { background: light-dark(#fff, #16181c); color: light-dark(#1c1e21, #e6e6e6); }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
nav { margin-bottom: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid light-dark(#ddd, #444); vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.muted { color: light-dark(#5a5a5a, #a8a8a8); } .bad { color: light-dark(#a8201a, #ff9a92); }
code { font-size: .9em; overflow-wrap: anywhere; }
a { color: light-dark(#0a58a8, #7fb8ff); }
";

/// A text inside the page.
pub fn escaped(text: &str) -> String {
    let text = crate::clean(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A link to a place of the page.
fn link(pairs: &[(&str, &str)], text: &str) -> String {
    let url = reqwest::Url::parse_with_params("http://localhost/", pairs);
    let query = url.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default();
    format!("<a href=\"/?{}\">{}</a>", escaped(&query), escaped(text))
}

/// Figures of some recordings.
struct GroupFigures<'r> {
    rows: Vec<&'r RecordingRow>,
}

impl GroupFigures<'_> {
    fn distinct(&self, of: fn(&RecordingRow) -> &str) -> usize {
        self.rows.iter().map(|row| of(row)).collect::<BTreeSet<_>>().len()
    }

    fn median(&self, of: fn(&RecordingRow) -> i64) -> f64 {
        let mut values: Vec<i64> = self.rows.iter().map(|row| of(row)).collect();
        values.sort_unstable();
        values.get(values.len() / 2).map_or(0.0, |&value| value as f64)
    }

    /// Cells that every table of groups has.
    fn cells(&self) -> String {
        let largest = self.rows.iter().map(|row| row.peak_bytes).max().unwrap_or(0);
        let leaked: i64 = self.rows.iter().map(|row| row.leaked_bytes).sum();
        let damaged = self.rows.iter().filter(|row| !row.complete).count();
        let last = self.rows.iter().map(|row| row.started_unix_ns).max().unwrap_or(0);
        format!(
            "<td class=n>{}<td class=n>{damaged}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=muted>{}",
            self.rows.len(),
            bytes(self.median(|row| row.peak_bytes)),
            bytes(largest as f64),
            bytes(self.median(|row| row.leaked_bytes)),
            bytes(leaked as f64),
            moment(last)
        )
    }
}

const HEADS: &str = "<th class=n>Recordings<th class=n title=\"Killed, stopped or cut off\">Not ended in order\
    <th class=n>Median peak<th class=n>Largest peak<th class=n>Median leaked<th class=n>Leaked in all<th>Last started";

/// Date and minute of a time, in UTC.
fn moment(unix_ns: i64) -> String {
    let seconds = u64::try_from(unix_ns).unwrap_or(0) / 1_000_000_000;
    let (day, rest) = (super::day_of(seconds / 86_400), seconds % 86_400);
    format!("{day} {:02}:{:02} UTC", rest / 3600, rest / 60 % 60)
}

fn runtime(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Groups by a name, in the order in which the first of each began.
fn groups<'r>(rows: &[&'r RecordingRow], of: fn(&RecordingRow) -> &str) -> Vec<(&'r str, GroupFigures<'r>)> {
    let mut order: Vec<&str> = Vec::new();
    let mut all: BTreeMap<&str, GroupFigures<'r>> = BTreeMap::new();
    for &row in rows {
        let name = of(row);
        let group = all.entry(name).or_insert_with(|| {
            order.push(name);
            GroupFigures { rows: Vec::new() }
        });
        group.rows.push(row);
    }
    order.into_iter().filter_map(|name| all.remove(name).map(|figures| (name, figures))).collect()
}

/// The whole page.
pub fn page(store: &str, rows: &[RecordingRow], shown: &Shown, growing: Option<&FleetLeaks>) -> String {
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let rows: Vec<&RecordingRow> = rows
        .iter()
        .filter(|row| {
            is(&shown.service, &row.service) && is(&shown.version, &row.version) && is(&shown.host, &row.host)
        })
        .collect();
    let mut out = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <link rel=stylesheet href=/style.css><title>heaptrace fleet</title><body><h1>heaptrace fleet</h1>",
    );
    let _ = write!(out, "<p class=muted>{}<nav aria-label=Place><a href=\"/\">All services</a>", escaped(store));
    let mut path: Vec<(&str, &str)> = Vec::new();
    for (name, value) in [("service", &shown.service), ("version", &shown.version), ("host", &shown.host)] {
        if let Some(value) = value {
            path.push((name, value));
            let _ = write!(out, " › {}", link(&path, value));
        }
    }
    out.push_str("</nav><main>");
    if rows.is_empty() {
        out.push_str("<p>There are no such recordings with tables. <code>heaptrace fleet pack</code> writes tables.");
    } else {
        match (&shown.service, &shown.version, &shown.host) {
            (None, ..) => table(&mut out, &rows, &path, "service", |row| &row.service),
            (Some(_), None, _) => table(&mut out, &rows, &path, "version", |row| &row.version),
            (_, Some(_), None) => table(&mut out, &rows, &path, "host", |row| &row.host),
            (_, _, Some(_)) => recordings(&mut out, &rows),
        }
    }
    if let Some(growing) = growing {
        stacks(&mut out, growing, shown.service.is_none());
    }
    out.push_str("</main></html>\n");
    out
}

/// A row for each group, with the way into it.
fn table(out: &mut String, rows: &[&RecordingRow], path: &[(&str, &str)], level: &str, of: fn(&RecordingRow) -> &str) {
    let inner: Option<(&str, NameOf)> = match level {
        "service" => Some(("Versions", |row| &row.version)),
        "version" => Some(("Hosts", |row| &row.host)),
        _ => None,
    };
    let head = format!("{}{}", level[..1].to_uppercase(), &level[1..]);
    let _ = write!(out, "<div class=wide><table><thead><tr><th>{head}");
    if let Some((name, _)) = inner {
        let _ = write!(out, "<th class=n>{name}");
    }
    let _ = write!(out, "{HEADS}<tbody>");
    let all = groups(rows, of);
    for (name, figures) in all.iter().take(MOST) {
        let down: Vec<(&str, &str)> = path.iter().copied().chain([(level, *name)]).collect();
        let _ = write!(out, "<tr><td>{}", link(&down, name));
        if let Some((_, of)) = inner {
            let _ = write!(out, "<td class=n>{}", figures.distinct(of));
        }
        out.push_str(&figures.cells());
    }
    out.push_str("</table></div>");
    more(out, all.len());
}

fn more(out: &mut String, count: usize) {
    if count > MOST {
        let _ = write!(out, "<p class=muted>… and {} more", count - MOST);
    }
}

/// A row for each recording, the latest first, with the way to its views.
fn recordings(out: &mut String, rows: &[&RecordingRow]) {
    out.push_str(
        "<div class=wide><table><thead><tr><th>Recording<th>Started<th class=n>Runtime<th class=n>Peak\
         <th class=n>Leaked<th class=n>Allocated<th class=n>Largest resident<th>End<tbody>",
    );
    for row in rows.iter().rev().take(MOST) {
        let (class, end) = if row.complete { ("muted", "in order") } else { ("bad", "killed, stopped or cut off") };
        let _ = write!(
            out,
            "<tr><td><a href=\"/open?recording={0}\"><code>{0}</code></a><td class=muted>{1}<td class=n>{2}<td class=n>{3}\
             <td class=n>{4}<td class=n>{5}<td class=n>{6}<td class={class}>{end}",
            escaped(&row.id),
            moment(row.started_unix_ns),
            runtime(row.duration_ns),
            bytes(row.peak_bytes as f64),
            bytes(row.leaked_bytes as f64),
            bytes(row.allocated_bytes as f64),
            bytes(row.peak_rss_bytes as f64),
        );
    }
    out.push_str("</table></div>");
    more(out, rows.len());
}

/// The stacks that grow, each with its service where the page shows several.
fn stacks(out: &mut String, growing: &FleetLeaks, several_services: bool) {
    out.push_str("<h2>Stacks that grow</h2>");
    if growing.rows.is_empty() {
        out.push_str("<p class=muted>None.");
        return;
    }
    out.push_str("<div class=wide><table><thead><tr><th>Stack");
    if several_services {
        out.push_str("<th>Service");
    }
    out.push_str("<th>Version<th class=n>Grows in<th class=n>Each<th class=n>In all<tbody>");
    for row in &growing.rows {
        let _ = write!(out, "<tr><td><code>{}</code>", escaped(&row.stack.line()));
        if several_services {
            let _ = write!(out, "<td>{}", link(&[("service", &row.service)], &row.service));
        }
        let of_version: &[(&str, &str)] = &[("service", &row.service), ("version", &row.version)];
        let _ = write!(
            out,
            "<td>{}<td class=n>{} of {} recordings<td class=n>{}/s<td class=n>{}",
            link(of_version, &row.version),
            row.growing,
            row.recordings,
            bytes(row.bytes_per_second),
            bytes(row.bytes as f64)
        );
    }
    out.push_str("</table></div>");
    if growing.hidden > 0 {
        let _ = write!(out, "<p class=muted>… and {} more: <code>heaptrace fleet leaks</code>", growing.hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(service: &str, version: &str, host: &str, peak: i64) -> RecordingRow {
        RecordingRow {
            id: "0f".repeat(16),
            service: service.into(),
            version: version.into(),
            day: "2026-11-22".into(),
            host: host.into(),
            started_unix_ns: 1_795_305_600_000_000_000,
            duration_ns: 90_000_000_000,
            peak_bytes: peak,
            leaked_bytes: 1024,
            allocated_bytes: 2048,
            peak_rss_bytes: 4096,
            complete: peak != 3072,
        }
    }

    #[test]
    fn each_level_leads_to_the_next() {
        let rows = [row("shop", "1 & 2", "a", 1024), row("shop", "1 & 2", "b", 3072), row("other", "1", "a", 2048)];
        let all = page("file:///s", &rows, &Shown::default(), None);
        assert!(all.contains("<a href=\"/?service=shop\">shop</a><td class=n>1<td class=n>2<td class=n>1"), "{all}");
        let service = Shown { service: Some("shop".into()), ..Shown::default() };
        let versions = page("file:///s", &rows, &service, None);
        assert!(versions.contains("/?service=shop&amp;version=1+%26+2\">1 &amp; 2</a><td class=n>2"), "{versions}");
        let version = Shown { version: Some("1 & 2".into()), ..service };
        let hosts = page("file:///s", &rows, &version, None);
        assert!(hosts.contains("&amp;host=b\">b</a><td class=n>1<td class=n>1<td class=n>3.00 KiB"), "{hosts}");
        let host = Shown { host: Some("b".into()), ..version };
        let recordings = page("file:///s", &rows, &host, None);
        assert!(recordings.contains(&format!("/open?recording={}\"", "0f".repeat(16))), "{recordings}");
        assert!(recordings.contains("killed, stopped or cut off") && recordings.contains("90.0 s"), "{recordings}");
    }

    #[test]
    fn names_are_not_markup() {
        let rows = [row("<script>\"'&", "v", "h", 1)];
        let all = page("s", &rows, &Shown::default(), None);
        assert!(!all.contains("<script>") && all.contains("&lt;script&gt;&quot;"), "{all}");
    }
}
