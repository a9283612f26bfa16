//! Times as users write them, and the range of events that they mean.

use std::collections::HashSet;
use std::str::FromStr;

use super::filter::Selection;
use super::timeline::peak;
use super::{QueryError, Result};
use tracehound_api::PeakOf;
use tracehound_index::{Cancel, Position, Span, Trace};

/// A moment, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeExpr {
    /// Nanoseconds since the start.
    Ns(u64),
    /// Part of the recording's length, 0 to 100.
    Percent(f64),
    /// The start.
    Start,
    /// The end.
    End,
    /// When live bytes were highest; under a filter, those of what passes it.
    Peak,
    /// When a mark of this label was set first.
    Mark(String),
    /// A capture by number, from 1: its start where a window starts, else its end.
    Capture(u32),
}

impl FromStr for TimeExpr {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let text = text.trim();
        match text {
            "" => return Err("a time is expected, such as `1.5s`, `50%`, `peak`, or a mark's label".into()),
            "start" => return Ok(Self::Start),
            "end" => return Ok(Self::End),
            "peak" => return Ok(Self::Peak),
            _ => {}
        }
        if let Some(label) = text.strip_prefix("mark:") {
            return Ok(Self::Mark(label.into()));
        }
        if let Some(number) = text.strip_prefix("capture:")
            && let Ok(number) = number.parse()
        {
            return Ok(Self::Capture(number));
        }
        if let Some(number) = text.strip_suffix('%')
            && let Ok(percent) = number.trim().parse::<f64>()
        {
            return if (0.0..=100.0).contains(&percent) {
                Ok(Self::Percent(percent))
            } else {
                Err(format!("`{text}` is not between 0% and 100%"))
            };
        }
        match parse_duration(text) {
            Ok(ns) => Ok(Self::Ns(ns)),
            Err(why) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') => Err(why),
            Err(_) => Ok(Self::Mark(text.into())),
        }
    }
}

/// Nanoseconds of a duration such as `1.5s`, `200ms`, `3us`, `10ns`, `2m`, `1h`, or of a bare number of nanoseconds.
///
/// # Errors
/// When it is none of these, with the reason in words.
pub fn parse_duration(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let nanoseconds: u64 = match unit.trim() {
        "" | "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(format!("`{text}` is no time; write `1.5s`, `200ms`, `3us`, `10ns`, `2m`, or `1h`")),
    };
    scaled(number.trim(), nanoseconds).ok_or_else(|| format!("`{text}` is no time; write for instance `1.5s`"))
}

/// Bytes of a size such as `64k`, `1MiB`, `2g`, or of a bare number. Units are binary.
///
/// # Errors
/// When it is none of these, with the reason in words.
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err(format!("`{text}` is no size; write `512`, `64k`, `1MiB`, or `2g`")),
    };
    scaled(number.trim(), bytes).ok_or_else(|| format!("`{text}` is no size; write for instance `64k`"))
}

/// A decimal number times a unit, exact for what decimal digits can say.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let digits = |text: &str| {
        let all = text.bytes().all(|b| b.is_ascii_digit());
        if text.is_empty() { Some(0) } else { text.parse::<u64>().ok().filter(|_| all) }
    };
    let whole = digits(whole)?.checked_mul(unit)?;
    let part = u128::from(digits(fraction)?) * u128::from(unit) / 10_u128.pow(fraction.len() as u32);
    whole.checked_add(u64::try_from(part).ok()?)
}

/// A window or a moment as it was asked for. Nothing given: the whole recording.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    /// Start; events at that time are inside.
    pub from: Option<TimeExpr>,
    /// End; events at that time are outside.
    pub to: Option<TimeExpr>,
    /// A moment, for what is live; events at that time have happened.
    pub at: Option<TimeExpr>,
}

/// A window that has been looked up in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved {
    /// Start.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// Its events.
    pub span: Span,
    /// The moment, if one was asked for: time and place.
    pub at: Option<(u64, Position)>,
    /// Whose peak the moment is, if it is one.
    pub peak_of: Option<PeakOf>,
}

impl Resolved {
    /// The whole recording.
    #[must_use]
    pub fn whole(trace: &Trace) -> Self {
        let span = Span { from: Position::default(), to: trace.end_position() };
        Self { from_ns: 0, to_ns: trace.duration_ns(), span, at: None, peak_of: None }
    }
}

/// A moment: its time, the place before the events of that time, and the place behind them.
#[derive(Debug, Clone, Copy)]
struct ResolvedMoment {
    ns: u64,
    before: Position,
    after: Position,
}

/// Labels of a message about one that does not exist.
const MOST_LABELS: usize = 8;

fn moment(
    trace: &Trace,
    selection: &Selection,
    parameter: &str,
    time: &TimeExpr,
    cancel: &Cancel,
) -> Result<ResolvedMoment> {
    let duration = trace.duration_ns();
    let ns = match time {
        TimeExpr::Ns(ns) => (*ns).min(duration),
        TimeExpr::Percent(percent) => (duration as f64 * percent / 100.0).round().min(duration as f64) as u64,
        TimeExpr::Start => 0,
        TimeExpr::End => duration,
        TimeExpr::Peak => {
            // The peak is a place among the events, finer than a nanosecond.
            let peak = peak::find(trace, selection, trace.everything(), 0, cancel)?;
            return Ok(ResolvedMoment { ns: peak.at_ns, before: peak.place, after: peak.place });
        }
        TimeExpr::Capture(number) => {
            let captures = &trace.facts().captures;
            let capture = number.checked_sub(1).and_then(|at| captures.get(at as usize));
            let capture = capture.ok_or_else(|| {
                let there = match captures.len() {
                    0 => "there are none".into(),
                    1 => "there is one".into(),
                    many => format!("there are {many}"),
                };
                QueryError::bad(parameter, format!("there is no capture {number}: {there}"))
            })?;
            if parameter == "from" { capture.from_ns } else { capture.to_ns }
        }
        TimeExpr::Mark(label) => {
            let mark = labelled(trace.marks(), |mark| &mark.label, label);
            let look = || labelled(trace.looks(), |look| &look.label, label).map(|look| look.t_ns);
            mark.map(|m| m.t_ns).or_else(look).ok_or_else(|| {
                let marks = trace.marks().iter().map(|mark| &mark.label);
                let looks = trace.looks().iter().map(|look| &look.label).filter(|label| !label.is_empty());
                // A mark is looked at, too, and labels are used again.
                let mut seen = HashSet::new();
                let mut known: Vec<_> =
                    marks.chain(looks).filter(|label| seen.insert(*label)).map(|label| format!("`{label}`")).collect();
                if known.len() > MOST_LABELS {
                    let more = known.split_off(MOST_LABELS).len();
                    known.push(format!("{more} more"));
                }
                let marks = if known.is_empty() { "there are none".into() } else { known.join(", ") };
                let forms = "`1.5s`, `200ms`, `peak`, `end`, `50%`, or the label of a mark or a look";
                QueryError::bad(parameter, format!("`{label}` is no time: write {forms} ({marks})"))
            })?
        }
    };
    let after = if ns >= duration { trace.end_position() } else { trace.position_before(ns + 1) };
    let before = if ns >= duration { trace.end_position() } else { trace.position_before(ns) };
    Ok(ResolvedMoment { ns, before, after })
}

/// The first of `list` with a label; if none has it to the letter, the first that has it with blanks around it, as a
/// program may write it and nobody types it.
#[must_use]
pub fn labelled<'a, T>(list: &'a [T], label_of: impl Fn(&T) -> &str, label: &str) -> Option<&'a T> {
    let bare = label.trim();
    let exact = list.iter().find(|item| label_of(item) == label);
    exact.or_else(|| list.iter().find(|item| !bare.is_empty() && label_of(item).trim() == bare))
}

/// Whose peak is that of what `selection` keeps.
#[must_use]
pub const fn peak_of(selection: &Selection) -> PeakOf {
    if selection.is_everything() { PeakOf::Heap } else { PeakOf::Filter }
}

impl Window {
    /// The times as they were asked for.
    pub fn times(&self) -> impl Iterator<Item = &TimeExpr> + Clone {
        [&self.from, &self.to, &self.at].into_iter().flatten()
    }

    /// Looks the times up. A peak is that of what `selection` keeps.
    ///
    /// # Errors
    /// When a mark is unknown, the end lies before the start, or cancelled.
    pub fn resolve(&self, trace: &Trace, selection: &Selection, cancel: &Cancel) -> Result<Resolved> {
        let of = |name: &str, time: &Option<TimeExpr>| {
            time.as_ref().map(|t| moment(trace, selection, name, t, cancel)).transpose()
        };
        let from = of("from", &self.from)?.unwrap_or(ResolvedMoment {
            ns: 0,
            before: Position::default(),
            after: Position::default(),
        });
        let end = trace.end_position();
        let to = of("to", &self.to)?.unwrap_or(ResolvedMoment { ns: trace.duration_ns(), before: end, after: end });
        if to.ns < from.ns {
            return Err(QueryError::bad("to", "the window ends before it starts"));
        }
        let at = of("at", &self.at)?.map(|m| (m.ns, m.after));
        let peak_of = (self.at == Some(TimeExpr::Peak)).then(|| peak_of(selection));
        let span = Span { from: from.before, to: to.before };
        Ok(Resolved { from_ns: from.ns, to_ns: to.ns, span, at, peak_of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let ns = |text: &str| text.parse::<TimeExpr>();
        assert_eq!(ns("1.5s"), Ok(TimeExpr::Ns(1_500_000_000)));
        assert_eq!(ns("200ms"), Ok(TimeExpr::Ns(200_000_000)));
        assert_eq!(ns("3us"), Ok(TimeExpr::Ns(3_000)));
        assert_eq!(ns("3µs"), Ok(TimeExpr::Ns(3_000)));
        assert_eq!(ns("7"), Ok(TimeExpr::Ns(7)));
        assert_eq!(ns("2m"), Ok(TimeExpr::Ns(120_000_000_000)));
        assert_eq!(ns("50%"), Ok(TimeExpr::Percent(50.0)));
        assert_eq!(ns("peak"), Ok(TimeExpr::Peak));
        assert_eq!(ns("warm"), Ok(TimeExpr::Mark("warm".into())));
        assert_eq!(ns("mark:peak"), Ok(TimeExpr::Mark("peak".into())));
        assert_eq!(ns("capture:2"), Ok(TimeExpr::Capture(2)));
        assert_eq!(ns("capture:x"), Ok(TimeExpr::Mark("capture:x".into())));
        for bad in ["", "1.5q", "101%", "-1s", "1..2s", "99999999999999999999"] {
            assert!(ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_found_without_the_blanks_around_them() {
        let found = |label: &str| labelled(&["", " warm", "warm ", "cold"], |label| label, label).copied();
        assert_eq!(found("warm"), Some(" warm"));
        assert_eq!(found("warm "), Some("warm "), "to the letter");
        assert_eq!(found("cold"), Some("cold"));
        assert_eq!((found(" "), found("war")), (None, None));
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("512", 512), ("64k", 65536), ("1MiB", 1 << 20), ("0.5G", 1 << 29), ("2 kB", 2048)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "1x", "-1", "1e3"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
