//! From texts, as the command line and URLs have them, to what the queries take.

use std::str::FromStr;

use tracehound_api::Metric;
use tracehound_query::{
    ContextFilter, Filter, QueryError, Result, TimeExpr, Window, parse_duration, parse_size, transform,
};

/// A window, or a moment.
///
/// # Errors
/// When a text is no time, or a moment is asked for together with a window.
pub fn window(from: Option<&str>, to: Option<&str>, at: Option<&str>) -> Result<Window> {
    if at.is_some() && (from.is_some() || to.is_some()) {
        return Err(QueryError::bad("at", "one instant excludes a window (from, to)"));
    }
    let time = |name: &str, text: Option<&str>| text.map(|text| parse(name, text)).transpose();
    Ok(Window { from: time("from", from)?, to: time("to", to)?, at: time("at", at)? })
}

/// Refuses an instant for a metric of a window: only live blocks are of one.
///
/// # Errors
/// When an instant is asked for and the metric is not `live`.
pub fn instant_is_for(metric: Metric, window: &Window) -> Result<()> {
    if window.at.is_some() && metric != Metric::Live {
        return Err(QueryError::bad(
            "at",
            "one instant is for the metric `live`; the others are of a window (from, to)",
        ));
    }
    Ok(())
}

/// `10s..20s`; a missing end is that of the recording. A label that contains `..` is put into double quotes.
///
/// # Errors
/// When the text is no window, naming the parameter.
pub fn window_between(name: &str, text: &str) -> Result<Window> {
    let bad = |why: &str| QueryError::bad(name, format!("`{text}` {why}"));
    let unclosed = || bad("has a label in double quotes without an end");
    let (from, rest) = end_of_window(name, text)?.ok_or_else(unclosed)?;
    let Some(rest) = rest.strip_prefix("..") else {
        return Err(bad("is no window; write for instance `10s..20s`"));
    };
    if matches!(from, Some(TimeExpr::Mark(_)))
        && !text.starts_with('"')
        && !rest.starts_with('"')
        && rest.contains("..")
    {
        let (label, end) = text.rsplit_once("..").unwrap_or_default();
        return Err(bad(&format!(
            "can be read in several ways; put a label that contains `..` into double quotes: `\"{label}\"..{end}`"
        )));
    }
    let to = if rest.starts_with('"') {
        let (to, behind) = end_of_window(name, rest)?.ok_or_else(unclosed)?;
        if !behind.is_empty() {
            return Err(bad("has something behind its end"));
        }
        to
    } else {
        (!rest.is_empty()).then(|| parse(name, rest)).transpose()?
    };
    Ok(Window { from, to, at: None })
}

/// A time at the beginning of a window's text, up to the `..`, and what follows; nothing for quotes without an end.
fn end_of_window<'a>(name: &str, text: &'a str) -> Result<Option<(Option<TimeExpr>, &'a str)>> {
    if let Some(quoted) = text.strip_prefix('"') {
        let is_end = |at: &usize| quoted[at + 1..].is_empty() || quoted[at + 1..].starts_with("..");
        let end = quoted.match_indices('"').map(|(at, _)| at).find(is_end);
        return Ok(end.map(|at| (Some(TimeExpr::Mark(quoted[..at].into())), &quoted[at + 1..])));
    }
    let (time, rest) = text.split_at(text.find("..").unwrap_or(text.len()));
    Ok(Some(((!time.is_empty()).then(|| parse(name, time)).transpose()?, rest)))
}

/// Reads one value.
///
/// # Errors
/// When the text is none, naming the parameter.
pub fn parse<T: FromStr<Err = String>>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|why: String| QueryError::bad(name, why))
}

/// A filter; `get` looks a part of it up by its name in URLs.
///
/// # Errors
/// When a part cannot be understood, naming it.
pub fn filter<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Filter> {
    let regex = |name: &str| get(name).map(|text| Filter::regex(name, text)).transpose();
    let with = |name: &str, read: fn(&str) -> std::result::Result<u64, String>| {
        get(name).map(|text| read(text).map_err(|why| QueryError::bad(name, why))).transpose()
    };
    Ok(Filter {
        focus: lines(get("focus")).map(|text| Filter::regex("focus", text)).collect::<Result<_>>()?,
        ignore: regex("ignore")?,
        hide: regex("hide")?,
        show: regex("show")?,
        show_from: regex("show_from")?,
        transforms: get("transform")
            .map_or_else(|| Ok(Vec::new()), transform::read_all)
            .map_err(|why| QueryError::bad("transform", why))?,
        module: regex("module")?,
        thread: get("thread").map(|text| match text.parse() {
            Ok(thread) => thread,
            Err(never) => match never {},
        }),
        context: get("context").map(ContextFilter::new).transpose()?,
        freed_by: regex("freed_by")?,
        min_size: with("min_size", parse_size)?,
        max_size: with("max_size", parse_size)?,
        min_lifetime: with("min_lifetime", parse_duration)?,
        max_lifetime: with("max_lifetime", parse_duration)?,
        lifetime: get("lifetime").map(|text| parse("lifetime", text)).transpose()?,
        address: get("address").map(|text| parse("address", text)).transpose()?,
    })
}

/// The lines of a text that are not empty.
fn lines(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.into_iter().flat_map(str::lines).filter(|line| !line.is_empty())
}

/// Several texts in one, a line each: what the command line repeats, and URLs hold together.
pub trait JoinedLines {
    /// The lines; `None` where there are none.
    fn lines(&self) -> Option<String>;
}

impl JoinedLines for Option<String> {
    fn lines(&self) -> Option<String> {
        self.clone()
    }
}

impl JoinedLines for Vec<String> {
    fn lines(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join("\n"))
    }
}

/// Declares how a struct of optional texts, named as in URLs, becomes a filter; with `texts`, and how they are listed.
macro_rules! filter_texts {
    ($type:ty, texts) => {
        $crate::query_params::filter_texts!($type);
        impl $type {
            /// The texts that are there, by their names in URLs.
            pub fn texts(&self) -> Vec<(&'static str, String)> {
                let all = [
                    ("focus", &$crate::query_params::JoinedLines::lines(&self.focus)),
                    ("ignore", &self.ignore),
                    ("hide", &self.hide),
                    ("show", &self.show),
                    ("show_from", &self.show_from),
                    ("transform", &$crate::query_params::JoinedLines::lines(&self.transform)),
                    ("module", &self.module),
                    ("thread", &self.thread),
                    ("context", &self.context),
                    ("freed_by", &self.freed_by),
                    ("min_size", &self.min_size),
                    ("max_size", &self.max_size),
                    ("min_lifetime", &self.min_lifetime),
                    ("max_lifetime", &self.max_lifetime),
                    ("lifetime", &self.lifetime),
                    ("address", &self.address),
                ];
                all.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect()
            }
        }
    };
    ($type:ty) => {
        impl $type {
            /// The filter that the texts stand for.
            pub fn filter(&self) -> tracehound_query::Result<tracehound_query::Filter> {
                let transform = $crate::query_params::JoinedLines::lines(&self.transform);
                let focus = $crate::query_params::JoinedLines::lines(&self.focus);
                $crate::query_params::filter(|name| {
                    match name {
                        "transform" => &transform,
                        "focus" => &focus,
                        "ignore" => &self.ignore,
                        "hide" => &self.hide,
                        "show" => &self.show,
                        "show_from" => &self.show_from,
                        "module" => &self.module,
                        "thread" => &self.thread,
                        "context" => &self.context,
                        "freed_by" => &self.freed_by,
                        "min_size" => &self.min_size,
                        "max_size" => &self.max_size,
                        "min_lifetime" => &self.min_lifetime,
                        "max_lifetime" => &self.max_lifetime,
                        "lifetime" => &self.lifetime,
                        "address" => &self.address,
                        _ => &None,
                    }
                    .as_deref()
                })
            }
        }
    };
}
pub(crate) use filter_texts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_part_is_named() {
        for (name, text) in [
            ("focus", "("),
            ("freed_by", "("),
            ("min_size", "big"),
            ("max_lifetime", "soon"),
            ("lifetime", "eternal"),
            ("address", "7f.."),
        ] {
            let error = filter(|asked| (asked == name).then_some(text)).unwrap_err();
            assert!(matches!(&error, QueryError::BadParameter { parameter, .. } if parameter == name), "{error}");
        }
        assert!(filter(|_| None).unwrap().is_empty());
    }

    #[test]
    fn windows_have_two_ends() {
        let read = |text: &str| window_between("before", text);
        let window = |from, to| Ok(Window { from, to, at: None });
        let mark = |label: &str| Some(TimeExpr::Mark(label.into()));
        assert_eq!(read("warm..cold"), window(mark("warm"), mark("cold")));
        assert_eq!(read("1s.."), window(Some(TimeExpr::Ns(1_000_000_000)), None));
        assert_eq!(read(r#""a..b"..peak"#), window(mark("a..b"), Some(TimeExpr::Peak)));
        assert_eq!(read(r#"a.."b..c""#), window(mark("a"), mark("b..c")));
        assert_eq!(read(r#""peak".."#), window(mark("peak"), None));
        assert_eq!(read(r#"say "x".."#), window(mark("say \"x\""), None));
        // Where one end can only be read in one way, the rest is the other.
        assert_eq!(read("1s..b..c"), window(Some(TimeExpr::Ns(1_000_000_000)), mark("b..c")));
        assert_eq!(read("..b..c"), window(None, mark("b..c")));
        for (text, why) in [
            ("warm", "is no window"),
            (r#""a..b""#, "is no window"),
            (r#""a..b"#, "without an end"),
            (r#""a"b..c"#, "without an end"),
            (r#"a.."b..c"#, "without an end"),
            (r#"a.."b"..c"#, "behind its end"),
            ("a..b..c", r#"double quotes: `"a..b"..c`"#),
            ("a..b..", r#"double quotes: `"a..b"..`"#),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_instant_excludes_a_window() {
        assert!(window(Some("1s"), None, Some("peak")).is_err());
        assert!(window(None, None, Some("peak")).is_ok());
    }
}
